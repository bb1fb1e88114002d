"""The auditor of retries, backoff and timeouts across a call chain, independent of the engine.

`documents` reads files, `chain` is what a chain is, `figures` its arithmetic, `findings` what is
unsafe in it, `review` all of that together. Nothing here runs, or needs, a node.
"""
