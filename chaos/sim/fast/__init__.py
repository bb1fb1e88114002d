"""The fast world: the engine's core classes driven directly, workflows as state machines.

No codec, no sockets, no coroutines: ledger, matching and lease keeping with their resending, over
the same network faults and plans. It tries far more interleavings a second than the whole engine.
"""
