"""The simulator: the engine's own actors, workers and clients on one thread, in simulated time.

A seed draws a plan (workload, faults, tunables); a world runs it; the auditor judges what is left.
"""
