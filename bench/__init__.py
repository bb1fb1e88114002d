"""Measures a real node on this machine: `python -m bench`, or `make bench`."""
