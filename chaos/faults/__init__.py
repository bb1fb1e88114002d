"""What goes wrong on demand between the engine and its disk."""
