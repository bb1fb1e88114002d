"""The application: one file per actor, each with its messages, its state and its handling in order.

History decides and is the only writer; scheduler, lease keeper and dead-letter actor are
projections of what it committed; the gateway speaks to clients and workers. Each actor is a thin
shell around a pure core of ``perdure.core`` and has an operating-system process of its own.
"""
