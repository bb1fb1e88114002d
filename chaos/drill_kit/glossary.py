"""What the words of a report mean, for those who see one for the first time."""

from __future__ import annotations

GLOSSARY = (
    ("attempt", "one run of an activity's function by a worker."),
    (
        "effect",
        "what an activity does to the world: here a row in the receiver's ledger, under the "
        "activity's key. A later attempt may ask for it again; the receiver applies it once.",
    ),
    (
        "activities asked for more than once, repeats",
        "repeats are requests: an activity whose effect was asked for three times is one of the "
        "first, and two repeats.",
    ),
    (
        "lost, doubled",
        "an effect that completed work has not, or has twice. Neither may ever be.",
    ),
    (
        "report of a dead attempt",
        "the drill reports, and sends a heartbeat, for each attempt whose work was given to "
        "another. Both must be refused.",
    ),
    (
        "ok, refused, unknown",
        "what the drill's clients were answered. Refused is a definite no, which is what dead "
        "attempts must get; a no to what should have been done would be a violation. Unknown: no "
        "definite answer came in time.",
    ),
    ("fault", "what the drill did to the node. SIGKILL ends a process, SIGSTOP halts it."),
    (
        "history",
        "what the node has written down, and the one process that writes it. A commit is one "
        "transaction, a record one thing that happened.",
    ),
    (
        "auditor",
        "a program that shares no code with the engine: it reads the store, the ledgers and what "
        "clients were told, and holds them against the invariants of docs/invariants.md, by "
        "number.",
    ),
    ("proved", "nothing was lost or done twice, although the drill's fault did what it should."),
)
