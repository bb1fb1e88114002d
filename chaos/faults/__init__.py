"""What goes wrong on demand: between the engine and its disk, and between its processes."""
