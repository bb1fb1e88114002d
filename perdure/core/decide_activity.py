"""Judge the commands about one grant of an activity: leases, reports, and ends without a report.

Each names the grant (or generation) that it is about; what is not about the live one changes
nothing. What an end leads to is in attempt_ends.py.
"""

from __future__ import annotations

from perdure.core.attempt_ends import (
    DROPPED,
    WAIT,
    closed,
    failed,
    grace_ms,
    handed_back,
    overdue,
    timed_out,
    too_late,
    with_refusal,
)
from perdure.core.commands import (
    CompleteActivity,
    Deadline,
    DetachLease,
    Done,
    EndLease,
    ExpireLease,
    FailActivity,
    GrantLease,
    Hire,
    RecordHeartbeat,
    ReleaseActivity,
    TimeOutActivity,
)
from perdure.core.facts import Decision, Facts, Past, refuse
from perdure.core.ids import Address
from perdure.core.limits import UNCHARGED_IN_A_ROW_MAX
from perdure.core.records import (
    ActivityOptions,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    HeartbeatRecorded,
    LeaseDetached,
    LeaseGranted,
    Payload,
    Record,
)
from perdure.core.state import (
    Activity,
    ActivityState,
    Execution,
    LastEnd,
    Lease,
    moved_deadlines,
)
from perdure.failures import WORKER_DIED, engine_failure

STALE = "the token is not live: its attempt has ended, or another one has begun"
WAITING = (ActivityState.SCHEDULED, ActivityState.RETRYING)


def grant(execution: Execution, command: GrantLease, facts: Facts) -> Decision:
    """A lease for attempt n, where that is the one that is due."""
    activity = execution.activities.get(command.activity_id)
    if (
        activity is None
        or activity.state not in WAITING
        or (activity.generation, activity.grant + 1, activity.attempt)
        != (command.generation, command.grant, command.attempt)
    ):
        return refuse("FAILED_PRECONDITION", "this attempt is not waiting for a worker")
    now_ms = facts.now_ms
    if execution.is_paused or facts.standing.is_paused(
        activity.options.task_queue, activity.activity_type
    ):
        return refuse("FAILED_PRECONDITION", "an operator has paused it")
    if now_ms < activity.due_ms:
        return refuse("FAILED_PRECONDITION", "too early", activity.due_ms)
    passed = overdue(activity, now_ms)
    if passed is not None:
        return with_refusal(closed(execution, activity, passed, facts), "a deadline has passed")
    deadline_ms, ends_ms = lease_ends(activity.options, activity.schedule_to_close_at_ms, now_ms)
    record = LeaseGranted(
        at_ms=now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=command.grant,
        attempt=activity.attempt,
        worker_id=command.worker_id,
        session=command.session,
        deadline_ms=deadline_ms,
        attempt_deadline_ms=ends_ms,
        poll_id=command.poll_id,
        stall_ms=facts.stall_ms,
    )
    return Decision((record,), Done())


def may_hire(execution: Execution, activity_type: str, queue: str, facts: Facts) -> bool:
    """Whether a worker may have a lease for the asking: not where the scheduler has to count it."""
    return not (
        execution.is_paused
        or facts.standing.rules.limits_starts(queue, activity_type)
        or facts.standing.is_paused(queue, activity_type)
    )


def lease_ends(options: ActivityOptions, close_ms: int | None, now_ms: int) -> tuple[int, int]:
    """Until when a lease granted now lasts, heartbeats apart, and when its attempt must be over."""
    ends_ms = now_ms + options.start_to_close_ms
    if close_ms is not None:
        ends_ms = min(ends_ms, close_ms)
    return min(now_ms + (options.heartbeat_ms or options.start_to_close_ms), ends_ms), ends_ms


def hired(activity_id: str, options: ActivityOptions, hire: Hire, facts: Facts) -> LeaseGranted:
    """The first lease of an activity that is scheduled in this very commit."""
    now_ms = facts.now_ms
    length_ms = options.schedule_to_close_ms
    close_ms = now_ms + length_ms if length_ms else None
    deadline_ms, ends_ms = lease_ends(options, close_ms, now_ms)
    return LeaseGranted(
        at_ms=now_ms,
        activity_id=activity_id,
        generation=1,
        grant=1,
        attempt=1,
        worker_id=hire.worker_id,
        session=hire.session,
        deadline_ms=deadline_ms,
        attempt_deadline_ms=ends_ms,
        stall_ms=facts.stall_ms,
    )


# --- reports ----------------------------------------------------------------
def complete(execution: Execution, command: CompleteActivity, facts: Facts) -> Decision:
    """The result of the live attempt; of a closed one only the very same again is no error."""
    live = _live(execution, facts.address)
    if live is None:
        event = _closing(facts)
        if isinstance(event, ActivityTaskCompleted) and event.result == command.result:
            return Decision((), Done())
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    if too_late(lease, activity, facts):
        return with_refusal(timed_out(execution, activity, lease, facts), STALE)
    record = ActivityTaskCompleted(
        event_id=execution.last_event_id + 2,
        at_ms=command.at_ms or facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        result=command.result,
        started_ms=lease.granted_ms,
        worker_id=lease.worker_id,
    )
    return Decision((record,), Done())


def fail(execution: Execution, command: FailActivity, facts: Facts) -> Decision:
    """The failure of the live attempt: closed, dead-lettered, or due again at a time."""
    live = _live(execution, facts.address)
    if live is None:
        return _failed_again(execution, command, facts)
    activity, lease = live
    news = (command.details, command.beat)
    if too_late(lease, activity, facts):
        return with_refusal(timed_out(execution, activity, lease, facts, news), STALE)
    return failed(execution, activity, command.failure, facts, news)


def _failed_again(execution: Execution, command: FailActivity, facts: Facts) -> Decision:
    """The answer to a failure that is not of the live attempt: that of the first time, or stale."""
    ended = _ended(execution, facts.address)
    if ended is not None:
        activity, end = ended
        if end.how == "failed" and activity.last_failure == command.failure:
            return Decision((), Done(end.state))
    event = _closing(facts)
    if isinstance(event, ActivityTaskFailed) and command.failure in (
        event.failure,
        event.failure.cause,
    ):
        return Decision((), Done(DROPPED))
    return refuse("FAILED_PRECONDITION", STALE)


def release(execution: Execution, command: ReleaseActivity, facts: Facts) -> Decision:
    """The attempt handed back unfinished: the same number again, at once."""
    live = _live(execution, facts.address)
    if live is None:
        ended = _ended(execution, facts.address)
        if ended is not None and ended[1].how == "released":
            return Decision((), Done())
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    news = (command.details, command.beat)
    if too_late(lease, activity, facts):
        return with_refusal(timed_out(execution, activity, lease, facts, news), STALE)
    return handed_back(execution, activity, facts, command.reason, 0, news)


def detach(execution: Execution, command: DetachLease, facts: Facts) -> Decision:
    """The attempt is left to whoever has its token: its lease lives on, without a session."""
    live = _live(execution, facts.address)
    if live is None:
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    news = (command.details, command.beat)
    if too_late(lease, activity, facts):
        return with_refusal(timed_out(execution, activity, lease, facts, news), STALE)
    if lease.session is None:
        return Decision((), Done())
    records: list[Record] = []
    if command.beat > activity.beat:
        records.append(_beat(activity, lease, facts, command.beat, command.details))
    named = (facts.now_ms, activity.activity_id, activity.generation, activity.grant)
    records.append(LeaseDetached(*named))
    return Decision(tuple(records), Done())


def heartbeat(execution: Execution, command: RecordHeartbeat, facts: Facts) -> Decision:
    """Move the deadline to now + heartbeat_ms, and keep the newest details."""
    live = _live(execution, facts.address)
    if live is None:
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    if too_late(lease, activity, facts):
        return with_refusal(timed_out(execution, activity, lease, facts), STALE)
    beat = command.beat or activity.beat + 1
    if beat <= activity.beat:
        deadline_ms, _ = moved_deadlines(lease, activity, facts.stall_ms)
        return Decision((), _deadline(activity, deadline_ms))
    details = command.details if command.has_details else activity.details
    record = _beat(activity, lease, facts, beat, details)
    return Decision((record,), _deadline(activity, record.deadline_ms))


def _beat(
    activity: Activity, lease: Lease, facts: Facts, beat: int, details: Payload | None
) -> HeartbeatRecorded:
    now_ms = facts.now_ms
    deadline_ms, attempt_deadline_ms = moved_deadlines(lease, activity, facts.stall_ms)
    length_ms = activity.options.heartbeat_ms
    if length_ms:
        deadline_ms = max(deadline_ms, min(now_ms + length_ms, attempt_deadline_ms))
    return HeartbeatRecorded(
        at_ms=now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        beat=beat,
        details=details,
        deadline_ms=deadline_ms,
        stall_ms=facts.stall_ms,
    )


def _deadline(activity: Activity, deadline_ms: int) -> Deadline:
    return Deadline(deadline_ms, activity.cancel_requested == WAIT)


# --- ends that nobody reported ----------------------------------------------
def expire(execution: Execution, command: ExpireLease, facts: Facts) -> Decision:
    """The live attempt's deadline passed without a word."""
    live = _live(execution, command.address)
    if live is None:
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    deadline_ms, _ = moved_deadlines(lease, activity, facts.stall_ms)
    over_ms = max(deadline_ms, grace_ms(lease, activity, facts))
    if facts.now_ms < over_ms:
        return refuse("FAILED_PRECONDITION", "too early", over_ms)
    news = (command.details, command.beat)
    return Decision(timed_out(execution, activity, lease, facts, news), Done())


def end(execution: Execution, command: EndLease, facts: Facts) -> Decision:
    """The live attempt's session is gone, or never got the task."""
    live = _live(execution, command.address)
    if live is None:
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    reason, news = command.reason, (command.details, command.beat)
    if (lease.session is None) is not command.is_polled:
        # An attempt that was left open since, too: whoever has its token may report.
        whose = "no session" if lease.session is None else "a session"
        return refuse("FAILED_PRECONDITION", f"the lease belongs to {whose}")
    restarts = activity.uncharged_in_a_row
    if reason == "undelivered":
        return handed_back(execution, activity, facts, reason, restarts, news)
    if reason == "node_restart" and restarts < UNCHARGED_IN_A_ROW_MAX:
        return handed_back(execution, activity, facts, reason, restarts + 1, news)
    failure = engine_failure(WORKER_DIED, f"worker {lease.worker_id} ended without a report")
    return failed(execution, activity, failure, facts, news)


def time_out(execution: Execution, command: TimeOutActivity, facts: Facts) -> Decision:
    """A deadline of the caller passed: the workflow sees it."""
    activity = execution.activities.get(command.activity_id)
    if activity is None or activity.generation != command.generation:
        return refuse("FAILED_PRECONDITION", "the activity is not open in this generation")
    failure = overdue(activity, facts.now_ms)
    if failure is None:
        return refuse("FAILED_PRECONDITION", "no deadline of this activity has passed")
    return Decision(closed(execution, activity, failure, facts), Done())


# --- the live grant ---------------------------------------------------------
def foresees(execution: Execution, command: CompleteActivity, facts: Facts) -> bool:
    """Whether this completion becomes the very event that the worker ran the workflow on from.

    Its time may lie in the past, not before the grant: what the workflow saw since is nothing.
    """
    live, following = _live(execution, facts.address), command.following
    return (
        live is not None
        and following is not None
        and following.workflow_id == execution.workflow_id
        and following.consumed == execution.last_event_id + 2
        and live[1].granted_ms <= command.at_ms <= facts.now_ms
    )


def became(command: CompleteActivity, address: Address | None, past: Past) -> bool:
    """Whether this completion, said before, became the very event that the worker ran on from.

    It may have become another: what followed was dropped then, and is not to count now.
    """
    following, event = command.following, address and past.closing_event(address.activity_id)
    return (
        following is not None
        and isinstance(event, ActivityTaskCompleted)
        and (event.event_id, event.at_ms) == (following.consumed, command.at_ms)
    )


def _live(execution: Execution, address: Address | None) -> tuple[Activity, Lease] | None:
    """The activity and its lease where `address` is its live grant."""
    if address is None:
        return None
    activity = execution.activities.get(address.activity_id)
    if activity is None or activity.lease is None:
        return None
    if (activity.generation, activity.grant) != (address.generation, address.grant):
        return None
    return activity, activity.lease


def _ended(execution: Execution, address: Address | None) -> tuple[Activity, LastEnd] | None:
    """The activity and how its newest grant ended, where `address` is that grant.

    Once there is a newer grant or generation, a repeat is as stale as anything else.
    """
    activity = None if address is None else execution.activities.get(address.activity_id)
    if address is None or activity is None or activity.last_end is None:
        return None
    end = activity.last_end
    named = (address.generation, address.grant)
    if named != (end.generation, end.grant) or named != (activity.generation, activity.grant):
        return None
    return activity, end


def _closing(facts: Facts) -> Record | None:
    """The event by which the grant at hand closed its activity, or None."""
    address = facts.address
    if address is None:
        return None
    event = facts.past.closing_event(address.activity_id)
    if not isinstance(event, ActivityTaskCompleted | ActivityTaskFailed):
        return None
    if (event.generation, event.grant) != (address.generation, address.grant):
        return None
    return None if event.started_ms is None else event


def waits(execution: Execution, activity_id: str) -> bool:
    """True where the activity waits for a worker, now or after its backoff."""
    activity = execution.activities.get(activity_id)
    return activity is not None and activity.state in WAITING
