"""Bugs of the judge: attempts, leases, retries, dead letters."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec

from chaos.sim.bugs.patches import Patches
from perdure.core import attempt_ends, decide, decide_activity, execution, lease_table, ledger
from perdure.core.attempt_ends import released, timed_out
from perdure.core.commands import (
    CompleteActivity,
    Done,
    EndLease,
    ExpireLease,
    GrantLease,
    Hire,
    RecordHeartbeat,
)
from perdure.core.facts import Decision, Facts, refuse
from perdure.core.ids import Address, Session
from perdure.core.lease_table import LeaseTable
from perdure.core.records import (
    ActivityRedriven,
    HeartbeatRecorded,
    LeaseDetached,
    RetryScheduled,
    TimerCancelled,
    TimerFired,
)
from perdure.core.state import Activity, Execution, Lease
from perdure.core.task_queues import TaskQueues
from perdure.failures import Failure
from perdure.worker import attempts
from perdure.worker.replay import Replayer

replace = msgspec.structs.replace
_TIMEOUTS = ("HeartbeatTimeout", "StartToCloseTimeout")


# --- attempts ---------------------------------------------------------------
def expiry_not_counted(patches: Patches) -> None:
    """An attempt that timed out is tried again under its own number."""
    fold = execution._ACTIVITY_FOLDS[RetryScheduled]

    def folded(activity: Activity, record: RetryScheduled) -> None:
        fold(activity, record)
        if record.failure.type in _TIMEOUTS:
            activity.attempt = record.attempt

    patches.item(execution._ACTIVITY_FOLDS, RetryScheduled, folded)


def one_attempt_more(patches: Patches) -> None:
    """max_attempts counts the retries, not the attempts."""

    def wrap(failed: Any) -> Any:
        def once_more(
            whole: Execution, activity: Activity, failure: Failure, facts: Facts, news: Any
        ) -> Decision:
            lenient = replace(activity, attempt=max(1, activity.attempt - 1))
            found: Decision = failed(whole, lenient, failure, facts, news)
            records = tuple(replace(record, attempt=activity.attempt) for record in found.records)
            return Decision(records, found.answer)

        return once_more

    patches.around(attempt_ends, "failed", wrap)
    patches.set(decide_activity, "failed", attempt_ends.failed)


def deaths_not_charged(patches: Patches) -> None:
    """What kills its worker is given to the next one, for ever."""

    def end(whole: Execution, command: EndLease, facts: Facts) -> Decision:
        live = decide_activity._live(whole, command.address)
        if live is None:
            return refuse("FAILED_PRECONDITION", decide_activity.STALE)
        news = (command.details, command.beat)
        activity = live[0]
        uncharged = activity.uncharged_in_a_row
        record = released(activity, facts, "undelivered", uncharged, news)
        return Decision((record,), Done())

    patches.item(decide._DECIDERS, EndLease, end)


# --- guards -----------------------------------------------------------------
def late_report_counts(patches: Patches) -> None:
    """A report names its activity only: one that was late ends the attempt that runs now."""

    def live(whole: Execution, address: Address | None) -> tuple[Activity, Lease] | None:
        activity = None if address is None else whole.activities.get(address.activity_id)
        return None if activity is None or activity.lease is None else (activity, activity.lease)

    patches.set(decide_activity, "_live", live)


def rescue_without_guard(patches: Patches) -> None:
    """Who rescues looked some time ago, and writes by the id alone."""

    def expire(whole: Execution, command: ExpireLease, facts: Facts) -> Decision:
        activity = whole.activities.get(command.address.activity_id)
        if activity is None or activity.lease is None:
            return refuse("FAILED_PRECONDITION", decide_activity.STALE)
        news = (command.details, command.beat)
        return Decision(timed_out(whole, activity, activity.lease, facts, news), Done())

    expire_now = lease_table.LeaseTable._expire
    found: list[tuple[int, Any, Any]] = []

    def look(self: lease_table.LeaseTable, lease: Any) -> None:
        self._deadlines.put(lease, lease.deadline_ms + RESCUE_MS)
        found.append((lease.deadline_ms + RESCUE_MS, self, lease))

    def wrap(check: Any) -> Any:
        def rescue(self: lease_table.LeaseTable, now_ms: int) -> None:
            for due in [one for one in found if one[0] <= now_ms]:
                found.remove(due)
                if due[1] is self:
                    expire_now(self, due[2])
            check(self, now_ms)

        return rescue

    patches.item(decide._DECIDERS, ExpireLease, expire)
    patches.set(lease_table.LeaseTable, "_expire", look)
    patches.around(lease_table.LeaseTable, "check", wrap)


RESCUE_MS = 600  # Between the rescuer's look and its write.


def grant_without_guard(patches: Patches) -> None:
    """A lease is granted from a list of what waited once: it may be running by now."""

    def grant(whole: Execution, command: GrantLease, facts: Facts) -> Decision:
        activity = whole.activities.get(command.activity_id)
        if activity is None:
            return refuse("FAILED_PRECONDITION", "this attempt is not waiting for a worker")
        ends = decide_activity.lease_ends(
            activity.options, activity.schedule_to_close_at_ms, facts.now_ms
        )
        hire = Hire(command.worker_id, command.session or Session("", 0), ())
        found = decide_activity.hired(
            activity.activity_id,
            activity.options,
            hire,
            facts,
        )
        record = replace(
            found,
            generation=activity.generation,
            grant=activity.grant + 1,
            attempt=activity.attempt,
            poll_id=command.poll_id,
            session=command.session,
            deadline_ms=ends[0],
            attempt_deadline_ms=ends[1],
        )
        return Decision((record,), Done())

    patches.item(decide._DECIDERS, GrantLease, grant)


def fold_raises(patches: Patches) -> None:
    """A timer's end that meets no timer is an error, wherever it is read."""

    def gone(whole: Execution, record: TimerFired | TimerCancelled) -> None:
        del whole.timers[record.timer_id]

    for kind in (TimerFired, TimerCancelled):
        patches.item(execution._WORKFLOW_FOLDS, kind, gone)


# --- time -------------------------------------------------------------------
def heartbeat_ignored(patches: Patches) -> None:
    """Leases are ended by their age, whether their holder lives or not."""
    judge = decide._DECIDERS[RecordHeartbeat]

    def heartbeat(whole: Execution, command: RecordHeartbeat, facts: Facts) -> Decision:
        found = judge(whole, command, facts)
        records = tuple(
            replace(record, deadline_ms=whole.activities[record.activity_id].lease.deadline_ms)  # type: ignore[union-attr]
            if isinstance(record, HeartbeatRecorded)
            else record
            for record in found.records
        )
        return Decision(records, found.answer)

    patches.item(decide._DECIDERS, RecordHeartbeat, heartbeat)
    patches.nothing(lease_table.LeaseTable, "_move")


def own_stall_expires(patches: Patches) -> None:
    """A standstill of the engine's own counts as silence of the workers."""

    def unmoved(lease: Lease, activity: Activity, stall_ms: int) -> tuple[int, int]:
        return lease.deadline_ms, lease.attempt_deadline_ms

    for module in (decide_activity, attempt_ends):
        patches.set(module, "moved_deadlines", unmoved)
    patches.nothing(lease_table.LeaseTable, "_rebase")
    patches.nothing(lease_table.LeaseTable, "moved")


def no_grace_after_restart(patches: Patches) -> None:
    """What fell due while nobody could be heard has expired at the next start."""
    for module in (decide_activity, attempt_ends):
        patches.nothing(module, "grace_ms", 0)
    patches.nothing(lease_table.LeaseTable, "disturbed")


def retried_too_early(patches: Patches) -> None:
    """A retry that waits for its time is given out with everything else that is there."""
    grant = decide._DECIDERS[GrantLease]

    def eager(whole: Execution, command: GrantLease, facts: Facts) -> Decision:
        activity = whole.activities.get(command.activity_id)
        if activity is not None:
            activity.due_ms = min(activity.due_ms, facts.now_ms)
        return grant(whole, command, facts)

    def wrap(queue: Any) -> Any:
        return lambda self, entry, due_ms, at_ms: queue(self, entry, at_ms, at_ms)

    patches.item(decide._DECIDERS, GrantLease, eager)
    patches.around(TaskQueues, "_queue_activity", wrap)


def deadline_overshot(patches: Patches) -> None:
    """The next attempt is planned although it would begin behind the caller's deadline."""

    def wrap(failed: Any) -> Any:
        def onward(
            whole: Execution, activity: Activity, failure: Failure, facts: Facts, news: Any
        ) -> Decision:
            free = replace(activity, options=replace(activity.options, schedule_to_close_ms=0))
            found: Decision = failed(whole, free, failure, facts, news)
            return found

        return onward

    patches.around(attempt_ends, "failed", wrap)
    patches.set(decide_activity, "failed", attempt_ends.failed)


def jitter_above_cap(patches: Patches) -> None:
    """The jitter is added to the capped delay."""

    def wrap(delay: Any) -> Any:
        def added(policy: Any, attempt: int, drawn: float, *rest: Any) -> int:
            return int(delay(policy, attempt, 0.999999, *rest) + drawn * policy.initial_ms)

        return added

    patches.around(attempt_ends, "retry_delay_ms", wrap)


def jitter_drawn_again(patches: Patches) -> None:
    """Whoever reads a retry from the log draws its delay anew."""
    fold = execution._ACTIVITY_FOLDS[RetryScheduled]

    def folded(activity: Activity, record: RetryScheduled) -> None:
        fold(activity, record)
        drawn = (record.at_ms + record.grant) * 7_919 % 97 / 97
        activity.due_ms = record.at_ms + int(drawn * record.delay_ms)

    patches.item(execution._ACTIVITY_FOLDS, RetryScheduled, folded)


# --- dead letters -----------------------------------------------------------
def redrive_keeps_count(patches: Patches) -> None:
    """A redriven activity has its old attempts against it."""
    fold = execution._ACTIVITY_FOLDS[ActivityRedriven]

    def folded(activity: Activity, record: ActivityRedriven) -> None:
        before = activity.attempt
        fold(activity, record)
        activity.attempt = before

    patches.item(execution._ACTIVITY_FOLDS, ActivityRedriven, folded)


def redrive_under_new_key(patches: Patches) -> None:
    """What is redriven is another effect to its receiver."""

    def wrap(make: Any) -> Any:
        def context(*given: Any) -> Any:
            made = make(*given)
            if made.info.generation > 1:
                key = f"{made.info.idempotency_key}-{made.info.generation}"
                info = msgspec.structs.replace(made.info, idempotency_key=key)
                object.__setattr__(made, "info", info)
            return made

        return context

    patches.around(attempts, "task_context", wrap)


def step_from_another_past(patches: Patches) -> None:
    """What a workflow did ahead of history counts, although other events came first."""

    def foresees(whole: Execution, command: CompleteActivity, facts: Facts) -> bool:
        return decide_activity._live(whole, facts.address) is not None

    patches.set(ledger, "foresees", foresees)
    patches.set(Replayer, "awaits", property(_Awaited))


class _Awaited(str):
    """The name of whatever activity it is compared with, if a workflow waits for that."""

    _handles: Container[object]
    __hash__ = str.__hash__

    def __new__(cls, replayer: Replayer) -> _Awaited:
        made = super().__new__(cls)
        made._handles = replayer._handles
        return made

    def __eq__(self, other: object) -> bool:
        return other in self._handles

    def __ne__(self, other: object) -> bool:
        return other not in self._handles


# --- attempts that are left open ----------------------------------------------
def left_open_ends_with_its_worker(patches: Patches) -> None:
    """An attempt that was left to whoever has its token ends with its worker's session."""
    noted = LeaseTable._noted

    def note(self: LeaseTable, lease: Any, record: Any) -> None:
        if not isinstance(record, LeaseDetached):
            noted(self, lease, record)

    def end(whole: Execution, command: EndLease, facts: Facts) -> Decision:
        live = decide_activity._live(whole, command.address)
        whoever = live is not None and live[1].session is None
        return decide_activity.end(whole, replace(command, is_polled=whoever), facts)

    patches.set(LeaseTable, "_noted", note)
    patches.item(decide._DECIDERS, EndLease, end)


def death_taken_for_left_open(patches: Patches) -> None:
    """What a dead worker has run is taken for left open: it has its whole time."""

    def end(whole: Execution, command: EndLease, facts: Facts) -> Decision:
        live = decide_activity._live(whole, command.address)
        if live is None or live[1].session is None or command.reason != "worker_died":
            return decide_activity.end(whole, command, facts)
        at, activity = command.address, live[0]
        left = LeaseDetached(facts.now_ms, activity.activity_id, at.generation, at.grant)
        return Decision((left,), Done())

    patches.item(decide._DECIDERS, EndLease, end)
