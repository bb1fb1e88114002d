"""Retry settings read where they live; every number keeps the place that it came from."""
