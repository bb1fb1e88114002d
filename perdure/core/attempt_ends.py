"""What the end of an attempt leads to: spec/activities.md, "What a failure does" and "Timeouts".

`failed` is the table, tried in its order. The rest are ends that nobody reported.
"""

from __future__ import annotations

from perdure.core.commands import Done, Refusal
from perdure.core.facts import Decision, Facts
from perdure.core.records import (
    ActivityDeadLettered,
    ActivityTaskFailed,
    LeaseReleased,
    Payload,
    Record,
    RetryScheduled,
)
from perdure.core.state import (
    Activity,
    ActivityState,
    Execution,
    Lease,
    graced_ms,
    moved_deadlines,
)
from perdure.failures import (
    CANCELLED,
    HEARTBEAT_TIMEOUT,
    SCHEDULE_TO_CLOSE_TIMEOUT,
    SCHEDULE_TO_START_TIMEOUT,
    START_TO_CLOSE_TIMEOUT,
    WORKER_DIED,
    Failure,
    engine_failure,
)
from perdure.policy import matches_non_retryable, retry_delay_ms

DROPPED = "Dropped"
WAIT = "wait"  # Mode of cancelling: the attempt that runs is the last.
News = tuple[Payload | None, int]  # Details and beat of a heartbeat that came with the end.


# --- a failed attempt -------------------------------------------------------
def failed(
    execution: Execution, activity: Activity, failure: Failure, facts: Facts, news: News
) -> Decision:
    """Closed, dead-lettered, or due again: the first of these whose condition holds."""
    policy = activity.options.retry
    if activity.cancel_requested == WAIT:
        return Decision(closed(execution, activity, failure, facts), Done(DROPPED))
    if failure.non_retryable or matches_non_retryable(policy, failure):
        return Decision(closed(execution, activity, failure, facts), Done(DROPPED))
    if activity.attempt >= policy.max_attempts:
        if activity.options.on_exhausted == "fail":
            return Decision(closed(execution, activity, failure, facts), Done(DROPPED))
        dead = _dead_lettered(execution, activity, failure, facts, news)
        return Decision((dead,), Done(ActivityState.DEAD_LETTERED.value))
    delay_ms = _delay_ms(activity, failure, facts)
    due_ms = facts.now_ms + delay_ms
    close_ms = activity.schedule_to_close_at_ms
    if close_ms is not None and due_ms >= close_ms:
        ended = _schedule_to_close(activity, failure)
        return Decision(closed(execution, activity, ended, facts), Done(DROPPED))
    retry = RetryScheduled(
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        failure=failure,
        delay_ms=delay_ms,
        due_ms=due_ms,
        worker_id=_holder(activity),
        details=news[0],
        beat=news[1],
    )
    return Decision((retry,), Done(ActivityState.RETRYING.value))


def _dead_lettered(
    execution: Execution, activity: Activity, failure: Failure, facts: Facts, news: News
) -> ActivityDeadLettered:
    return ActivityDeadLettered(
        event_id=execution.last_event_id + 1,
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        failure=failure,
        worker_id=_holder(activity),
        details=news[0],
        beat=news[1],
    )


def _holder(activity: Activity) -> str:
    return activity.lease.worker_id if activity.lease is not None else ""


def _delay_ms(activity: Activity, failure: Failure, facts: Facts) -> int:
    """Full jitter of the backoff, or what the failure asked for; none after a first death."""
    if failure.type == WORKER_DIED and activity.deaths_in_a_row == 0:
        return 0
    return retry_delay_ms(
        activity.options.retry,
        activity.attempt,
        facts.standing.draw(),
        facts.standing.jitter,
        failure.retry_after_ms,
    )


def closed(
    execution: Execution, activity: Activity, failure: Failure, facts: Facts
) -> tuple[Record, ...]:
    """The end that the workflow sees: two events where an attempt had begun, else one."""
    lease, begun = activity.lease, activity.leased_in_generation
    attempt, started_ms, worker_id = activity.attempt, activity.last_granted_ms, ""
    if lease is not None:
        started_ms, worker_id = lease.granted_ms, lease.worker_id
    elif not begun:
        started_ms = None
    elif activity.last_end is not None and activity.last_end.how == "failed":
        # The next attempt waits and will never be: the event is about the one that was.
        attempt -= 1
        worker_id = activity.failures_newest[-1].worker_id
    record = ActivityTaskFailed(
        event_id=execution.last_event_id + (1 if started_ms is None else 2),
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=attempt,
        failure=failure,
        started_ms=started_ms,
        worker_id=worker_id,
    )
    return (record,)


def cancelled() -> Failure:
    """Of an activity that the workflow gave up, where no attempt of it has another end."""
    return engine_failure(CANCELLED, "the workflow no longer wants it")


def handed_back(
    execution: Execution,
    activity: Activity,
    facts: Facts,
    reason: str,
    uncharged: int,
    news: News,
) -> Decision:
    """An attempt that ended uncharged: the same number again, unless nobody wants it any more."""
    if activity.cancel_requested == WAIT:
        return Decision(closed(execution, activity, cancelled(), facts), Done())
    return Decision((released(activity, facts, reason, uncharged, news),), Done())


def released(activity: Activity, facts: Facts, reason: str, uncharged: int, news: News) -> Record:
    """The attempt came back and does not count: the same number again, at once."""
    return LeaseReleased(
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        reason=reason,
        due_ms=facts.now_ms,
        uncharged=uncharged,
        details=news[0],
        beat=news[1],
    )


# --- deadlines --------------------------------------------------------------
def grace_ms(lease: Lease, activity: Activity, facts: Facts) -> int:
    """Until when a lease of before this history's beginning lasts in any case; 0 for others."""
    standing = facts.standing
    return graced_ms(lease, activity, standing.began_ms, standing.recovery_grace_ms)


def too_late(lease: Lease, activity: Activity, facts: Facts) -> bool:
    """Whether a report on the live lease comes after the attempt's whole time."""
    _, attempt_deadline_ms = moved_deadlines(lease, activity, facts.stall_ms)
    return facts.now_ms > max(attempt_deadline_ms, grace_ms(lease, activity, facts))


def timed_out(
    execution: Execution, activity: Activity, lease: Lease, facts: Facts, news: News = (None, 0)
) -> tuple[Record, ...]:
    """The records of an attempt whose time is over: which of the three deadlines it was."""
    close_ms = activity.schedule_to_close_at_ms
    if close_ms is not None and facts.now_ms >= close_ms:
        failure = _schedule_to_close(activity, _last_of_generation(activity))
        return closed(execution, activity, failure, facts)
    options = activity.options
    if facts.now_ms >= moved_deadlines(lease, activity, facts.stall_ms)[1]:
        failure = engine_failure(
            START_TO_CLOSE_TIMEOUT, f"no report within {options.start_to_close_ms} ms"
        )
    else:
        failure = engine_failure(
            HEARTBEAT_TIMEOUT, f"no heartbeat within {options.heartbeat_ms} ms"
        )
    return failed(execution, activity, failure, facts, news).records


def overdue(activity: Activity, now_ms: int) -> Failure | None:
    """What a passed deadline of the caller is, or None. A dead letter waits for ever."""
    if activity.state is ActivityState.DEAD_LETTERED:
        return None
    close_ms = activity.schedule_to_close_at_ms
    start_ms = activity.options.schedule_to_start_ms
    waits = activity.state is ActivityState.SCHEDULED and not activity.leased_in_generation
    start_at_ms = activity.generation_ms + start_ms if waits and start_ms else None
    # Where both have passed it is the one that passed first.
    if start_at_ms is not None and start_at_ms <= min(now_ms, close_ms or now_ms):
        return engine_failure(SCHEDULE_TO_START_TIMEOUT, f"no worker took it within {start_ms} ms")
    if close_ms is not None and now_ms >= close_ms:
        return _schedule_to_close(activity, _last_of_generation(activity))
    return None


def _schedule_to_close(activity: Activity, cause: Failure | None) -> Failure:
    length_ms = activity.options.schedule_to_close_ms
    return engine_failure(
        SCHEDULE_TO_CLOSE_TIMEOUT,
        f"not done within {length_ms} ms, or the next attempt could not start in time",
        cause=cause,
    )


def _last_of_generation(activity: Activity) -> Failure | None:
    newest = activity.failures_newest
    if newest and newest[-1].generation == activity.generation:
        return newest[-1].failure
    return None


def with_refusal(records: tuple[Record, ...], message: str) -> Decision:
    """A refusal that brings a passed deadline to light."""
    return Decision(records, Refusal("FAILED_PRECONDITION", message))
