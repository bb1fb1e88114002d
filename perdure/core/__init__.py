"""The decisions, pure: what is said, when it may be said, and what follows from it.

Commands, records, executions (``decide`` and ``evolve``), task queues, the lease table and dead
letters. Nothing here opens a socket or a file, starts a thread, reads a clock or draws a random
number; time and chance are passed in, so that the same code runs in production, in tests and in
simulations.
"""
