"""The proof: drills that kill, stop and starve a real node, and an auditor that counts what came of
it.

The auditor compares two independent sources, the durable history and the ledger of effects, and
shares no code with the engine's own folds of them.
"""
