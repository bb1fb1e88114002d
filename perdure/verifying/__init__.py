"""The crash-point check of a user's own workflow: what `perdure verify` runs.

A run of the workflow notes, before and after each effect and each commit, all that would outlive
its process. From each such point another process, fresh from the application's loading, goes on:
once as after the death of the worker, once as after that of the node. What a process that dies
would still have done (in a `finally`, in another thread) can't happen: its successor begins from
what was there at that instant. explore.py has the tree of runs, life.py one run, compare.py what
is wrong with one; the rest is what they stand on.
"""
