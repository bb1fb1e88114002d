"""What a store promises: one writer, conditional on its epoch, and readers that never see what is
not durable.

The writer is used by history only, on one thread. Readers are separate objects (their own
connections), for gateway and projections; each call is one short read transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from perdure.core.change import Change, StoredEvent
from perdure.core.gates import Gate
from perdure.core.limits import GRACE_MS
from perdure.core.records import Record
from perdure.core.schedule_state import Schedule
from perdure.core.start import Attribute
from perdure.core.state import Activity, Execution
from perdure.store.retention import Retention


class StoreError(Exception):
    """The store can't be used; `message` says what to do. Who acts: an operator."""


class StoreBehind(StoreError):
    """The store lacks commits that were durable once, or has others in their place."""


class Damaged(StoreError):
    """The store's file is not what was written. Who acts: an operator, with a backup."""


class NoRoom(StoreError):
    """The disk is full. What was being written may be there or not.

    `has_freed`: some room was made since, so that it may go well at once.
    """

    has_freed = False


class DiskFailed(StoreError):
    """The disk failed a read, a write or a sync. What was being written may be there or not."""


class Contradiction(StoreError):
    """A change that the rows there can't take. Nothing of it was written, and the writer goes on.

    Who acts: history, which finds out whose fault it is.
    """


class EpochLost(StoreError):
    """Another history owns the store now: this one may commit nothing, ever again."""


class Opened(msgspec.Struct, frozen=True):
    """What history starts from, durable when `open_epoch` returns.

    `n` is the epoch commit's own number (its row is written by open_epoch), `last_hash` its hash.
    `base_ms` + CLOCK_BOOTTIME is history's clock: in the same boot the earlier base carries on; in
    another it is chosen so that the clock starts at the larger of the last committed at_ms and the
    wall clock.
    """

    epoch: int
    n: int
    last_hash: bytes
    base_ms: int
    key: bytes
    stall_ms: int = 0  # Sum of all stalls so far, as the last commit has it.


class CommitRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of the commit log."""

    n: int
    epoch: int
    at_ms: int
    previous_hash: bytes
    hash: bytes
    body: bytes
    stall_ms: int = 0


class AsideRow(msgspec.Struct, frozen=True, gc=False):
    """A command that made history fail, kept for inspection; what comes again counts.

    `body` is the command, encoded; None where it is too large to be kept. `error`: a traceback.
    """

    digest: bytes
    command: str  # The name of its kind.
    workflow_id: str
    body: bytes | None
    error: str
    first_ms: int
    last_ms: int
    times: int = 1


class WorkflowFilter(msgspec.Struct, frozen=True):
    """What a list is narrowed to; None matches all."""

    workflow_type: str | None = None
    status: str | None = None
    pending_state: str | None = None
    failure_type: str | None = None
    activity_type: str | None = None
    older_than_ms: int | None = None  # Started before this instant.
    younger_than_ms: int | None = None  # Started at this instant or later.
    attempts: int | None = None  # With an open activity at this attempt or a later one.
    attributes: tuple[tuple[str, Attribute], ...] = ()  # Search attributes, all of them.
    parent: str | None = None  # The workflow whose child it is, whichever run of it.
    # Of those that run, with their open activities at hand, only the ones that this is true of.
    judge: Callable[[Execution], bool] | None = None


class Writer(Protocol):
    """The only way anything changes."""

    def open_epoch(
        self,
        incarnation: str,
        wall_ms: int,
        boot_id: str,
        boot_ms: int,
        grace_ms: int = GRACE_MS,
    ) -> Opened:
        """Take the store over: commit the next epoch with a full sync.

        `grace_ms`: what leases of before get of it, for who audits the log.

        Raises StoreError with instructions; StoreBehind, NoRoom and DiskFailed are such.
        """
        ...

    def reserve(self, reserve_bytes: int) -> None:
        """Before all else: below so many free bytes `is_short` is true. 0: never."""
        ...

    def is_short(self) -> bool:
        """Whether so little room is left that new work should be refused."""
        ...

    def make_durable(self, wall_ms: int, boot_id: str, boot_ms: int) -> Opened:
        """Instead of `open_epoch`, where there is no room for it: sync what is there, write
        nothing; what may be read by others now, with the epoch that is over. This writer commits
        nothing.

        Raises as `open_epoch` does.
        """
        ...

    def begin(self) -> None:
        """Open the transaction of the next commit; `load` and its like are cheap within it."""
        ...

    def abandon(self) -> None:
        """Close a transaction in which nothing was written."""
        ...

    def commit(self, change: Change) -> None:
        """Make `change` durable; returns after the sync.

        Raises Contradiction, EpochLost, NoRoom, DiskFailed, another StoreError or the driver's
        error.

        After any error but Contradiction the writer must not be used again. The outcome is unknown,
        except that after EpochLost and a plain StoreError nothing was written.
        """
        ...

    def load(self, workflow_id: str) -> Execution | None:
        """The execution with all its open activities and timers; closed ones too, without.

        None: never started.
        """
        ...

    def schedule(self, schedule_id: str) -> Schedule | None:
        """The schedule, deleted or not; None where there never was one."""
        ...

    def closing_event(self, workflow_id: str, activity_id: str) -> Record | None:
        """The event that closed this activity, decoded, or None."""
        ...

    def requested_event(self, workflow_id: str, request_id: str) -> Record | None:
        """The event that an operator's command with this request id made, decoded, or None."""
        ...

    def history(self, workflow_id: str, after: int = 0) -> list[Record]:
        """All stored events of this execution behind event `after`, in order."""
        ...

    def history_bytes(self, workflow_id: str) -> int:
        """How many bytes the stored events of this execution have."""
        ...

    def newest_run(self, workflow_id: str) -> int:
        """How many runs the workflow of this id has had; 0: it was never started."""
        ...

    def gates(self) -> list[Gate]:
        """Every gate that was ever set, by kind and name."""
        ...

    def event(self, workflow_id: str, event_id: int) -> bytes | None:
        """The encoded event record at this id."""
        ...

    def ready_count(self) -> int:
        """How many tasks wait for a worker: workflow tasks, and activities that hold no lease."""
        ...

    def retain(self, retention: Retention) -> None:
        """Keep closed workflows and old commits so long; without it, for ever.

        What is over its time goes with later commits, each taking up to twice what it adds, and
        with `tidy`. A removed workflow loads as one whose status is Removed, without events.
        """
        ...

    def tidy(self, now_ms: int) -> bool:
        """Take away a part of what is over its time at `now_ms`; whether there was any.

        For when nothing else is committed. Raises as `commit` does.
        """
        ...

    def set_aside(self, rows: Sequence[AsideRow]) -> None:
        """Keep these, at most ASIDES_MAX in all: what is kept already counts once more.

        A transaction of its own. Raises as `commit` does, but for Contradiction.
        """
        ...

    def maybe_checkpoint(self, *, idle: bool = False) -> None:
        """Move the log into the database if it has grown; sooner when nothing waits (`idle`)."""
        ...

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        ...


class Reader(Protocol):
    """Reads what is durable.

    Raises StoreError where the store is not there or of another format.
    """

    def key(self) -> bytes:
        """The key of the store's tokens."""
        ...

    def newest(self) -> int:
        """The newest commit's number."""
        ...

    def began_ms(self) -> int:
        """When the present epoch began."""
        ...

    def base(self) -> tuple[int, bytes]:
        """(n, hash) of the commit that the log begins after; (0, GENESIS) while all are there."""
        ...

    def open_state(self) -> tuple[int, list[Execution]]:
        """(n, every open execution with its open activities and timers) as of commit n, in one read
        transaction.
        """
        ...

    def commits(self, after: int, limit: int) -> list[CommitRow]:
        """Commit rows after `after`, in order; those before the base are gone."""
        ...

    def execution(self, workflow_id: str) -> Execution | None:
        """As Writer.load."""
        ...

    def events(self, workflow_id: str, after: int, limit: int, bytes_max: int) -> list[bytes]:
        """Encoded event records with event_id > after, in order: at most `limit`, and about
        `bytes_max` (at least one).
        """
        ...

    def newest_run(self, workflow_id: str) -> int:
        """How many runs the workflow of this id has had; 0: it was never started."""
        ...

    def event(self, workflow_id: str, event_id: int) -> bytes | None:
        """The encoded event record at exactly this id."""
        ...

    def details(self, workflow_id: str, activity_id: str) -> bytes | None:
        """The heartbeat details payload of an open activity."""
        ...

    def list_workflows(
        self, where: WorkflowFilter, limit: int, page: str | None
    ) -> tuple[list[Execution], str | None]:
        """Executions that match, newest start first, with their open activities (timers left out),
        and the next page's token. Removed ones only where their status is asked for.

        So many activities at a time, and where `where.judge` is asked, so many executions: a page
        may be short of its limit, and then empty, though there is a next one.
        """
        ...

    def failure_types(self, limit: int) -> list[str]:
        """The types of the last failures of open activities, by name."""
        ...

    def gates(self) -> list[Gate]:
        """As Writer.gates."""
        ...

    def asides(self) -> list[AsideRow]:
        """What was set aside, the newest last."""
        ...

    def schedule(self, schedule_id: str) -> Schedule | None:
        """The schedule, deleted or not; None where there never was one."""
        ...

    def schedules(self, after: str, limit: int) -> list[Schedule]:
        """Those with an id above `after`, by id, without deleted ones; a limit of -1 means all."""
        ...

    def dead_letters(self) -> Iterator[tuple[str, str, Activity]]:
        """(workflow_id, workflow_type, activity) of every dead letter."""
        ...

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        ...


__all__ = [
    "AsideRow",
    "Change",
    "CommitRow",
    "Contradiction",
    "Damaged",
    "DiskFailed",
    "EpochLost",
    "NoRoom",
    "Opened",
    "Reader",
    "Retention",
    "StoreBehind",
    "StoreError",
    "StoredEvent",
    "WorkflowFilter",
    "Writer",
]
