"""What the ledger reads from, and what it makes of a batch of commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from perdure.core.change import Change
from perdure.core.commands import AnyAnswer, Command
from perdure.core.gates import Gate
from perdure.core.records import Record
from perdure.core.schedule_state import Schedule
from perdure.core.state import Execution


class Source(Protocol):
    """Where the ledger finds what it does not hold."""

    def load(self, workflow_id: str) -> Execution | None:
        """The execution as of the newest commit, or None."""
        ...

    def closing_event(self, workflow_id: str, activity_id: str) -> Record | None:
        """The event that closed this activity, or None."""
        ...

    def gates(self) -> list[Gate]:
        """Every gate that was ever set."""
        ...

    def requested_event(self, workflow_id: str, request_id: str) -> Record | None:
        """The event made by the operator's command with this request id, or None."""
        ...

    def history(self, workflow_id: str, after: int = 0) -> list[Record]:
        """All stored events of this execution behind event `after`, in order."""
        ...

    def history_bytes(self, workflow_id: str) -> int:
        """How many bytes the stored events of this execution have."""
        ...

    def schedule(self, schedule_id: str) -> Schedule | None:
        """The schedule, deleted or not; None where there never was one."""
        ...

    def newest_run(self, workflow_id: str) -> int:
        """How many runs the workflow of this id has had; 0: it was never started."""
        ...


class Aside(msgspec.Struct, frozen=True):
    """A command that made the core raise: it changed nothing and is kept for inspection."""

    command: Command
    error: str  # A traceback.
    workflow_id: str = ""  # Empty where it names none, or not one of this store's.


class Unfit(Exception):
    """What a batch adds up to can't be made a commit; the cause says why. Who acts: history."""


class Batch(msgspec.Struct):
    """One drained batch, judged.

    `change` None: nothing to write, the answers speak of what is durable.
    """

    n: int  # The commit that the answers depend on.
    change: Change | None
    answers: list[AnyAnswer]  # In the order of the commands.
    closings: dict[str, Record]  # workflow_id -> the event that ended it
    aside: list[Aside]
    dead_letters: bool = False  # Whether it may change what is dead.
    records: Mapping[str, Sequence[Record]] = {}  # All of them, by workflow.
    # Executions whose history has just grown past the bound that its operator is told of.
    long: Sequence[str] = ()
