"""The command line: one file per noun.

The top of the import order: it may use every other room. What belongs to the application is
imported inside the commands that need it, so that the others start fast.
"""
