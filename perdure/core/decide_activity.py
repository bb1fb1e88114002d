"""Judge the commands about one activity: spec/activities.md as functions.

Each names the grant (or generation) that it is about. What is not about the live one changes nothing.
"""

from __future__ import annotations

from perdure.core.commands import (
    CompleteActivity,
    CompleteDeadLetter,
    Deadline,
    Done,
    EndLease,
    ExpireLease,
    FailActivity,
    FailDeadLetter,
    GrantLease,
    RecordHeartbeat,
    RedriveDeadLetter,
    Refusal,
    ReleaseActivity,
    TimeOutActivity,
)
from perdure.core.facts import Decision, Facts, refuse
from perdure.core.ids import Address
from perdure.core.limits import UNCHARGED_IN_A_ROW_MAX
from perdure.core.records import (
    ActivityDeadLettered,
    ActivityRedriven,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    HeartbeatRecorded,
    LeaseGranted,
    LeaseReleased,
    Payload,
    Record,
    RetryScheduled,
)
from perdure.core.state import Activity, ActivityState, Execution, Lease
from perdure.failures import (
    HEARTBEAT_TIMEOUT,
    SCHEDULE_TO_CLOSE_TIMEOUT,
    SCHEDULE_TO_START_TIMEOUT,
    START_TO_CLOSE_TIMEOUT,
    WORKER_DIED,
    Failure,
    engine_failure,
)
from perdure.policy import matches_non_retryable, retry_delay_ms

STALE = "the token is not live: its attempt has ended, or another one has begun"
DROPPED = "Dropped"
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
    if now_ms < activity.due_ms:
        return refuse("FAILED_PRECONDITION", "too early", activity.due_ms)
    overdue = _overdue(activity, now_ms)
    if overdue is not None:
        return _with_refusal(_closed(execution, activity, overdue, facts), "a deadline has passed")
    options = activity.options
    ends_ms = now_ms + options.start_to_close_ms
    close_ms = activity.schedule_to_close_at_ms
    if close_ms is not None:
        ends_ms = min(ends_ms, close_ms)
    deadline_ms = min(now_ms + (options.heartbeat_ms or options.start_to_close_ms), ends_ms)
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
    )
    return Decision((record,), Done())


# --- reports ----------------------------------------------------------------
def complete(execution: Execution, command: CompleteActivity, facts: Facts) -> Decision:
    """The result of the live attempt; of a closed one only the very same report again is no error."""
    live = _live(execution, facts.address)
    if live is None:
        event = _closing(facts)
        if isinstance(event, ActivityTaskCompleted) and event.result == command.result:
            return Decision((), Done())
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    if facts.now_ms > lease.attempt_deadline_ms:
        return _with_refusal(_timed_out(execution, activity, lease, facts), STALE)
    record = ActivityTaskCompleted(
        event_id=execution.last_event_id + 2,
        at_ms=facts.now_ms,
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
    if facts.now_ms > lease.attempt_deadline_ms:
        return _with_refusal(_timed_out(execution, activity, lease, facts, news), STALE)
    return _failed(execution, activity, command.failure, facts, news)


def _failed_again(execution: Execution, command: FailActivity, facts: Facts) -> Decision:
    """The answer to a failure that is not about the live attempt: that of the first time, or stale."""
    address = facts.address
    activity = None if address is None else execution.activities.get(address.activity_id)
    end = None if activity is None else activity.last_end
    if address is not None and end is not None and end.how == "failed":
        reported = activity is not None and activity.last_failure == command.failure
        if (end.generation, end.grant) == (address.generation, address.grant) and reported:
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
        address = facts.address
        activity = None if address is None else execution.activities.get(address.activity_id)
        end = None if activity is None else activity.last_end
        if address is not None and end is not None and end.how == "released":
            if (end.generation, end.grant) == (address.generation, address.grant):
                return Decision((), Done())
        return refuse("FAILED_PRECONDITION", STALE)
    activity, _ = live
    return Decision((_released(activity, command, facts, command.reason, 0),), Done())


def heartbeat(execution: Execution, command: RecordHeartbeat, facts: Facts) -> Decision:
    """Move the deadline to now + heartbeat_ms, and keep the newest details."""
    live = _live(execution, facts.address)
    if live is None:
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    now_ms = facts.now_ms
    if now_ms > lease.attempt_deadline_ms:
        return _with_refusal(_timed_out(execution, activity, lease, facts), STALE)
    beat = command.beat or activity.beat + 1
    if beat <= activity.beat:
        return Decision((), Deadline(lease.deadline_ms))
    length_ms = activity.options.heartbeat_ms
    deadline_ms = lease.deadline_ms
    if length_ms:
        moved_ms = min(now_ms + length_ms, lease.attempt_deadline_ms)
        deadline_ms = max(deadline_ms, moved_ms)
    record = HeartbeatRecorded(
        at_ms=now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        beat=beat,
        details=command.details if command.has_details else activity.details,
        deadline_ms=deadline_ms,
    )
    return Decision((record,), Deadline(deadline_ms))


# --- ends that nobody reported ----------------------------------------------
def expire(execution: Execution, command: ExpireLease, facts: Facts) -> Decision:
    """The live attempt's deadline passed without a word."""
    live = _live(execution, command.address)
    if live is None:
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    if facts.now_ms < lease.deadline_ms:
        return refuse("FAILED_PRECONDITION", "too early", lease.deadline_ms)
    news = (command.details, command.beat)
    return Decision(_timed_out(execution, activity, lease, facts, news), Done())


def end(execution: Execution, command: EndLease, facts: Facts) -> Decision:
    """The live attempt's session is gone, or never got the task."""
    live = _live(execution, command.address)
    if live is None:
        return refuse("FAILED_PRECONDITION", STALE)
    activity, lease = live
    if command.reason == "undelivered":
        uncharged = activity.uncharged_in_a_row
        return Decision((_released(activity, command, facts, command.reason, uncharged),), Done())
    restarts = activity.uncharged_in_a_row
    if command.reason == "node_restart" and restarts < UNCHARGED_IN_A_ROW_MAX:
        record = _released(activity, command, facts, command.reason, restarts + 1)
        return Decision((record,), Done())
    failure = engine_failure(WORKER_DIED, f"worker {lease.worker_id} ended without a report")
    return _failed(execution, activity, failure, facts, (command.details, command.beat))


def time_out(execution: Execution, command: TimeOutActivity, facts: Facts) -> Decision:
    """A deadline of the caller passed: the workflow sees it."""
    activity = execution.activities.get(command.activity_id)
    if activity is None or activity.generation != command.generation:
        return refuse("FAILED_PRECONDITION", "the activity is not open in this generation")
    failure = _overdue(activity, facts.now_ms)
    if failure is None:
        return refuse("FAILED_PRECONDITION", "no deadline of this activity has passed")
    return Decision(_closed(execution, activity, failure, facts), Done())


def _overdue(activity: Activity, now_ms: int) -> Failure | None:
    """The failure that a passed deadline of the caller is, or None. A dead letter waits for ever."""
    if activity.state is ActivityState.DEAD_LETTERED:
        return None
    close_ms = activity.schedule_to_close_at_ms
    start_ms = activity.options.schedule_to_start_ms
    waits = activity.state is ActivityState.SCHEDULED and not activity.leased_in_generation
    if waits and start_ms and now_ms >= activity.generation_ms + start_ms:
        if close_ms is None or activity.generation_ms + start_ms <= close_ms:
            return engine_failure(
                SCHEDULE_TO_START_TIMEOUT, f"no worker took it within {start_ms} ms"
            )
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


def _timed_out(
    execution: Execution,
    activity: Activity,
    lease: Lease,
    facts: Facts,
    news: tuple[Payload | None, int] = (None, 0),
) -> tuple[Record, ...]:
    """The records of an attempt whose time is over: which of the three deadlines it was."""
    close_ms = activity.schedule_to_close_at_ms
    if close_ms is not None and facts.now_ms >= close_ms:
        failure = _schedule_to_close(activity, _last_of_generation(activity))
        return _closed(execution, activity, failure, facts)
    options = activity.options
    if facts.now_ms >= lease.attempt_deadline_ms:
        failure = engine_failure(
            START_TO_CLOSE_TIMEOUT, f"no report within {options.start_to_close_ms} ms"
        )
    else:
        failure = engine_failure(
            HEARTBEAT_TIMEOUT, f"no heartbeat within {options.heartbeat_ms} ms"
        )
    return _failed(execution, activity, failure, facts, news).records


# --- what a failed attempt leads to -----------------------------------------
def _failed(
    execution: Execution,
    activity: Activity,
    failure: Failure,
    facts: Facts,
    news: tuple[Payload | None, int],
) -> Decision:
    """The table of spec/activities.md: closed, dead-lettered, or due again; tried in this order."""
    policy = activity.options.retry
    if failure.non_retryable or matches_non_retryable(policy, failure):
        return Decision(_closed(execution, activity, failure, facts), Done(DROPPED))
    details, beat = news
    worker_id = activity.lease.worker_id if activity.lease is not None else ""
    if activity.attempt >= policy.max_attempts:
        dead = ActivityDeadLettered(
            event_id=execution.last_event_id + 1,
            at_ms=facts.now_ms,
            activity_id=activity.activity_id,
            generation=activity.generation,
            grant=activity.grant,
            attempt=activity.attempt,
            failure=failure,
            worker_id=worker_id,
            details=details,
            beat=beat,
        )
        return Decision((dead,), Done(ActivityState.DEAD_LETTERED.value))
    delay_ms = _delay_ms(activity, failure, facts)
    due_ms = facts.now_ms + delay_ms
    close_ms = activity.schedule_to_close_at_ms
    if close_ms is not None and due_ms >= close_ms:
        closing = _schedule_to_close(activity, failure)
        return Decision(_closed(execution, activity, closing, facts), Done(DROPPED))
    retry = RetryScheduled(
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        failure=failure,
        delay_ms=delay_ms,
        due_ms=due_ms,
        worker_id=worker_id,
        details=details,
        beat=beat,
    )
    return Decision((retry,), Done(ActivityState.RETRYING.value))


def _delay_ms(activity: Activity, failure: Failure, facts: Facts) -> int:
    """Full jitter of the backoff, or what the failure asked for; none after the first death in a row."""
    if failure.type == WORKER_DIED and activity.deaths_in_a_row == 0:
        return 0
    return retry_delay_ms(
        activity.options.retry,
        activity.attempt,
        facts.draw(),
        facts.jitter,
        failure.retry_after_ms,
    )


def _closed(
    execution: Execution, activity: Activity, failure: Failure, facts: Facts
) -> tuple[Record, ...]:
    """The activity's end that the workflow sees: two events where an attempt had begun, else one."""
    lease = activity.lease
    started_ms = lease.granted_ms if lease is not None else activity.last_granted_ms
    if not activity.leased_in_generation:
        started_ms = None
    record = ActivityTaskFailed(
        event_id=execution.last_event_id + (1 if started_ms is None else 2),
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        failure=failure,
        started_ms=started_ms,
        worker_id=lease.worker_id if lease is not None else "",
    )
    return (record,)


# --- dead letters -----------------------------------------------------------
def redrive(execution: Execution, command: RedriveDeadLetter, facts: Facts) -> Decision:
    """Attempt 1 again with the full policy, in a new generation."""
    activity = _dead(execution, command.activity_id)
    if activity is None:
        return _resolved_before(command, facts, ActivityRedriven)
    record = ActivityRedriven(
        event_id=execution.last_event_id + 1,
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation + 1,
        request_id=command.request_id,
    )
    return Decision((record,), Done())


def fail_dead_letter(execution: Execution, command: FailDeadLetter, facts: Facts) -> Decision:
    """The workflow sees the last failure."""
    activity = _dead(execution, command.activity_id)
    failure = None if activity is None else activity.last_failure
    if activity is None or failure is None:
        return _resolved_before(command, facts, ActivityTaskFailed)
    record = ActivityTaskFailed(
        event_id=execution.last_event_id + 1,
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        failure=failure,
        started_ms=None,
        worker_id="",
        request_id=command.request_id,
    )
    return Decision((record,), Done())


def complete_dead_letter(
    execution: Execution, command: CompleteDeadLetter, facts: Facts
) -> Decision:
    """An operator did the work by hand: the workflow sees this result."""
    activity = _dead(execution, command.activity_id)
    if activity is None:
        return _resolved_before(command, facts, ActivityTaskCompleted)
    record = ActivityTaskCompleted(
        event_id=execution.last_event_id + 1,
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        result=command.result,
        started_ms=None,
        worker_id="",
        request_id=command.request_id,
    )
    return Decision((record,), Done())


def _dead(execution: Execution, activity_id: str) -> Activity | None:
    activity = execution.activities.get(activity_id)
    if activity is None or activity.state is not ActivityState.DEAD_LETTERED:
        return None
    return activity


def _resolved_before(
    command: RedriveDeadLetter | FailDeadLetter | CompleteDeadLetter,
    facts: Facts,
    kind: type[Record],
) -> Decision:
    """The same request again is answered as the first time; anything else is no dead letter."""
    if command.request_id is not None:
        event = facts.requested_event(command.request_id)
        if event is not None:
            same = isinstance(event, kind) and _about(event) == command.activity_id
            if same and isinstance(event, ActivityTaskCompleted):
                same = isinstance(command, CompleteDeadLetter) and event.result == command.result
            if same:
                return Decision((), Done())
            return refuse(
                "FAILED_PRECONDITION",
                f"request_id {command.request_id!r} was used with other arguments",
            )
    return refuse("NOT_FOUND", f"activity {command.activity_id!r} is no dead letter")


def _about(event: Record) -> str:
    return getattr(event, "activity_id", "")


# --- shared -----------------------------------------------------------------
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


def _closing(facts: Facts) -> Record | None:
    """The event by which the grant at hand closed its activity, or None."""
    address = facts.address
    if address is None:
        return None
    event = facts.closing_event(address.activity_id)
    if not isinstance(event, ActivityTaskCompleted | ActivityTaskFailed):
        return None
    if (event.generation, event.grant) != (address.generation, address.grant):
        return None
    return None if event.started_ms is None else event


def _released(
    activity: Activity,
    command: ReleaseActivity | EndLease,
    facts: Facts,
    reason: str,
    uncharged: int,
) -> LeaseReleased:
    return LeaseReleased(
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        reason=reason,
        due_ms=facts.now_ms,
        uncharged=uncharged,
        details=command.details,
        beat=command.beat,
    )


def _with_refusal(records: tuple[Record, ...], message: str) -> Decision:
    """A refusal that brings a passed deadline to light."""
    return Decision(records, Refusal("FAILED_PRECONDITION", message))
