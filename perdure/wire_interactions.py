"""What people and programs ask of a workflow that runs, and what has happened on the node.

Structs as those of perdure.wire_args, whose rules are theirs.
"""

from __future__ import annotations

import re

import msgspec

from perdure.errors import InvalidArgument
from perdure.wire_args import ABSENT, Args, Count, Limit, OfWorkflow, Run, StartOptions
from perdure.wire_checks import check_id, check_name, check_names, check_text

EVENT_IDS = re.compile(r"(now|[0-9]{1,15}(\.[0-9]{1,15})?)").fullmatch


class StartFirst(Args, frozen=True):
    """How the workflow is started where there is none of its id: as StartWorkflow has it."""

    type: str
    input: msgspec.Raw = ABSENT
    task_queue: str = "default"
    options: StartOptions | None = None

    def __post_init__(self) -> None:
        check_name("start.type", self.type)
        check_name("start.task_queue", self.task_queue)


class SignalWorkflow(OfWorkflow, frozen=True):
    """Hand a signal to the workflow's code.

    `start`: where there is no workflow of this id, it is started with the signal, in one commit.
    """

    name: str
    input: msgspec.Raw = ABSENT
    request_id: str | None = None
    start: StartFirst | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("name", self.name)
        if self.request_id is not None:
            check_id("request_id", self.request_id)


class QueryWorkflow(OfWorkflow, frozen=True):
    """Ask the workflow's code; nothing of it is recorded. The newest run, or the one named.

    `wait_ms`: how long a worker may take (10 000, where it is not said).
    """

    name: str
    input: msgspec.Raw = ABSENT
    run: Run | None = None
    wait_ms: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("name", self.name)


class UpdateWorkflow(OfWorkflow, frozen=True):
    """Ask the workflow's code for a change with an answer, which is waited for `wait_ms`.

    `request_id` is the update's own: the same one again is the same update, with the same answer.
    `start` as of SignalWorkflow.
    """

    name: str
    request_id: str
    input: msgspec.Raw = ABSENT
    wait_ms: Count | None = None
    start: StartFirst | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("name", self.name)
        check_id("request_id", self.request_id)


class _Ending(OfWorkflow, frozen=True):
    reason: str | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reason != "":
            check_text("reason", self.reason)
        if self.request_id is not None:
            check_id("request_id", self.request_id)


class CancelWorkflow(_Ending, frozen=True):
    """Ask the workflow to end; its code may clean up first, or go on."""


class TerminateWorkflow(_Ending, frozen=True):
    """End the workflow at once, whatever its code would do."""


class ReadEvents(Args, frozen=True):
    """What has happened on the node after event `after`, waited for at most `wait_ms`.

    `after`: the id of an event, what an earlier answer named `next`, or "now"; without it from the
    oldest on that is kept. `kinds` and `workflow_id` narrow it.
    """

    after: str | None = None
    limit: Limit | None = None
    wait_ms: Count | None = None
    kinds: tuple[str, ...] | None = None
    workflow_id: str | None = None

    def __post_init__(self) -> None:
        check_text("after", self.after)
        if self.after is not None and not EVENT_IDS(self.after):
            text = f"after must be the id of an event, as 17.3, or now; not {self.after[:64]!r}"
            raise InvalidArgument(text, field="after")
        if self.kinds is not None:
            check_names("kinds", self.kinds)
        if self.workflow_id is not None:
            check_id("workflow_id", self.workflow_id)


OPERATIONS: dict[str, type[Args]] = {
    kind.__name__: kind
    for kind in (
        SignalWorkflow,
        QueryWorkflow,
        UpdateWorkflow,
        CancelWorkflow,
        TerminateWorkflow,
        ReadEvents,
    )
}
