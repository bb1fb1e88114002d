"""The log of a store, judged without the engine's fold: leases, attempts and ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.core import records as r
from perdure.core.chain import next_hash
from perdure.core.records import decode_body
from perdure.core.state import Activity, Execution
from perdure.failures import WORKER_DIED
from perdure.policy import backoff_ms
from perdure.store.protocol import CommitRow


class Trail:
    """What the log has said of one activity so far."""

    def __init__(self, scheduled: r.ActivityTaskScheduled | Activity) -> None:
        self.options = scheduled.options
        self.generation = 1
        self.attempt = 1  # The number that the next grant must bear.
        self.grant = 0
        self.due_ms = getattr(scheduled, "at_ms", 0)
        self.lease: r.LeaseGranted | None = None
        self.beat = 0
        self.is_given_up = False
        self.ended = ""  # The kind of the record that ended this generation.

    def take(self, record: Any) -> None:
        kind = type(record)
        if kind is r.LeaseGranted:
            assert self.lease is None, "two live leases"
            assert not self.ended
            assert record.at_ms >= self.due_ms, "granted too early"
            assert (record.generation, record.grant) == (self.generation, self.grant + 1)
            assert record.attempt == self.attempt <= self.options.retry.max_attempts
            assert record.at_ms < record.deadline_ms <= record.attempt_deadline_ms
            self.grant, self.lease = record.grant, record
            return
        if kind is r.RetriedNow:
            assert self.lease is None
            assert not self.ended
            assert record.at_ms < self.due_ms, "it was due"
            self.due_ms = record.at_ms
            return
        if kind is r.ActivityRedriven:
            assert self.ended == "ActivityDeadLettered"
            assert record.generation == self.generation + 1
            self.generation += 1
            self.attempt, self.ended, self.due_ms = 1, "", record.at_ms
            return
        if kind is r.ActivityCancelRequested:
            self.is_given_up = record.mode == "wait"
            return
        if kind is r.LeaseDetached:
            assert self.lease is not None
            assert record.grant == self.grant
            return
        if kind in (r.HeartbeatRecorded, r.LeaseReleased, r.RetryScheduled, r.ActivityDeadLettered):
            assert self.lease is not None, f"{kind.__name__} without a lease"
            assert (record.generation, record.grant) == (self.generation, self.grant)
        if kind is r.HeartbeatRecorded:
            assert record.beat > self.beat
            self.beat = record.beat
            return
        self.beat = max(self.beat, getattr(record, "beat", 0))
        is_last = kind in (r.ActivityTaskCompleted, r.ActivityTaskFailed, r.ActivityTaskCancelled)
        assert is_last or not self.is_given_up, "it goes on, and nobody wants it"
        if kind is r.RetryScheduled:
            self._retried(record)
        elif kind is r.LeaseReleased:
            self.due_ms = record.due_ms
        else:
            operator = self.ended == "ActivityDeadLettered" and kind is not r.ActivityDeadLettered
            assert operator or not self.ended, "a second end in one generation"
            if kind is r.ActivityDeadLettered:
                assert record.attempt == self.options.retry.max_attempts == self.attempt
            elif kind is r.ActivityTaskCompleted and not operator:
                assert self.lease is not None
                assert (record.generation, record.grant) == (self.generation, self.grant)
            self.ended = kind.__name__
        self.lease = None

    def _retried(self, record: r.RetryScheduled) -> None:
        policy, failure = self.options.retry, record.failure
        assert record.attempt == self.attempt < policy.max_attempts
        assert record.due_ms == record.at_ms + record.delay_ms
        bound = backoff_ms(policy, record.attempt)
        if failure.type == WORKER_DIED:
            assert 0 <= record.delay_ms <= bound
        elif failure.retry_after_ms is not None:
            assert record.delay_ms == max(failure.retry_after_ms, record.delay_ms)
            assert record.delay_ms < max(bound, failure.retry_after_ms + 1)
        else:
            assert min(policy.min_interval_ms, bound) <= record.delay_ms < bound
        close_ms = self.options.schedule_to_close_ms
        assert not close_ms or record.due_ms < record.at_ms + close_ms
        self.attempt, self.due_ms = record.attempt + 1, record.due_ms


def take_back(
    trails: dict[tuple[str, str], Trail],
    again: dict[tuple[str, str], tuple[int, int]],
    workflow_id: str,
    record: r.WorkflowReset,
) -> None:
    """Nothing is leased behind a reset, and no token of before can come again."""
    state = msgspec.msgpack.decode(record.state, type=Execution)
    before = {name: trail for name, trail in trails.items() if name[0] == workflow_id}
    for name in before:
        del trails[name]
    fences = {} if state.more is None else dict(state.more.again)
    for one in state.activities.values():
        assert one.lease is None
        trail = trails[workflow_id, one.activity_id] = Trail(one)
        trail.due_ms = record.at_ms
        fences[one.activity_id] = one.generation, one.grant
        trail.generation, trail.grant = fences[one.activity_id]
    for name, trail in before.items():
        generation, grant = fences[name[1]]
        assert generation > trail.generation
        assert grant >= trail.grant
    again |= {(workflow_id, activity_id): fence for activity_id, fence in fences.items()}


def check_log(rows: Iterable[CommitRow]) -> None:
    trails: dict[tuple[str, str], Trail] = {}
    again: dict[tuple[str, str], tuple[int, int]] = {}
    closed: set[str] = set()
    last_hash = None
    last = (0, 0, 0)
    last_event: dict[str, int] = {}
    for row in rows:
        body = decode_body(row.body)
        assert (body.n, body.epoch, body.at_ms) == (row.n, row.epoch, row.at_ms)
        assert row.n == last[0] + 1
        assert (row.epoch, row.at_ms) >= last[1:]
        assert last_hash is None or row.previous_hash == last_hash
        assert row.hash == next_hash(row.previous_hash, row.body)
        last, last_hash = (row.n, row.epoch, row.at_ms), row.hash
        for group in body.groups:
            for record in group.records:
                if isinstance(record, r.WorkflowReset):
                    closed.discard(group.workflow_id)
                    take_back(trails, again, group.workflow_id, record)
                assert group.workflow_id not in closed
                event_id = getattr(record, "event_id", None)
                if event_id is not None:
                    step = 1 if getattr(record, "started_ms", None) is None else 2
                    assert event_id == last_event.get(group.workflow_id, 0) + step
                    last_event[group.workflow_id] = event_id
                name = (group.workflow_id, getattr(record, "activity_id", ""))
                if isinstance(record, r.ActivityTaskScheduled):
                    assert name not in trails
                    trail = trails[name] = Trail(record)
                    trail.generation, trail.grant = again.pop(name, (1, 0))
                elif name[1] and not getattr(record, "noop", False):
                    trails[name].take(record)
                elif type(record) in r.CLOSING_TYPES:
                    closed.add(group.workflow_id)
