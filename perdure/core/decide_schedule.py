"""Judge a command about a schedule: the records that follow, what is to be started or ended, and
the answer.

A run is due at an instant of the schedule's times and is recorded with it, so that none is run
twice, and what fell due while no node was up is known. See docs/schedules.md for the rules.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from perdure.core.commands import Done, StartWorkflow
from perdure.core.facts import Decision, FollowOn, refuse
from perdure.core.interactions import CancelWorkflow, ChildEnded, TerminateWorkflow
from perdure.core.record_base import Record
from perdure.core.schedule_commands import (
    BackfillSchedule,
    DeleteSchedule,
    FireSchedule,
    PauseSchedule,
    PutSchedule,
    TriggerSchedule,
)
from perdure.core.schedule_state import (
    BUFFERED_MAX,
    Overlap,
    Schedule,
    ScheduleDeleted,
    ScheduleFired,
    SchedulePaused,
    ScheduleRunEnded,
    ScheduleSet,
    Spec,
    fold,
    schedule_group,
)
from perdure.core.start import Parent, StartTerms
from perdure.times import Times

LATE_MS = 10_000
"""A run that begins so much after it was due is one that was missed and is made up for."""
MISSED_COUNTED_MAX = 10_000
BACKFILL_MAX = 1_000


@lru_cache(maxsize=1024)
def times_of(spec: Spec) -> Times:
    """When it is due. InvalidArgument where the spec makes no sense."""
    return Times(
        spec.crons, spec.every_ms, spec.offset_ms, spec.time_zone, spec.start_ms, spec.end_ms
    )


def fires_at_ms(schedule: Schedule) -> int | None:
    """When the next run begins: when it is due, and its share of the jitter; None: never."""
    due_ms = schedule.next_ms
    if due_ms is None or schedule.paused:
        return None
    jitter_ms = schedule.spec.jitter_ms
    if jitter_ms == 0:
        return due_ms
    # A share of its own for each run, the same whoever works it out.
    name = f"{schedule.schedule_id}/{due_ms}".encode()
    share = int.from_bytes(hashlib.blake2b(name, digest_size=6).digest()) / 2**48
    following_ms = times_of(schedule.spec).after(due_ms)
    if following_ms is not None:
        jitter_ms = min(jitter_ms, following_ms - due_ms - 1)
    return due_ms + int(share * jitter_ms)


def decide_schedule(schedule: Schedule | None, command: Any, now_ms: int) -> Decision:
    """What `command` does to `schedule` (None: there is none of that id)."""
    if isinstance(command, PutSchedule):
        return _put(schedule, command, now_ms)
    if schedule is None or schedule.deleted:
        # The very request that ended it, sent again, is answered as the first time.
        again = schedule is not None and getattr(command, "request_id", "") in schedule.requests
        if again and isinstance(command, DeleteSchedule):
            return Decision((), Done())
        return refuse("NOT_FOUND", "there is no schedule of this id")
    return _DECIDERS[type(command)](schedule, command, now_ms)


def _put(schedule: Schedule | None, command: PutSchedule, now_ms: int) -> Decision:
    is_there = schedule is not None and not schedule.deleted
    if schedule is not None and command.request_id in schedule.requests:
        return Decision((), Done())
    if is_there and not command.replace:
        return refuse("ALREADY_EXISTS", "there is a schedule of this id already")
    if command.replace and not is_there:
        return refuse("NOT_FOUND", "there is no schedule of this id")
    next_ms = times_of(command.spec).after(now_ms)
    if next_ms is None:
        return refuse("INVALID_ARGUMENT", "end_ms: the schedule would never be due")
    paused, reason = command.paused, command.reason
    if is_there and schedule is not None and not command.paused:
        paused, reason = schedule.paused, schedule.reason
    record = ScheduleSet(now_ms, command.spec, next_ms, paused, reason, command.request_id)
    return Decision((record,), Done())


class _Runs:
    """Adds up what follows while runs are decided one after the other."""

    def __init__(self, schedule: Schedule, now_ms: int) -> None:
        # A copy, on which each record counts before the next run is looked at.
        self._now = msgspec.msgpack.decode(msgspec.msgpack.encode(schedule), type=Schedule)
        self._now_ms = now_ms
        self.records: list[Record] = []
        self.then: list[FollowOn] = []

    def add(self, record: Record) -> None:
        """State `record`."""
        self.records.append(record)
        fold(self._now, "", record)

    def run(
        self,
        due_ms: int,
        why: str,
        overlap: str,
        next_ms: int | None,
        request_id: str | None = None,
    ) -> None:
        """Decide about one run."""
        outcome = "started"
        running = self._now.running
        if running and overlap != Overlap.ALLOW_ALL:
            outcome = self._beside(overlap)
        workflow_id = "" if outcome != "started" else self._workflow_id(due_ms)
        fired = ScheduleFired(
            self._now_ms, due_ms, outcome, why, workflow_id, 1, next_ms, request_id
        )
        self.add(fired)
        if outcome == "started":
            self._start(workflow_id, due_ms)

    def _beside(self, overlap: str) -> str:
        """What becomes of a run while others go on."""
        buffered = len(self._now.buffered)
        if overlap == Overlap.TERMINATE_OTHER:
            for workflow_id in self._now.running:
                reason = f"schedule {self._now.schedule_id}: the next run is due"
                self.then.append(FollowOn(TerminateWorkflow(workflow_id, reason)))
            return "started"
        if overlap == Overlap.CANCEL_OTHER:
            for workflow_id in self._now.running:
                reason = f"schedule {self._now.schedule_id}: the next run is due"
                self.then.append(FollowOn(CancelWorkflow(workflow_id, reason)))
            return "skipped" if buffered else "buffered"
        if overlap == Overlap.BUFFER_ONE:
            return "skipped" if buffered else "buffered"
        if overlap == Overlap.BUFFER_ALL:
            return "skipped" if buffered >= BUFFERED_MAX else "buffered"
        return "skipped"

    def buffered(self) -> None:
        """Start what waits, where nothing runs any more."""
        if self._now.buffered and not self._now.running and not self._now.paused:
            self.run(self._now.buffered[0], "buffer", Overlap.ALLOW_ALL, self._now.next_ms)

    def _workflow_id(self, due_ms: int) -> str:
        """An id that no run before has: by when it was due, and how many there were."""
        stamp = _stamp(due_ms)
        return f"{self._now.schedule_id}-{stamp}-{self._now.runs + 1}"

    def _start(self, workflow_id: str, due_ms: int) -> None:
        spec = self._now.spec
        group = schedule_group(self._now.schedule_id)
        terms = StartTerms(
            timeout_ms=spec.timeout_ms,
            parent=Parent(group, workflow_id, "abandon"),
            attributes=(("schedule_id", self._now.schedule_id), ("due_ms", due_ms)),
        )
        start = StartWorkflow(
            workflow_id, spec.workflow_type, spec.task_queue, spec.input, None, b"", terms
        )
        self.then.append(FollowOn(start, ChildEnded(group, workflow_id, "Refused", None, None)))

    def decision(self) -> Decision:
        """All that follows."""
        return Decision(tuple(self.records), Done(), tuple(self.then))


def _stamp(at_ms: int) -> str:
    """An instant as it stands in ids: UTC, to the second."""
    at = datetime.datetime.fromtimestamp(at_ms // 1000, datetime.UTC)
    return f"{at:%Y%m%dT%H%M%SZ}"


def _fire(schedule: Schedule, command: FireSchedule, now_ms: int) -> Decision:
    if schedule.paused or schedule.next_ms != command.due_ms:
        return refuse("FAILED_PRECONDITION", "it is not what is due next")
    begins_ms = fires_at_ms(schedule)
    if begins_ms is None or now_ms < begins_ms:
        return refuse("FAILED_PRECONDITION", "too early", begins_ms or 0)
    spec = schedule.spec
    times = times_of(spec)
    next_ms = times.after(max(now_ms, command.due_ms))
    due = times.newest(now_ms, command.due_ms, max(spec.catch_up, 1))
    is_late = now_ms - due[-1] > max(LATE_MS, spec.jitter_ms)
    made_up = [] if is_late and spec.catch_up == 0 else due
    runs = _Runs(schedule, now_ms)
    missed = len(list(islice(times.between(command.due_ms, now_ms), MISSED_COUNTED_MAX)))
    missed -= len(made_up)
    if missed > 0:
        runs.add(ScheduleFired(now_ms, command.due_ms, "missed", "time", "", missed, next_ms))
    for due_ms in made_up:
        runs.run(due_ms, "time", spec.overlap, next_ms)
    return runs.decision()


def _trigger(schedule: Schedule, command: TriggerSchedule, now_ms: int) -> Decision:
    if command.request_id in schedule.requests:
        return Decision((), Done())
    runs = _Runs(schedule, now_ms)
    overlap = command.overlap or schedule.spec.overlap
    runs.run(now_ms, "trigger", overlap, schedule.next_ms, command.request_id)
    return runs.decision()


def _backfill(schedule: Schedule, command: BackfillSchedule, now_ms: int) -> Decision:
    if command.request_id in schedule.requests:
        return Decision((), Done())
    times = times_of(schedule.spec)
    last_ms = min(command.last_ms, now_ms)
    due = list(islice(times.between(command.first_ms, last_ms), BACKFILL_MAX + 1))
    if len(due) > BACKFILL_MAX:
        return refuse(
            "INVALID_ARGUMENT",
            f"last_ms: more than {BACKFILL_MAX} runs were due in that span; take a shorter one",
        )
    if not due:
        return refuse("FAILED_PRECONDITION", "no run was due in that span")
    runs = _Runs(schedule, now_ms)
    for due_ms in due:
        overlap = command.overlap or schedule.spec.overlap
        runs.run(due_ms, "backfill", overlap, schedule.next_ms, command.request_id)
    return runs.decision()


def _pause(schedule: Schedule, command: PauseSchedule, now_ms: int) -> Decision:
    if command.request_id in schedule.requests:
        return Decision((), Done())
    next_ms = schedule.next_ms
    if not command.paused:
        next_ms = times_of(schedule.spec).after(now_ms)
    runs = _Runs(schedule, now_ms)
    reason = command.reason
    if schedule.paused and command.paused and not reason:
        reason = schedule.reason  # Without a reason of its own the first one stays.
    runs.add(SchedulePaused(now_ms, command.paused, reason, next_ms, command.request_id))
    runs.buffered()
    return runs.decision()


def _delete(schedule: Schedule, command: DeleteSchedule, now_ms: int) -> Decision:
    return Decision((ScheduleDeleted(now_ms, command.request_id),), Done())


def _run_ended(schedule: Schedule, command: ChildEnded, now_ms: int) -> Decision:
    if command.child_id not in schedule.running:
        return refuse("NOT_FOUND", "it runs no workflow of this id")
    runs = _Runs(schedule, now_ms)
    runs.add(ScheduleRunEnded(now_ms, command.child_id, command.status))
    if schedule.spec.pause_on_failure and command.status not in ("Completed", "Cancelled"):
        reason = f"{command.child_id} ended as {command.status}"
        runs.add(SchedulePaused(now_ms, True, reason, schedule.next_ms, None))
    runs.buffered()
    return runs.decision()


_DECIDERS: dict[type, Callable[[Schedule, Any, int], Decision]] = {
    FireSchedule: _fire,
    TriggerSchedule: _trigger,
    BackfillSchedule: _backfill,
    PauseSchedule: _pause,
    DeleteSchedule: _delete,
    ChildEnded: _run_ended,
}
