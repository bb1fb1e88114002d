"""How attempts and activities end: retried, parked, completed, failed, cancelled, redriven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.auditor import names, retries
from chaos.auditor.leases import (
    UNCHARGED_MAX,
    Place,
    Record,
    check_bound,
    find,
    holds,
    let_go,
    take_details,
)
from chaos.auditor.state import DEAD, RETRYING, SCHEDULED, Activity, Closed, Workflow

FAILURES_KEPT = 20


# --- failed attempts --------------------------------------------------------
def _check_failed(
    fold: Place, workflow: Workflow, activity: Activity, attempt: int, failure: Any, at_ms: int
) -> None:
    """What holds for every charged end of an attempt that leaves the activity open."""
    if attempt != activity.attempt:
        text = f"attempt {attempt} failed, {activity.attempt} is the one that runs"
        fold.wrong(workflow, 19, activity.activity_id, text)
    if retries.is_final(activity, failure) or activity.cancel_requested == "wait":
        text = f"{failure.get('type')} is not retryable and left it open"
        fold.wrong(workflow, 20, activity.activity_id, text)
    early_ms = retries.early_ms(
        activity, failure, at_ms, (fold.began_ms, fold.grace_ms), fold.stall_ms
    )
    if early_ms:
        text = f"{failure.get('type')} {early_ms} ms before the lease is over"
        fold.wrong(workflow, 21, activity.activity_id, text)
    _check_death(fold, workflow, activity, failure)


def _check_death(fold: Place, workflow: Workflow, activity: Activity, failure: Any) -> None:
    """Where the engine says that the worker died, the lease was a worker's."""
    if retries.is_death(failure):
        check_bound(fold, workflow, activity, retries.WORKER_DIED)


def _charged(
    activity: Activity, generation: int, grant: int, attempt: int, entry: Record, state: str
) -> None:
    failure = entry[4]
    if activity.failures_first is None:
        activity.failures_first = entry
    activity.failures_newest = [*activity.failures_newest[1 - FAILURES_KEPT :], entry]
    activity.failures_count += 1
    died = failure.get("type") == retries.WORKER_DIED
    activity.deaths_in_a_row = activity.deaths_in_a_row + 1 if died else 0
    if not died or activity.uncharged_in_a_row < UNCHARGED_MAX:
        activity.uncharged_in_a_row = 0
    activity.last_end = [generation, grant, "failed", state]
    activity.lease = None
    activity.state = state


def _retry(fold: Place, workflow: Workflow, record: Record) -> None:
    _, at_ms, activity_id, generation, grant, attempt, failure = record[:7]
    delay_ms, due_ms, worker_id = record[7:10]
    activity = find(fold, workflow, activity_id, "RetryScheduled", 17)
    if activity is None or not holds(fold, workflow, activity, "RetryScheduled", generation, grant):
        return
    assert activity.lease is not None
    _check_failed(fold, workflow, activity, attempt, failure, at_ms)
    if attempt >= activity.max_attempts:
        text = f"attempt {attempt} of {activity.max_attempts} failed, and it is tried again"
        fold.wrong(workflow, 20, activity_id, text)
    problem = retries.delay_problem(activity, failure, delay_ms)
    if not problem and due_ms != at_ms + delay_ms:
        problem = f"due {due_ms - at_ms} ms later, {delay_ms} ms were drawn"
    if problem:
        fold.wrong(workflow, 25, activity_id, problem)
    if activity.close_ms is not None and due_ms >= activity.close_ms:
        fold.wrong(workflow, 20, activity_id, "the next attempt is due after the caller's deadline")
    _check_worker(fold, workflow, activity, worker_id)
    _charged(
        activity, generation, grant, attempt,
        [generation, attempt, at_ms, worker_id, failure], RETRYING,
    )  # fmt: skip
    activity.attempt = attempt + 1
    activity.due_ms = due_ms
    take_details(activity, record[10], record[11])


def _check_worker(fold: Place, workflow: Workflow, activity: Activity, worker_id: str) -> None:
    assert activity.lease is not None
    if worker_id != activity.lease[0]:
        text = f"reported by {worker_id}, the lease is {activity.lease[0]}'s"
        fold.wrong(workflow, 16, activity.activity_id, text)


def _dead(fold: Place, workflow: Workflow, record: Record) -> None:
    _, _, at_ms, activity_id, generation, grant, attempt, failure, worker_id = record[:9]
    activity = find(fold, workflow, activity_id, "ActivityDeadLettered", 29)
    if activity is None or not holds(
        fold, workflow, activity, "ActivityDeadLettered", generation, grant
    ):
        return
    _check_failed(fold, workflow, activity, attempt, failure, at_ms)
    if attempt < activity.max_attempts:
        text = f"parked after attempt {attempt} of {activity.max_attempts}"
        fold.wrong(workflow, 20, activity_id, text)
    if activity.options[7] != "park":
        fold.wrong(workflow, 20, activity_id, "parked though its options say otherwise")
    _check_worker(fold, workflow, activity, worker_id)
    _charged(
        activity, generation, grant, attempt,
        [generation, attempt, at_ms, worker_id, failure], DEAD,
    )  # fmt: skip
    activity.dead_ms = at_ms
    take_details(activity, record[9], record[10])


# --- ends -------------------------------------------------------------------
def _close(workflow: Workflow, activity: Activity, how: str, result: bytes | None = None) -> None:
    del workflow.activities[activity.activity_id]
    workflow.closed[activity.activity_id] = Closed(
        activity.activity_type, activity.grants, how, result
    )


def _asked(fold: Place, workflow: Workflow, record: Record, request_id: str | None) -> None:
    """An operator's request makes one record."""
    if request_id is None:
        return
    request = (record[0], request_id)
    if request in workflow.requests:
        text = f"request {request_id} made a second record"
        fold.wrong(workflow, 32, record[3], text)
    workflow.requests[request] = record[3]


def _completed(fold: Place, workflow: Workflow, record: Record) -> None:
    _, _, _, activity_id, generation, grant, attempt, result = record[:8]
    started_ms, worker_id, request_id = record[8:11]
    activity = find(fold, workflow, activity_id, "ActivityTaskCompleted", 29)
    if activity is None:
        return
    _asked(fold, workflow, record, request_id)
    if started_ms is None:
        if activity.state != DEAD:
            text = "completed by hand though it is no dead letter"
            fold.wrong(workflow, 31, activity_id, text)
        _close(workflow, activity, "completed by hand")
        return
    if not holds(fold, workflow, activity, "ActivityTaskCompleted", generation, grant):
        return
    if attempt != activity.attempt:
        text = f"attempt {attempt} completed, {activity.attempt} is the one that runs"
        fold.wrong(workflow, 19, activity_id, text)
    assert activity.lease is not None
    if (worker_id, started_ms) != (activity.lease[0], activity.lease[2]):
        text = f"the result is {worker_id}'s of {started_ms}, the lease is not"
        fold.wrong(workflow, 30, activity_id, text)
    _close(workflow, activity, "completed", result if result is not None else b"")


def _failed(fold: Place, workflow: Workflow, record: Record) -> None:
    _, _, at_ms, activity_id, generation, grant, attempt, failure = record[:8]
    started_ms, worker_id, request_id = record[8:11]
    activity = find(fold, workflow, activity_id, "ActivityTaskFailed", 29)
    if activity is None:
        return
    _asked(fold, workflow, record, request_id)
    if _given_up(activity, failure, started_ms):
        pass  # Nobody ran it, and nobody waits for it.
    elif activity.state == DEAD:
        last = activity.failures_newest[-1][4] if activity.failures_newest else None
        if started_ms is not None or failure != last:
            text = "a dead letter is failed with another failure than its last"
            fold.wrong(workflow, 31, activity_id, text)
    elif activity.lease is not None:
        if not holds(fold, workflow, activity, "ActivityTaskFailed", generation, grant):
            return
        if (worker_id, started_ms) != (activity.lease[0], activity.lease[2]):
            text = f"the failure is {worker_id}'s of {started_ms}, the lease is not"
            fold.wrong(workflow, 30, activity_id, text)
        if attempt != activity.attempt:
            text = f"attempt {attempt} failed, {activity.attempt} is the one that runs"
            fold.wrong(workflow, 19, activity_id, text)
        _check_death(fold, workflow, activity, failure)
        exhausted = activity.options[7] == "fail" and attempt >= activity.max_attempts
        is_given_up = activity.cancel_requested == "wait"
        final = exhausted or is_given_up or retries.is_final(activity, failure)
        if not _ends(activity, failure, at_ms) and not final:
            text = f"{failure.get('type')} closed it, and is neither final nor a deadline"
            fold.wrong(workflow, 20, activity_id, text)
    elif not _ends(activity, failure, at_ms):
        text = f"{failure.get('type')} closed it without a live lease, and no deadline had passed"
        fold.wrong(workflow, 17, activity_id, text)
    _close(workflow, activity, "failed")


def _given_up(activity: Activity, failure: Any, started_ms: int | None) -> bool:
    """Whether this is the end of what its workflow gave up while no attempt ran."""
    is_wanted = activity.cancel_requested != "wait"
    return not is_wanted and started_ms is None and failure.get("type") == "Cancelled"


def _ends(activity: Activity, failure: Any, at_ms: int) -> bool:
    """Whether this is the end by a deadline of the caller, and in its time."""
    kind = failure.get("type")
    if kind == retries.SCHEDULE_TO_START:
        limit_ms = activity.generation_ms + activity.options[4]
        return bool(activity.options[4] and not activity.leased_in_generation and at_ms >= limit_ms)
    close_ms = activity.close_ms
    if kind != retries.SCHEDULE_TO_CLOSE or close_ms is None:
        return False
    if at_ms >= close_ms:
        return True
    # Sooner only where the attempt failed and the next one would come too late.
    cause = failure.get("cause")
    if activity.lease is None or not isinstance(cause, dict):
        return False
    longest = retries.bound_ms(activity.policy, activity.attempt)
    return at_ms + max(longest, cause.get("retry_after_ms") or 0) >= close_ms


def _cancelled(fold: Place, workflow: Workflow, record: Record) -> None:
    activity = let_go(fold, workflow, record[3], "cancelled", noop=record[4])
    if activity is not None:
        _close(workflow, activity, "cancelled")


def _redriven(fold: Place, workflow: Workflow, record: Record) -> None:
    _, _, at_ms, activity_id, generation, request_id = record[:6]
    activity = find(fold, workflow, activity_id, "ActivityRedriven", 32)
    if activity is None:
        return
    _asked(fold, workflow, record, request_id)
    if activity.state != DEAD:
        fold.wrong(workflow, 32, activity_id, f"redriven while it is {activity.state}")
    if generation != activity.generation + 1:
        text = f"redriven into generation {generation}, {activity.generation + 1} is next"
        fold.wrong(workflow, 32, activity_id, text)
    activity.lease = None
    activity.state = SCHEDULED
    activity.generation = generation
    activity.generation_ms = activity.due_ms = at_ms
    activity.leased_in_generation = False
    activity.attempt = 1
    activity.dead_ms = None
    activity.redrives += 1
    activity.deaths_in_a_row = activity.uncharged_in_a_row = 0
    activity.handed_back = ""
    if len(record) > 7 and record[7]:
        activity.input, activity.input_event_id = record[6], record[1]


ENDING_RULES: dict[int, Callable[[Place, Workflow, Record], None]] = {
    names.TAGS[name]: rule
    for name, rule in {
        "ActivityTaskCompleted": _completed,
        "ActivityTaskFailed": _failed,
        "ActivityTaskCancelled": _cancelled,
        "ActivityDeadLettered": _dead,
        "ActivityRedriven": _redriven,
        "RetryScheduled": _retry,
    }.items()
}
