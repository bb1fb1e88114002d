"""What history was asked in one drain: who may ask for it, and in which order it is judged."""

from __future__ import annotations

import msgspec

from actors.answered import Answered
from actors.hiring import HIRING, checked
from perdure.core.commands import (
    Command,
    CompleteActivity,
    CompleteWorkflowTask,
    DetachLease,
    EndLease,
    ExpireLease,
    FailActivity,
    FailWorkflowTask,
    Refusal,
    ReleaseActivity,
)
from perdure.core.links import GATEWAY, Ask

# What a worker may ask for; anything else that a gateway passes on for one is refused.
WORKER_COMMANDS: frozenset[type[Command]] = frozenset(
    {
        CompleteActivity,
        FailActivity,
        DetachLease,
        ReleaseActivity,
        CompleteWorkflowTask,
        FailWorkflowTask,
    }
)
_ENDS: frozenset[type[Command]] = frozenset({ExpireLease, EndLease})


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A command with the way back to whoever asked."""

    sender: str
    head: bytes
    ask: Ask


class AskedFor:
    """All of it: first what gateways and workers ask, then proposals, then expiries and ends of
    sessions.
    """

    def __init__(self, answered: Answered) -> None:
        self._answered = answered
        self._from_outside: list[Asked] = []
        self._proposals: list[Asked] = []
        self._ends: list[Asked] = []

    def __bool__(self) -> bool:
        """True when there is something to judge."""
        return bool(self._from_outside or self._proposals or self._ends)

    def put(self, sender: str, head: bytes, ask: Ask) -> Refusal | None:
        """Keep it for the end of the drain; or why not."""
        kind = type(ask.command)
        if head:
            if kind not in WORKER_COMMANDS:
                return Refusal("INVALID_ARGUMENT", "not for workers to ask")
            if kind in HIRING:
                ask = checked(ask, head)
            part = self._from_outside
        elif sender.startswith(GATEWAY):
            if not self._answered.is_new(sender, ask):
                return None
            part = self._from_outside
        else:
            part = self._ends if kind in _ENDS else self._proposals
        part.append(Asked(sender, head, ask))
        return None

    def take(self) -> list[Asked]:
        """All in order, and nothing is kept."""
        asked = [*self._from_outside, *self._proposals, *self._ends]
        self._from_outside.clear()
        self._proposals.clear()
        self._ends.clear()
        return asked
