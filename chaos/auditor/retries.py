"""The auditor's own arithmetic of retries and deadlines, from the contract."""

from __future__ import annotations

import math
from typing import Any

from chaos.auditor.state import Activity

WORKER_DIED = "WorkerDied"
SCHEDULE_TO_START = "ScheduleToStartTimeout"
SCHEDULE_TO_CLOSE = "ScheduleToCloseTimeout"
GRACE_MS = 10_000  # Where an epoch's first commit says nothing else.


def bound_ms(policy: list[Any], attempt: int) -> int:
    """The longest delay after failed attempt `attempt`: backoff without jitter, rounded down."""
    initial, factor, cap = policy[0], policy[1], policy[2]
    if factor <= 1:
        return int(min(initial, cap))
    # Logarithms, so that no number of attempts leaves the floats.
    if math.log(initial) + (attempt - 1) * math.log(factor) > math.log(cap) + 1:
        return int(cap)
    return int(min(initial * factor ** (attempt - 1), cap))


def delay_problem(activity: Activity, failure: dict[str, Any], delay_ms: int) -> str:
    """What is wrong with the recorded delay after the present attempt, or an empty text."""
    if failure.get("type") == WORKER_DIED and activity.deaths_in_a_row == 0:
        return "" if delay_ms == 0 else f"waits {delay_ms} ms after a first death, not 0"
    policy = activity.policy
    longest = bound_ms(policy, activity.attempt)
    floor_ms = min(policy[5] if len(policy) > 5 else 0, longest)
    asked = failure.get("retry_after_ms") or 0
    if delay_ms < max(floor_ms, asked):
        return f"waits {delay_ms} ms, less than the {max(floor_ms, asked)} ms asked for"
    if delay_ms > max(longest, asked):
        return f"waits {delay_ms} ms, more than the {max(longest, asked)} ms of the backoff"
    return ""


def is_death(failure: dict[str, Any]) -> bool:
    """Whether the engine itself says that a worker ended; code of the user may raise its type."""
    is_ours = not (failure.get("stack") or failure.get("type_chain"))
    text = str(failure.get("message"))
    is_said = text.startswith("worker ") and text.endswith(" ended without a report")
    return is_ours and is_said and failure.get("type") == WORKER_DIED


def is_final(activity: Activity, failure: dict[str, Any]) -> bool:
    """Whether this failure ends the activity whatever attempts are left."""
    if failure.get("non_retryable"):
        return True
    listed = activity.policy[4]
    if not listed:
        return False
    chain = failure.get("type_chain") or ()
    names = {failure.get("type"), *chain, *(str(name).rsplit(".", 1)[-1] for name in chain)}
    return not names.isdisjoint(listed)


def early_ms(
    activity: Activity,
    failure: dict[str, Any],
    at_ms: int,
    began: tuple[int, int],
    stall_ms: int,
) -> int:
    """How much too early the engine ended this attempt for silence or length; 0: it did not.

    `began` is when the present epoch did, and the grace: of older leases at least min(lease, grace)
    runs again from there. `stall_ms`: how long history has stood still in all; what that has grown
    since the lease was heard of, its deadlines have moved.
    """
    lease = activity.lease
    if lease is None or failure.get("stack") or failure.get("type_chain"):
        return 0
    _, _, granted_ms, deadline_ms, whole_ms = lease[:5]
    grown_ms = max(0, stall_ms - lease[7])
    length_ms = whole_ms - granted_ms  # Of what a restart gives anew; a stall adds nothing to it.
    whole_ms += grown_ms
    if activity.close_ms is not None:
        whole_ms = min(whole_ms, activity.close_ms)
    deadline_ms = min(deadline_ms + grown_ms, whole_ms)
    # Word for word, because code of the user may raise failures of the same type.
    words = {
        f"no heartbeat within {activity.options[3]} ms": deadline_ms,
        f"no report within {activity.options[2]} ms": whole_ms,
    }
    over_ms = words.get(str(failure.get("message")))
    if over_ms is None or failure.get("type") not in ("HeartbeatTimeout", "StartToCloseTimeout"):
        return 0
    began_ms, grace_ms = began
    if granted_ms < began_ms:
        if activity.options[3]:
            length_ms = min(length_ms, activity.options[3])
        over_ms = max(over_ms, began_ms + min(length_ms, grace_ms))
    return int(max(0, over_ms - at_ms))
