"""Records of what workflows and people do to each other: signals, updates, children, endings.

All are events (they have an `event_id`) but SignalsNoted and those of the task table.
"""

from __future__ import annotations

import msgspec

from perdure.core.record_base import Payload, Record
from perdure.core.start import Attribute, StartTerms
from perdure.failures import Failure


# --- endings ------------------------------------------------------------------
class WorkflowCancelRequested(Record, frozen=True, tag=19):
    """Somebody wants the workflow to end in order. It wakes it; the workflow decides."""

    event_id: int
    at_ms: int
    reason: str
    request_id: str | None


class WorkflowCancelled(Record, frozen=True, tag=20):
    """Its own cancellation left the workflow function."""

    event_id: int
    at_ms: int
    reason: str


class WorkflowTerminated(Record, frozen=True, tag=21):
    """It was ended from outside, without its code being asked."""

    event_id: int
    at_ms: int
    reason: str
    request_id: str | None


class WorkflowContinuedAsNew(Record, frozen=True, tag=22):
    """This run has ended; `run` goes on with `input`, and begins in the same commit."""

    event_id: int
    at_ms: int
    run: int
    workflow_type: str
    task_queue: str
    input: Payload | None


# --- signals and updates ------------------------------------------------------
class SignalReceived(Record, frozen=True, tag=23):
    """A signal for the workflow's code. It wakes the workflow."""

    event_id: int
    at_ms: int
    name: str
    input: Payload | None
    request_id: str | None


class SignalSent(Record, frozen=True, tag=24):
    """The workflow signalled another, by its id.

    `refused`: why that could not take it, or empty, with the error's `code`. `answered`: the
    sender's code is told, and woken for it; histories of before this was so have it false.
    """

    event_id: int
    at_ms: int
    workflow_id: str
    name: str
    input: Payload | None
    refused: str = ""
    code: str = ""
    answered: bool = False


class ExternalCancelRequested(Record, frozen=True, tag=39):
    """The workflow asked another to end, by its id, and is woken to hear whether that was there.

    `refused` and `code` as of SignalSent.
    """

    event_id: int
    at_ms: int
    workflow_id: str
    reason: str
    refused: str = ""
    code: str = ""


class SignalNotes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a workflow's code makes of its signals, as its worker reports it.

    `takes`: the names that it has handlers or boxes for. `untaken`: (name, how many) of those that
    came and that nothing takes. `dropped`: (instant, name, why) of those that could not be handed
    over since the last report.
    """

    takes: tuple[str, ...] = ()
    untaken: tuple[tuple[str, int], ...] = ()
    dropped: tuple[tuple[int, str, str], ...] = ()


class UpdateReceived(Record, frozen=True, tag=25):
    """A client asks the workflow's code for a change with an answer. It wakes the workflow."""

    event_id: int
    at_ms: int
    name: str
    input: Payload | None
    update_id: str


class UpdateEnded(Record, frozen=True, tag=26):
    """The answer to an update: a result, or a failure; `rejected` where its validator said no.

    `request_id` is the update's id, so that the answer can be looked up by it.
    """

    event_id: int
    at_ms: int
    request_id: str
    result: Payload | None
    failure: Failure | None
    rejected: bool


# --- children -----------------------------------------------------------------
class ChildWorkflowStarted(Record, frozen=True, tag=27):
    """The workflow started a child. Where its id was taken a ChildWorkflowFailed follows."""

    event_id: int
    at_ms: int
    child_id: str
    workflow_type: str
    task_queue: str
    input: Payload | None
    parent_close: str
    terms: StartTerms | None


class ChildWorkflowCompleted(Record, frozen=True, tag=28):
    """The child returned. It wakes the parent."""

    event_id: int
    at_ms: int
    child_id: str
    result: Payload | None


class ChildWorkflowFailed(Record, frozen=True, tag=29):
    """The child ended otherwise, or could not be started. It wakes the parent.

    `status`: Failed, Cancelled or Terminated.
    """

    event_id: int
    at_ms: int
    child_id: str
    status: str
    failure: Failure


class ChildCancelRequested(Record, frozen=True, tag=30):
    """The parent asked its child to end; `noop` where it had ended already."""

    event_id: int
    at_ms: int
    child_id: str
    noop: bool


# --- the workflow's own notes -------------------------------------------------
class MarkerRecorded(Record, frozen=True, tag=31):
    """What the code found out once and each replay is told again. kind: "patch", "side_effect"."""

    event_id: int
    at_ms: int
    marker: str
    name: str
    result: Payload | None


class SearchAttributesSet(Record, frozen=True, tag=32):
    """What the workflow can be found by has changed: these names have these values from now on."""

    event_id: int
    at_ms: int
    attributes: tuple[tuple[str, Attribute | None], ...]


class ActivityCancelRequested(Record, frozen=True, tag=33):
    """The workflow gave an activity up that goes on: until its attempt ends ("wait"), or by itself
    ("abandon"). `noop` when it was closed already.
    """

    event_id: int
    at_ms: int
    activity_id: str
    mode: str
    noop: bool


class WorkflowReset(Record, frozen=True, tag=34):
    """An operator took the workflow back: what came after event `to_event` does not count any more.

    `commands` is how many commands the events that count hold; `state` the execution as it stands
    from now on, encoded (perdure.core.resetting), whatever it was before.
    """

    event_id: int
    at_ms: int
    to_event: int
    commands: int
    reason: str
    request_id: str | None
    state: bytes


class SignalsNoted(Record, frozen=True, tag=40):
    """What the workflow's code makes of its signals has changed. No event: it is for people."""

    at_ms: int
    notes: SignalNotes


# --- the task table -----------------------------------------------------------
class WorkflowPaused(Record, frozen=True, tag=35):
    """An operator holds the workflow's tasks back (`paused`), or lets them go again."""

    at_ms: int
    paused: bool
    reason: str
    request_id: str | None


class LeaseDetached(Record, frozen=True, tag=36):
    """The attempt is finished by whoever has its token: its lease names no session any more."""

    at_ms: int
    activity_id: str
    generation: int
    grant: int


class RetriedNow(Record, frozen=True, tag=37):
    """An operator wants it tried now: the activity's attempt, or (no id) the workflow's task."""

    at_ms: int
    activity_id: str
    request_id: str | None


class GateSet(Record, frozen=True, tag=38):
    """A queue or an activity type is held back (`paused`), or let go. Of no workflow: its group
    stands under the empty id.
    """

    at_ms: int
    kind: str
    name: str
    paused: bool
    reason: str
    request_id: str | None
