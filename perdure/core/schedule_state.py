"""Schedules as they stand: what a schedule says, what history states about it, and its fold.

A schedule's records stand in the log in a group of their own, under SCHEDULE_MARK and its id; no
workflow's id begins so. It is the parent of what it starts: the end of a workflow that it started
comes back to it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from perdure.core.record_base import Count, Payload, Record

SCHEDULE_MARK = "\x1e"
RECENT_KEPT = 20
REQUESTS_KEPT = 100
BUFFERED_MAX = 1_000


def schedule_group(schedule_id: str) -> str:
    """Under what the records of a schedule stand."""
    return SCHEDULE_MARK + schedule_id


def is_schedule(group: str) -> bool:
    """Whether a group's id is of a schedule and not of a workflow."""
    return group.startswith(SCHEDULE_MARK)


class Overlap(StrEnum):
    """What becomes of a run that is due while an earlier one has not ended."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_OTHER = "cancel_other"
    TERMINATE_OTHER = "terminate_other"
    ALLOW_ALL = "allow_all"


class Spec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a schedule says: when, what, and what then. None and 0 mean none, except where noted.

    `catch_up` is how many of the runs that fell due while no node was up are made up for.
    """

    workflow_type: str
    task_queue: str
    input: Payload | None
    crons: tuple[str, ...] = ()
    every_ms: Count | None = None
    offset_ms: Count = 0
    time_zone: str = "UTC"
    start_ms: Count | None = None
    end_ms: Count | None = None
    jitter_ms: Count = 0
    overlap: str = "skip"
    catch_up: Count = 1
    pause_on_failure: bool = False
    timeout_ms: Count = 0
    note: str = ""


# --- records ------------------------------------------------------------------
class ScheduleSet(Record, frozen=True, tag=50):
    """The schedule exists from now on, or says something else from now on."""

    at_ms: int
    spec: Spec
    next_ms: int | None
    paused: bool
    reason: str
    request_id: str


class ScheduleFired(Record, frozen=True, tag=51):
    """A run was due at `due_ms`. outcome: "started", "skipped", "buffered", "missed".

    why: "time", "trigger", "backfill" or "buffer" (it had waited). `count` is how many were missed,
    else 1. `next_ms`: when the next run is due.
    """

    at_ms: int
    due_ms: int
    outcome: str
    why: str
    workflow_id: str
    count: int
    next_ms: int | None
    request_id: str | None = None


class ScheduleRunEnded(Record, frozen=True, tag=52):
    """A workflow that the schedule had started has ended, or could not begin."""

    at_ms: int
    workflow_id: str
    status: str


class SchedulePaused(Record, frozen=True, tag=53):
    """It was held back, or let go: what was due meanwhile is not made up for."""

    at_ms: int
    paused: bool
    reason: str
    next_ms: int | None
    request_id: str | None


class ScheduleDeleted(Record, frozen=True, tag=54):
    """It is gone. What it has started goes on."""

    at_ms: int
    request_id: str


ScheduleRecord = ScheduleSet | ScheduleFired | ScheduleRunEnded | SchedulePaused | ScheduleDeleted
SCHEDULE_RECORDS: frozenset[type[Record]] = frozenset(ScheduleRecord.__args__)


# --- state --------------------------------------------------------------------
class Recent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One of the newest runs. `status` is empty while it goes on."""

    due_ms: int
    at_ms: int
    outcome: str
    why: str
    workflow_id: str
    status: str = ""


class Schedule(msgspec.Struct, array_like=True):
    """One schedule. Only `fold` changes it."""

    schedule_id: str
    spec: Spec
    created_ms: int
    changed_ms: int
    next_ms: int | None
    paused: bool = False
    reason: str = ""
    # Of what it has started and that goes on: workflow_id -> when it was due.
    running: dict[str, int] = {}
    buffered: list[int] = []
    started: int = 0
    skipped: int = 0
    missed: int = 0
    recent: list[Recent] = []
    requests: list[str] = []
    deleted: bool = False
    changed_n: int = 0  # The commit that changed it last.
    runs: int = 0  # All that were ever started under this id, before it was deleted too.


def fold(schedule: Schedule | None, group: str, record: Any, n: int = 0) -> Schedule | None:
    """`schedule` after `record` of commit `n`, changed in place; None while there is none.

    Total: no durable record makes it raise. A deleted one stays, marked, for whoever writes it.
    """
    if isinstance(record, ScheduleSet):
        if schedule is None or schedule.deleted:
            runs = 0 if schedule is None else schedule.runs
            schedule = Schedule(
                group.removeprefix(SCHEDULE_MARK), record.spec, record.at_ms, record.at_ms, None
            )
            schedule.runs = runs
        schedule.spec = record.spec
        schedule.next_ms = record.next_ms
        schedule.paused, schedule.reason = record.paused, record.reason
    elif schedule is None:
        return None
    elif isinstance(record, ScheduleFired):
        _fired(schedule, record)
    elif isinstance(record, ScheduleRunEnded):
        schedule.running.pop(record.workflow_id, None)
        schedule.recent = [
            msgspec.structs.replace(one, status=record.status)
            if one.workflow_id == record.workflow_id
            else one
            for one in schedule.recent
        ]
    elif isinstance(record, SchedulePaused):
        schedule.paused, schedule.reason = record.paused, record.reason
        schedule.next_ms = record.next_ms
    elif isinstance(record, ScheduleDeleted):
        schedule.deleted = True
        schedule.next_ms = None
        schedule.buffered = []
    request_id = getattr(record, "request_id", None)
    if request_id is not None and request_id not in schedule.requests:
        schedule.requests = [*schedule.requests[1 - REQUESTS_KEPT :], request_id]
    schedule.changed_ms = record.at_ms
    schedule.changed_n = n
    return schedule


def _fired(schedule: Schedule, record: ScheduleFired) -> None:
    schedule.next_ms = record.next_ms
    if record.outcome == "missed":
        schedule.missed += record.count
        return
    if record.outcome == "buffered":
        schedule.buffered = [*schedule.buffered, record.due_ms]
        return
    if record.why == "buffer":
        schedule.buffered = schedule.buffered[1:]
    if record.outcome == "started":
        schedule.started += 1
        schedule.runs += 1
        schedule.running[record.workflow_id] = record.due_ms
    else:
        schedule.skipped += 1
    recent = Recent(record.due_ms, record.at_ms, record.outcome, record.why, record.workflow_id)
    schedule.recent = [*schedule.recent[1 - RECENT_KEPT :], recent]
