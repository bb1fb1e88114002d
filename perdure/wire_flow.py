"""What operators do to the flow of work is asked with: pauses, tries at once, and why.

As perdure.wire_args.
"""

from __future__ import annotations

from perdure.wire_args import Args, OfWorkflow, Run
from perdure.wire_checks import check_id, check_name, check_text


class _Operator(Args, frozen=True):
    """`reason` is shown to whoever asks why nothing runs."""

    def __post_init__(self) -> None:
        check_text("reason", getattr(self, "reason", None))
        request_id: str | None = getattr(self, "request_id", None)
        if request_id is not None:
            check_id("request_id", request_id)


class OfQueue(_Operator, frozen=True):
    """An operation on a task queue."""

    name: str
    reason: str | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("name", self.name)


class PauseQueue(OfQueue, frozen=True):
    """Give nothing of this queue to anybody."""


class ResumeQueue(OfQueue, frozen=True):
    """Go on with it."""


class OfActivityType(_Operator, frozen=True):
    """An operation on a type of activities."""

    type: str
    reason: str | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("type", self.type)


class PauseActivityType(OfActivityType, frozen=True):
    """Begin no attempt of this type."""


class ResumeActivityType(OfActivityType, frozen=True):
    """Go on with it."""


class _OnWorkflow(_Operator, frozen=True):
    workflow_id: str
    reason: str | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_id("workflow_id", self.workflow_id)


class PauseWorkflow(_OnWorkflow, frozen=True):
    """Give no task of this workflow to anybody."""


class ResumeWorkflow(_OnWorkflow, frozen=True):
    """Go on with it."""


class RetryWorkflow(OfWorkflow, frozen=True):
    """Try its parked workflow task, or what is in its backoff, now; with an id that activity."""

    activity_id: str | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("activity_id", "request_id"):
            if getattr(self, field) is not None:
                check_id(field, getattr(self, field))


class ResetWorkflow(OfWorkflow, frozen=True):
    """Take it back to event `to_event` and on from there; with `dry_run` only say what that means.

    The answer lists what its code would ask for again.
    """

    to_event: Run
    reason: str | None = None
    request_id: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reason:
            check_text("reason", self.reason)
        if self.request_id is not None:
            check_id("request_id", self.request_id)


class ExplainWorkflow(OfWorkflow, frozen=True):
    """Why does it, or this activity of it, not run, and what happens next?"""

    activity_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activity_id is not None:
            check_id("activity_id", self.activity_id)


class ListPauses(Args, frozen=True):
    """Every queue and activity type that is paused."""


CHANGES = (
    PauseQueue,
    ResumeQueue,
    PauseActivityType,
    ResumeActivityType,
    PauseWorkflow,
    ResumeWorkflow,
    RetryWorkflow,
    ResetWorkflow,
)
LOOKS = (ExplainWorkflow, ListPauses)
OPERATIONS: dict[str, type[Args]] = {kind.__name__: kind for kind in (*CHANGES, *LOOKS)}
