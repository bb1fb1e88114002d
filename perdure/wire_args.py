"""What the operations of the public protocol are asked with, one struct each.

Building or decoding one checks it: InvalidArgument, or msgspec's own error, names the field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from perdure.failures import Failure
from perdure.wire_checks import (
    INTEGER_MAX,
    PAGE_MAX,
    Attribute,
    check_attributes,
    check_id,
    check_name,
    check_names,
    check_text,
)

Count = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]
Run = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
WorkflowStatus = Literal[
    "Running", "Completed", "Failed", "Cancelled", "Terminated", "ContinuedAsNew"
]
PendingState = Literal["Scheduled", "Leased", "Retrying", "DeadLettered"]

ABSENT = msgspec.Raw()
"""Stands in a payload field that was not sent."""


# --- arguments ---------------------------------------------------------------
class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of one operation. Building one raises InvalidArgument naming the field."""


class Ping(Args, frozen=True):
    """Is a node there, and what time is it?"""


class WorkerEndpoint(Args, frozen=True):
    """Where do workers of this node connect? For `perdure worker --connect`."""


class WorkerTypes(Args, frozen=True):
    """Which workers are there, and what do they have?"""


class RestartWorker(Args, frozen=True):
    """Have a worker of another origin than the node end in order and begin anew with new code.

    Answered when it is told; `WorkerTypes` shows what comes of it.
    """

    worker_id: str

    def __post_init__(self) -> None:
        check_name("worker_id", self.worker_id)


class StartOptions(Args, frozen=True):
    """How it begins and when it must have ended: a delay before its first step, a time for all of
    its runs (0: none), and what it can be found by.
    """

    start_delay_ms: Count | None = None
    timeout_ms: Count | None = None
    search_attributes: dict[str, Attribute] | None = None

    def __post_init__(self) -> None:
        check_attributes("search_attributes", self.search_attributes)


class StartWorkflow(Args, frozen=True):
    """Take the id and begin."""

    type: str
    workflow_id: str
    input: msgspec.Raw = ABSENT
    request_id: str | None = None
    task_queue: str = "default"
    options: StartOptions | None = None

    def __post_init__(self) -> None:
        check_name("type", self.type)
        check_id("workflow_id", self.workflow_id)
        check_name("task_queue", self.task_queue)
        if self.request_id is not None:
            check_id("request_id", self.request_id)


class OfWorkflow(Args, frozen=True):
    """An operation on one workflow."""

    workflow_id: str

    def __post_init__(self) -> None:
        check_id("workflow_id", self.workflow_id)


class GetResult(OfWorkflow, frozen=True):
    """The result, waited for at most `wait_ms`: of the last run, where `run` names none."""

    wait_ms: Count | None = None
    run: Run | None = None


class DescribeWorkflow(OfWorkflow, frozen=True):
    """The workflow's state, as `wf describe --json`: of the newest run, or of the one named."""

    run: Run | None = None


class GetHistory(OfWorkflow, frozen=True):
    """The events, with an id above `after`, of the newest run, or of the one named."""

    after: Count | None = None
    limit: Limit | None = None
    run: Run | None = None


class ListWorkflows(Args, frozen=True):
    """Runs of workflows that match every filter given, newest first.

    `older_than_ms` and `younger_than_ms` are ages. `attempts`: with an open activity that is at
    this attempt, or a later one. `attributes`: search attributes, all of which it has. `parent`:
    the workflow whose child it is. `stuck`: only those that go no further until somebody acts.
    """

    type: str | None = None
    status: WorkflowStatus | None = None
    pending_state: PendingState | None = None
    failure_type: str | None = None
    activity_type: str | None = None
    older_than_ms: Count | None = None
    limit: Limit | None = None
    page: str | None = None
    younger_than_ms: Count | None = None
    attempts: Count | None = None
    attributes: dict[str, Attribute] | None = None
    parent: str | None = None
    stuck: bool = False

    def __post_init__(self) -> None:
        check_text("type", self.type)
        check_text("failure_type", self.failure_type)
        check_text("activity_type", self.activity_type)
        check_text("page", self.page)
        check_attributes("attributes", self.attributes)
        check_text("parent", self.parent)


class ListDeadLetters(Args, frozen=True):
    """Dead letters that match every filter given, oldest first. `older_than_ms` is an age.

    With both `workflow_id` and `activity_id` the entry is whole: failures, input, details.
    """

    workflow_id: str | None = None
    activity_id: str | None = None
    activity_type: str | None = None
    failure_type: str | None = None
    older_than_ms: Count | None = None
    limit: Limit | None = None
    page: str | None = None

    def __post_init__(self) -> None:
        for field in ("workflow_id", "activity_id", "activity_type", "failure_type", "page"):
            check_text(field, getattr(self, field))


class OfDeadLetter(Args, frozen=True):
    """An operator's decision about one dead letter."""

    workflow_id: str
    activity_id: str

    def __post_init__(self) -> None:
        check_id("workflow_id", self.workflow_id)
        check_id("activity_id", self.activity_id)
        request_id: str | None = getattr(self, "request_id", None)
        if request_id is not None:
            check_id("request_id", request_id)


class RedriveDeadLetter(OfDeadLetter, frozen=True):
    """Try it again, from attempt 1; with another `input`, where one is sent (null: with none).

    `by` says who, for the history.
    """

    input: msgspec.Raw = ABSENT
    request_id: str | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_text("by", self.by)


class FailDeadLetter(OfDeadLetter, frozen=True):
    """Let the workflow see the last failure."""

    request_id: str | None = None


class CompleteDeadLetter(OfDeadLetter, frozen=True):
    """It was done by hand, with this result."""

    result: msgspec.Raw
    request_id: str | None = None


class PollActivityTask(Args, frozen=True):
    """One task, waited for at most `wait_ms`, whose lease names no session."""

    worker_id: str
    task_queue: str = "default"
    types: tuple[str, ...] | None = None
    wait_ms: Count | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        check_name("worker_id", self.worker_id)
        check_name("task_queue", self.task_queue)
        if self.types is not None:
            check_names("types", self.types)
        if self.request_id is not None:
            check_id("request_id", self.request_id)


class OfToken(Args, frozen=True):
    """A report about the attempt that `token` names."""

    token: str

    def __post_init__(self) -> None:
        check_text("token", self.token)


class CompleteActivityTask(OfToken, frozen=True):
    """The attempt is done."""

    result: msgspec.Raw


class FailureArgs(Args, frozen=True):
    """A failure as it is sent: see perdure.failures.Failure."""

    type: str
    message: str = ""
    non_retryable: bool = False
    retry_after_ms: Count | None = None
    details: Any = None
    stack: str | None = None
    cause: Failure | None = None
    type_chain: tuple[str, ...] = ()

    def to_failure(self) -> Failure:
        """The failure itself, cut to its bounds; InvalidArgument naming what does not fit."""
        return Failure(**{name: getattr(self, name) for name in self.__struct_fields__})


class FailActivityTask(OfToken, frozen=True):
    """The attempt failed."""

    failure: FailureArgs


class RecordHeartbeat(OfToken, frozen=True):
    """The attempt lives; `details`, if sent, are what the next one starts with."""

    details: msgspec.Raw = ABSENT


OPERATIONS: dict[str, type[Args]] = {
    kind.__name__: kind
    for kind in (
        Ping,
        WorkerEndpoint,
        WorkerTypes,
        RestartWorker,
        StartWorkflow,
        GetResult,
        DescribeWorkflow,
        GetHistory,
        ListWorkflows,
        ListDeadLetters,
        RedriveDeadLetter,
        FailDeadLetter,
        CompleteDeadLetter,
        PollActivityTask,
        CompleteActivityTask,
        FailActivityTask,
        RecordHeartbeat,
    )
}
