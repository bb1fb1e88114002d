"""What has happened on a node, derived from the commit log: the feed that clients.events() reads.

An event's id is "n.i": commit n, record i of it. So the same thing has the same id whoever asks,
however often, and whatever it is narrowed to. Nothing is stored for it beside the log, and it goes
back as far as the log is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from perdure import wire
from perdure.core.ids import of_execution
from perdure.core.records import (
    ActivityDeadLettered,
    ActivityRedriven,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    ChildWorkflowStarted,
    CommitBody,
    GateSet,
    Record,
    RetryScheduled,
    SignalReceived,
    UpdateEnded,
    UpdateReceived,
    WorkflowCancelled,
    WorkflowCancelRequested,
    WorkflowCompleted,
    WorkflowContinuedAsNew,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowReset,
    WorkflowStarted,
    WorkflowTaskFailed,
    WorkflowTerminated,
    decode_body,
)
from perdure.core.schedule_state import (
    SCHEDULE_MARK,
    ScheduleDeleted,
    ScheduleFired,
    SchedulePaused,
    ScheduleSet,
)
from perdure.errors import FailedPrecondition, InvalidArgument
from perdure.failures import Failure
from perdure.store.protocol import Reader

LIMIT = 100  # Events in an answer, where the asker names no limit.
COMMITS_A_READ = 200
COMMITS_AN_ANSWER = 2_000  # Looked at for one answer; the asker goes on from there.
MESSAGE_CHARS_MAX = 1_000
END = 10**15  # Behind every record of a commit.

View = dict[str, Any]

# Each record that is an event of the feed, and its kind there.
KINDS: dict[type[Record], str] = {
    kind: kind.__name__
    for kind in (
        WorkflowStarted,
        WorkflowCompleted,
        WorkflowFailed,
        WorkflowCancelRequested,
        WorkflowCancelled,
        WorkflowTerminated,
        WorkflowContinuedAsNew,
        WorkflowPaused,
        WorkflowReset,
        WorkflowTaskFailed,
        SignalReceived,
        UpdateReceived,
        UpdateEnded,
        ChildWorkflowStarted,
        ActivityTaskScheduled,
        ActivityTaskCompleted,
        ActivityTaskFailed,
        ActivityTaskCancelled,
        ActivityDeadLettered,
        ActivityRedriven,
        GateSet,
        ScheduleSet,
        ScheduleFired,
        SchedulePaused,
        ScheduleDeleted,
    )
} | {RetryScheduled: "ActivityAttemptFailed"}

# What of a record is not for the feed: payloads, which may be large, and what only replay needs.
_LEFT_OUT = frozenset(
    {
        "beat",
        "details",
        "digest",
        "grant",
        "has_input",
        "input",
        "options",
        "result",
        "spec",
        "started_ms",
        "terms",
        "workflow_id",
    }
)


class Position(NamedTuple):
    """A place in the feed: behind record `at` of commit `n`."""

    n: int
    at: int

    def __str__(self) -> str:
        return str(self.n) if self.at >= END else f"{self.n}.{self.at}"


class Wanted(NamedTuple):
    """What somebody listens to; None matches all."""

    kinds: frozenset[str] | None
    workflow_id: str | None


class Page(NamedTuple):
    """Events, and the place behind all that was looked at. `is_end`: there is no more for now."""

    events: list[View]
    next: Position
    is_end: bool

    def as_answer(self) -> View:
        """The `ok` of ReadEvents."""
        return {"events": self.events, "next": str(self.next)}


def wanted_of(args: wire.ReadEvents) -> Wanted:
    """What is asked for. InvalidArgument for a kind that there is not."""
    if args.kinds is None:
        return Wanted(None, args.workflow_id)
    for kind in args.kinds:
        if kind not in KINDS.values():
            known = ", ".join(sorted(KINDS.values()))
            raise InvalidArgument(f"kinds: there is no {kind!r}; known: {known}", field="kinds")
    return Wanted(frozenset(args.kinds), args.workflow_id)


def start_of(after: str | None, reader: Reader) -> Position:
    """The place that `after` names. FailedPrecondition where what follows it was pruned."""
    base_n, _ = reader.base()
    if after is None:
        return Position(base_n, END)
    if after == "now":
        return Position(reader.newest(), END)
    n, dot, index = after.partition(".")
    place = Position(int(n), int(index) if dot else END)
    # Of commit `base_n` itself nothing is left; who had all of it lacks nothing.
    if place < (base_n, 0):
        raise _pruned(after, base_n)
    if place.n > reader.newest():
        raise FailedPrecondition(
            f"after: there is no {after} yet; the newest commit is {reader.newest()}", field="after"
        )
    return place


def _pruned(after: str, base_n: int) -> FailedPrecondition:
    text = f"after: what follows {after} was pruned; the oldest that is kept is after {base_n}"
    return FailedPrecondition(text, field="after")


def events_of(body: CommitBody) -> Iterator[tuple[int, View]]:
    """(index, event) of everything in a commit that belongs to the feed."""
    index = 0
    for group in body.groups:
        for record in group.records:
            kind = KINDS.get(type(record))
            if kind is not None and not getattr(record, "noop", False):
                yield index, _view(body, index, kind, group.workflow_id, record)
            index += 1


def _view(body: CommitBody, index: int, kind: str, execution_id: str, record: Any) -> View:
    view: View = {
        "id": f"{body.n}.{index}",
        "kind": kind,
        "at_ms": getattr(record, "at_ms", body.at_ms),
    }
    if execution_id.startswith(SCHEDULE_MARK):
        # Of a schedule; the workflow is the one that it starts, if it is about one.
        view["schedule_id"] = execution_id.removeprefix(SCHEDULE_MARK)
        execution_id = getattr(record, "workflow_id", "")
    workflow_id, run = of_execution(execution_id)
    view["workflow_id"] = workflow_id or None
    view["run"] = run if workflow_id else None
    for name in record.__struct_fields__:
        if name in _LEFT_OUT or name in view:
            continue
        it = getattr(record, name)
        view[name] = _brief(it) if isinstance(it, Failure) else it
    return view


def _brief(it: Failure) -> View:
    """Without stack, details and causes: the history has them."""
    return {
        "type": it.type,
        "message": it.message[:MESSAGE_CHARS_MAX],
        "non_retryable": it.non_retryable,
    }


def read(reader: Reader, after: Position, wanted: Wanted, limit: int) -> Page:
    """The next events after a place, `limit` at most, of at most COMMITS_AN_ANSWER commits."""
    found: list[View] = []
    looked = 0
    place = after
    while looked < COMMITS_AN_ANSWER:
        # Commit `place.n` again, unless all of it was looked at.
        behind = place.n if place.at >= END else place.n - 1
        rows = reader.commits(behind, COMMITS_A_READ)
        if rows and rows[0].n > behind + 1:
            raise _pruned(str(place), rows[0].n - 1)  # Just now, while it was read.
        for row in rows:
            for index, view in events_of(decode_body(row.body)):
                if (row.n, index) <= place or not matches(view, wanted):
                    continue
                found.append(view)
                if len(found) == limit:
                    return Page(found, Position(row.n, index), is_end=False)
            place = Position(row.n, END)
        looked += len(rows)
        if len(rows) < COMMITS_A_READ:
            return Page(found, place, is_end=True)
    return Page(found, place, is_end=False)


def matches(view: View, wanted: Wanted) -> bool:
    """Whether somebody listens to this event."""
    if wanted.workflow_id is not None and view["workflow_id"] != wanted.workflow_id:
        return False
    return wanted.kinds is None or view["kind"] in wanted.kinds


def kinds() -> Sequence[str]:
    """Every kind of event that there is."""
    return sorted(KINDS.values())
