"""Durable execution: workflows of retried activities that survive the death of any process.

This package is the library: what users import and type. It runs user code, so nothing in it, the command
line apart, imports the application that serves it (``actors``, ``supervisors`` and ``chaos``).
"""

__version__ = "0.1.0"
