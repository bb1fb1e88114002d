"""Applications that drills run on their nodes: what a user would write, nothing of the drills."""
