"""What a workflow's code asks of history: the steps of one workflow task, each one event."""

from __future__ import annotations

import msgspec

from perdure.core.record_base import Payload
from perdure.core.records import ActivityOptions
from perdure.core.start import Attribute, StartTerms
from perdure.failures import Failure


class ScheduleActivity(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Run this activity. The id is unique in the execution."""

    activity_id: str
    activity_type: str
    input: Payload | None
    options: ActivityOptions


class StartTimer(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Wake me after `duration_ms`, counted from the commit of this step."""

    timer_id: int
    duration_ms: int


class CancelTimer(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """I no longer wait for this timer."""

    timer_id: int


class CancelActivity(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """I no longer wait for this activity.

    mode "try": end it, tell its worker, make its token stale. "wait": tell its worker, and me when
    its attempt has ended. "abandon": let it go on, without me.
    """

    activity_id: str
    mode: str = "try"


class CompleteWorkflow(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The workflow function returned."""

    result: Payload | None


class FailWorkflow(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """An exception left the workflow function."""

    failure: Failure


class StartChild(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Start another workflow, whose end I am told of."""

    child_id: str
    workflow_type: str
    task_queue: str
    input: Payload | None
    parent_close: str
    terms: StartTerms | None = None


class CancelChild(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Ask my child to end."""

    child_id: str


class SendSignal(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """Signal another workflow, by its id. `answered`: I am told what came of it."""

    workflow_id: str
    name: str
    input: Payload | None
    answered: bool = False


class CancelExternal(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """Ask another workflow to end, by its id. I am told whether it was there to be asked."""

    workflow_id: str
    reason: str


class RecordMarker(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """Tell every replay what I found out. marker: "patch" or "side_effect"."""

    marker: str
    name: str
    result: Payload | None


class EndUpdate(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """The answer to an update that came. `rejected`: its validator said no."""

    update_id: str
    result: Payload | None
    failure: Failure | None
    rejected: bool = False


class SetSearchAttributes(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """Have me found by these from now on; None takes one away."""

    attributes: tuple[tuple[str, Attribute | None], ...]


class ContinueAsNew(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """End this run; the next begins with this input.

    `signals`: (name, input) of those that came and that nobody took: the next run has them.
    `cancel_reason` is not None where a request to end came after the code had gone on: the next run
    is asked. `updates`: (update_id, name, input) of those that came then: the next run does them.
    `unheard`: children whose end came then: the next run is told.
    """

    workflow_type: str
    task_queue: str
    input: Payload | None
    signals: tuple[tuple[str, Payload | None], ...] = ()
    cancel_reason: str | None = None
    updates: tuple[tuple[str, str, Payload | None], ...] = ()
    unheard: tuple[str, ...] = ()


class CancelWorkflowStep(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """My cancellation left the workflow function."""

    reason: str


Step = (
    ScheduleActivity
    | StartTimer
    | CancelTimer
    | CancelActivity
    | CompleteWorkflow
    | FailWorkflow
    | StartChild
    | CancelChild
    | SendSignal
    | RecordMarker
    | EndUpdate
    | SetSearchAttributes
    | ContinueAsNew
    | CancelWorkflowStep
    | CancelExternal
)
