"""Commands of people, and of one workflow about another, beside those of perdure.core.commands.

`workflow_id` in a command of a client is the id that people know; history takes it for the newest
run of it (perdure.core.ids.execution_id). Commands that executions have for each other name the
execution itself.
"""

from __future__ import annotations

from perdure.core.command_base import Command
from perdure.core.record_base import Payload
from perdure.core.start import StartTerms
from perdure.failures import Failure


# --- from clients -------------------------------------------------------------
class StartWorkflow(Command, frozen=True, tag=1):
    """Sent by the gateway for a client.

    `digest` is of type, queue and input, whatever their encoding.
    """

    workflow_id: str
    workflow_type: str
    task_queue: str
    input: Payload | None
    request_id: str | None
    digest: bytes
    terms: StartTerms | None = None


class SignalWorkflow(Command, frozen=True, tag=17):
    """Sent by the gateway for a client: a signal for the workflow's code.

    `start`: where there is no workflow of this id, it is started in the same commit.
    """

    workflow_id: str
    name: str
    input: Payload | None
    request_id: str | None = None
    start: StartWorkflow | None = None


class CancelWorkflow(Command, frozen=True, tag=18):
    """Sent by the gateway for a client: ask the workflow to end.

    `parent`: of an execution for its child, and only for that: an id may be another's.
    """

    workflow_id: str
    reason: str
    request_id: str | None = None
    parent: str = ""


class TerminateWorkflow(Command, frozen=True, tag=19):
    """Sent by the gateway for a client: end the workflow, whatever its code would do.

    `parent` as of CancelWorkflow.
    """

    workflow_id: str
    reason: str
    request_id: str | None = None
    parent: str = ""


class UpdateWorkflow(Command, frozen=True, tag=20):
    """Sent by the gateway for a client: an update for the workflow's code, by an id of its own.

    `handed_on`: follows from a run's end; it is that run's, which the next one does in its place.
    `start` as of SignalWorkflow.
    """

    workflow_id: str
    name: str
    input: Payload | None
    update_id: str
    handed_on: bool = False
    start: StartWorkflow | None = None


class RetryNow(Command, frozen=True, tag=21):
    """Sent by the gateway for an operator: try the activity, or (no id) the workflow task, now."""

    workflow_id: str
    activity_id: str
    request_id: str | None = None


class PauseWorkflow(Command, frozen=True, tag=22):
    """Sent by the gateway for an operator: hold this workflow's tasks back, or let them go."""

    workflow_id: str
    paused: bool
    reason: str
    request_id: str | None = None


class SetGate(Command, frozen=True, tag=23):
    """Sent by the gateway for an operator: hold a queue ("queue") or a type of activities
    ("activity_type") back, or let it go. `workflow_id` is empty.
    """

    workflow_id: str
    kind: str
    name: str
    paused: bool
    reason: str
    request_id: str | None = None


class ResetWorkflow(Command, frozen=True, tag=24):
    """Sent by the gateway for an operator: go back to event `to_event` and on from there."""

    workflow_id: str
    to_event: int
    reason: str
    request_id: str | None = None
    dry_run: bool = False  # Only say what that would mean.


# --- from workers and the scheduler ---------------------------------------------
class DetachLease(Command, frozen=True, tag=25):
    """The holder of `token` leaves the attempt to whoever else has the token."""

    token: str
    details: Payload | None = None
    beat: int = 0


class TimeOutWorkflow(Command, frozen=True, tag=26):
    """Scheduler: the time that the workflow was given is over."""

    workflow_id: str


# --- of executions for each other -----------------------------------------------
class ChildEnded(Command, frozen=True, tag=27):
    """Of a child for its parent. `status` as of a workflow; `failure` where it is not Completed."""

    workflow_id: str
    child_id: str
    status: str
    result: Payload | None
    failure: Failure | None
