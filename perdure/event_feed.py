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
COMMITS_FIRST, COMMITS_A_READ = 4, 200  # Read at a time: few, until it is seen how few have any.
# Looked at for one answer; the asker goes on from there. Whoever answers has others to answer, too.
COMMITS_AN_ANSWER = 2_000
RECORDS_AN_ANSWER = 5_000
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


ALL = Wanted(None, None)


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
    # Of commit `base_n` itself nothing is left. Who names an event of it may have had the last one,
    # or may not: nobody knows any more.
    if base_n and place < (base_n, END):
        raise _pruned(after, base_n)
    if place.n > reader.newest():
        raise FailedPrecondition(
            f"after: there is no {after} yet; the newest commit is {reader.newest()}", field="after"
        )
    return place


def _pruned(after: str, base_n: int) -> FailedPrecondition:
    text = f"after: what follows {after} was pruned; the oldest that is kept is after {base_n}"
    return FailedPrecondition(text, field="after")


def events_of(body: CommitBody, wanted: Wanted = ALL) -> Iterator[tuple[int, View]]:
    """(index, event) of everything in a commit that belongs to the feed and is listened to."""
    end = 0
    for group in body.groups:
        index, end = end, end + len(group.records)
        is_meant = wanted.workflow_id is None
        if not is_meant and not group.workflow_id.startswith(SCHEDULE_MARK):
            if of_execution(group.workflow_id)[0] != wanted.workflow_id:
                continue
            is_meant = True
        for at, record in enumerate(group.records, index):
            kind = KINDS.get(type(record))
            if kind is None or (wanted.kinds is not None and kind not in wanted.kinds):
                continue
            if getattr(record, "noop", False):
                continue
            view = _view(body, at, kind, group.workflow_id, record)
            if is_meant or view["workflow_id"] == wanted.workflow_id:
                yield at, view


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
    if isinstance(record, GateSet):
        view["gate"] = record.kind  # Its own `kind`, which is the event's word already.
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
    """The next events after a place, `limit` at most; it may have looked at a part of the log only,
    and found none there.
    """
    found: list[View] = []
    commits = records = 0
    place = after
    size = COMMITS_FIRST
    while commits < COMMITS_AN_ANSWER:
        # Commit `place.n` again, unless all of it was looked at.
        behind = place.n if place.at >= END else place.n - 1
        rows = reader.commits(behind, size)
        if rows and rows[0].n > behind + 1:
            raise _pruned(str(place), rows[0].n - 1)  # Just now, while it was read.
        for row in rows:
            body = decode_body(row.body)
            for index, view in events_of(body, wanted):
                if (row.n, index) <= place:
                    continue
                found.append(view)
                if len(found) == limit:
                    return Page(found, Position(row.n, index), is_end=False)
            place = Position(row.n, END)
            records += sum(len(group.records) for group in body.groups)
            if records >= RECORDS_AN_ANSWER:
                return Page(found, place, is_end=False)
        commits += len(rows)
        if len(rows) < size:
            return Page(found, place, is_end=True)
        size = min(size * 4, COMMITS_A_READ)
    return Page(found, place, is_end=False)


def kinds() -> Sequence[str]:
    """Every kind of event that there is."""
    return sorted(KINDS.values())
