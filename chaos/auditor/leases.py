"""Leases as the contract has them: which grant may follow which, what a token may do, until when.

`fold` is the caller's (chaos.auditor.fold): where and when the present record stands, and whom to
tell. A token of the log is a generation and a grant; one that is not the live lease's is stale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from chaos.auditor import names
from chaos.auditor.pauses import check_grant
from chaos.auditor.state import DEAD, LEASED, RETRYING, SCHEDULED, Activity, Workflow

Record = list[Any]
UNCHARGED_MAX = 3
REASON_RESTART = "node_restart"
REASON_UNDELIVERED = "undelivered"


class Place(Protocol):
    """What a rule needs of the fold."""

    n: int
    began_ms: int
    grace_ms: int
    stall_ms: int
    attempts: int
    scheduled: int
    skipped: int

    def wrong(self, workflow: Workflow, invariant: int, activity_id: str, what: str) -> None:
        """Report the present record."""


def let_go(
    fold: Place, workflow: Workflow, activity_id: str, how: str, *, noop: bool
) -> Activity | None:
    """The activity that its workflow lets go of, open still; None where it was closed, which the
    record says by `noop`. What it says wrongly is reported; not of what a pruned log began with.
    """
    activity = workflow.activities.get(activity_id)
    if workflow.is_partial and activity is None:
        fold.skipped += 1
    elif (activity is None) != noop:
        text = "as if it were closed" if noop else "though it is not open"
        fold.wrong(workflow, 33, activity_id, f"{how} {text}")
    return activity


def find(
    fold: Place, workflow: Workflow, activity_id: str, kind: str, number: int
) -> Activity | None:
    """The open activity. Where there is none that is reported under `number`; not in a pruned log,
    where it may have begun before.
    """
    activity = workflow.activities.get(activity_id)
    if activity is not None:
        return activity
    closed = workflow.closed.get(activity_id)
    if closed is None and workflow.is_partial:
        fold.skipped += 1
    elif closed is None:
        fold.wrong(workflow, 36, activity_id, f"{kind} of an activity that was never scheduled")
    else:
        number = 33 if closed.how == "cancelled" else number
        fold.wrong(workflow, number, activity_id, f"{kind} though it is closed ({closed.how})")
    return None


def holds(
    fold: Place, workflow: Workflow, activity: Activity, kind: str, generation: int, grant: int
) -> bool:
    """Whether this is the token of the live lease; anything else is reported."""
    live = (activity.generation, activity.grant)
    if activity.lease is not None and live == (generation, grant):
        return True
    token = f"generation {generation}, grant {grant}"
    if grant > activity.grant or grant < 1:
        fold.wrong(workflow, 18, activity.activity_id, f"{kind} bears {token}, never granted")
    elif live == (generation, grant) and kind != "HeartbeatRecorded":
        fold.wrong(workflow, 22, activity.activity_id, f"{kind} ends the lease of {token} again")
    else:
        fold.wrong(workflow, 17, activity.activity_id, f"{kind} bears {token}, which is not live")
    return False


def check_bound(fold: Place, workflow: Workflow, activity: Activity, how: str) -> None:
    """The live lease ends because of its worker (`how`): then it must be that worker's."""
    lease = activity.lease
    if lease is not None and lease[1] is None:
        who = "whoever has its token" if activity.detached_grant == activity.grant else "a client"
        text = f"it ended with a worker's session ({how}), and belongs to {who}"
        fold.wrong(workflow, 21, activity.activity_id, text)


def take_details(activity: Activity, details: bytes | None, beat: int) -> None:
    """Take over what came with a report, unless something newer is known: details never go back."""
    if beat > activity.beat:
        activity.beat = beat
        if details is not None:
            activity.details = details


def _scheduled(fold: Place, workflow: Workflow, record: Record) -> None:
    activity_id = record[3]
    again = workflow.again.pop(activity_id, None)
    before = workflow.closed.get(activity_id)
    if activity_id in workflow.activities or (before is not None and again is None):
        fold.wrong(workflow, 41, activity_id, "two activities share this id, and so a key")
    fold.scheduled += 1
    activity = workflow.activities[activity_id] = Activity(record)
    if again is not None:  # A reset has taken back the one before.
        workflow.closed.pop(activity_id, None)
        activity.generation, activity.grant = again
        activity.grants = [] if before is None else before.grants


# --- leases -----------------------------------------------------------------
def _granted(fold: Place, workflow: Workflow, record: Record) -> None:
    _, at_ms, activity_id, generation, grant, attempt = record[:6]
    worker_id, session, deadline_ms, whole_ms, poll_id, stall_ms = record[6:12]
    activity = find(fold, workflow, activity_id, "LeaseGranted", 29)
    if activity is None:
        return
    if activity.lease is not None:
        fold.wrong(workflow, 15, activity_id, "a lease is granted while another one is live")
    elif activity.state == DEAD:
        fold.wrong(workflow, 31, activity_id, "a lease is granted on a dead letter")
    expected = (activity.generation, activity.grant + 1)
    if (generation, grant) != expected:
        text = f"granted as generation {generation}, grant {grant}; {expected} is next"
        fold.wrong(workflow, 16, activity_id, text)
    if attempt != activity.attempt:
        fold.wrong(workflow, 19, activity_id, f"attempt {attempt}, {activity.attempt} is next")
    if attempt > activity.max_attempts:
        text = f"attempt {attempt} of at most {activity.max_attempts}"
        fold.wrong(workflow, 20, activity_id, text)
    if at_ms < activity.due_ms:
        text = f"granted {activity.due_ms - at_ms} ms before it is due"
        fold.wrong(workflow, 26, activity_id, text)
    check_grant(fold, workflow, activity)
    _check_deadlines(fold, workflow, activity, at_ms, deadline_ms, whole_ms)
    fold.attempts += 1
    activity.grant, activity.attempt, activity.generation = grant, attempt, generation
    activity.grants.append((generation, grant, attempt))
    activity.state = LEASED
    activity.leased_in_generation = True
    activity.last_granted_ms = at_ms
    activity.handed_back = ""
    lease = [worker_id, session, at_ms, deadline_ms, whole_ms, poll_id, fold.n, stall_ms or 0]
    activity.lease = lease


def _check_deadlines(
    fold: Place, workflow: Workflow, activity: Activity, at_ms: int, deadline_ms: int, whole_ms: int
) -> None:
    start_to_close, heartbeat = activity.options[2], activity.options[3]
    ends_ms, close_ms = at_ms + start_to_close, activity.close_ms
    if close_ms is not None:
        ends_ms = min(ends_ms, close_ms)
        if at_ms >= close_ms:
            text = f"granted {at_ms - close_ms} ms after the caller's deadline"
            fold.wrong(workflow, 20, activity.activity_id, text)
    first_ms = min(at_ms + (heartbeat or start_to_close), ends_ms)
    if (deadline_ms, whole_ms) != (first_ms, ends_ms):
        text = f"the lease ends at {deadline_ms} and {whole_ms}, not at {first_ms} and {ends_ms}"
        fold.wrong(workflow, 21, activity.activity_id, text)


def _heartbeat(fold: Place, workflow: Workflow, record: Record) -> None:
    _, at_ms, activity_id, generation, grant, beat, details, deadline_ms, stall_ms = record[:9]
    activity = find(fold, workflow, activity_id, "HeartbeatRecorded", 17)
    if activity is None:
        return
    if not holds(fold, workflow, activity, "HeartbeatRecorded", generation, grant):
        return
    lease = activity.lease
    assert lease is not None
    if beat <= activity.beat:
        text = f"heartbeat {beat} follows heartbeat {activity.beat}"
        fold.wrong(workflow, 23, activity_id, text)
    _move(activity, lease, stall_ms or 0)
    expected_ms = lease[3]
    if activity.options[3]:
        expected_ms = max(expected_ms, min(at_ms + activity.options[3], lease[4]))
    if deadline_ms != expected_ms:
        text = f"a heartbeat moves the deadline to {deadline_ms}, not to {expected_ms}"
        fold.wrong(workflow, 21, activity_id, text)
    activity.beat, activity.details = beat, details
    activity.last_heartbeat_ms = at_ms
    lease[3] = deadline_ms


def _move(activity: Activity, lease: list[Any], stall_ms: int) -> None:
    """Both deadlines move by what history stood still meanwhile; the caller's own does not."""
    grown_ms = max(0, stall_ms - lease[7])
    whole_ms = lease[4] + grown_ms
    if activity.close_ms is not None:
        whole_ms = min(whole_ms, activity.close_ms)
    lease[3] = min(lease[3] + grown_ms, whole_ms)
    lease[4] = whole_ms
    lease[7] += grown_ms


def _released(fold: Place, workflow: Workflow, record: Record) -> None:
    _, at_ms, activity_id, generation, grant, reason, due_ms, uncharged = record[:8]
    activity = find(fold, workflow, activity_id, "LeaseReleased", 17)
    if activity is None or not holds(fold, workflow, activity, "LeaseReleased", generation, grant):
        return
    before = activity.uncharged_in_a_row
    expected = {REASON_RESTART: before + 1, REASON_UNDELIVERED: before}.get(reason, 0)
    if uncharged != expected or uncharged > UNCHARGED_MAX:
        text = f"handed back ({reason}) uncharged for the {uncharged}. time, {before} before it"
        fold.wrong(workflow, 19, activity_id, text)
    if due_ms < at_ms:
        fold.wrong(workflow, 26, activity_id, "handed back and due before that")
    is_left = activity.detached_grant == activity.grant
    if reason == REASON_RESTART or (is_left and reason == REASON_UNDELIVERED):
        check_bound(fold, workflow, activity, reason)
    activity.state = SCHEDULED if activity.attempt == 1 else RETRYING
    activity.lease = None
    activity.due_ms = due_ms
    activity.uncharged_in_a_row = uncharged
    activity.handed_back = reason
    activity.last_end = [generation, grant, "released", ""]
    take_details(activity, record[8], record[9])


LEASE_RULES: dict[int, Callable[[Place, Workflow, Record], None]] = {
    names.TAGS[name]: rule
    for name, rule in {
        "ActivityTaskScheduled": _scheduled,
        "LeaseGranted": _granted,
        "HeartbeatRecorded": _heartbeat,
        "LeaseReleased": _released,
    }.items()
}
