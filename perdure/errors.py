"""What Perdure raises: one tree, one code per class.

A code is the same word on the wire, on the command line and in Python, so that a caller may act
on `error.code` without knowing the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from perdure.failures import Failure


class PerdureError(Exception):
    """Any refusal or outage that Perdure reports: `code`, `message` and, where known, `field`."""

    code: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidArgument(PerdureError):
    """The caller sent something that can never be accepted; the message names the field."""

    code = "INVALID_ARGUMENT"


class NotFound(PerdureError):
    """There is no such workflow, activity, dead letter or query."""

    code = "NOT_FOUND"


class AlreadyExists(PerdureError):
    """The id is taken, by something open, closed, or gone with a tombstone."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(PerdureError):
    """Right in form, but not in this state: a stale token, a closed workflow. Nothing changed."""

    code = "FAILED_PRECONDITION"


class ResourceExhausted(PerdureError):
    """A limit is reached; the message names it. The same request may be accepted later."""

    code = "RESOURCE_EXHAUSTED"


class Unauthenticated(PerdureError):
    """The peer's key is not on the node's list."""

    code = "UNAUTHENTICATED"


class Unavailable(PerdureError):
    """No node answers, or it is going down. The request may or may not have been carried out."""

    code = "UNAVAILABLE"


class DeadlineExceeded(PerdureError):
    """The time that the caller gave has passed; what was waited for goes on."""

    code = "DEADLINE_EXCEEDED"


class Internal(PerdureError):
    """A bug of Perdure. Please report it with the message."""

    code = "INTERNAL"


class WorkflowFailed(PerdureError):
    """The workflow ended otherwise than Completed: `status` says how, `failure` why, if known."""

    code = "WORKFLOW_FAILED"

    # Defaults, so that the exception can be rebuilt from its message alone when it is unpickled.
    def __init__(
        self,
        message: str = "",
        status: str = "Failed",
        failure: Failure | None = None,
        *,
        field: str | None = None,
    ) -> None:
        super().__init__(message, field=field)
        self.status = status
        self.failure = failure


class UpdateFailed(PerdureError):
    """The update's handler failed, or its workflow ended first: `failure` says why, if known."""

    code = "UPDATE_FAILED"

    def __init__(
        self, message: str = "", failure: Failure | None = None, *, field: str | None = None
    ) -> None:
        super().__init__(message, field=field)
        self.failure = failure


class UpdateRejected(UpdateFailed):
    """The update's validator said no: nothing has changed. `failure` is what it raised."""

    code = "UPDATE_REJECTED"


CODES: dict[str, type[PerdureError]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        FailedPrecondition,
        ResourceExhausted,
        Unauthenticated,
        Unavailable,
        DeadlineExceeded,
        Internal,
        WorkflowFailed,
        UpdateFailed,
        UpdateRejected,
    )
}
"""Every code there is, with its class."""


def no_workflow(workflow_id: str) -> NotFound:
    """The error that there is no workflow of this id: in these words, whoever finds out."""
    return NotFound(f"there is no workflow {workflow_id!r}")


def removed_workflow(workflow_id: str) -> NotFound:
    """The error that retention has removed the workflow of this id."""
    return NotFound(
        f"workflow {workflow_id!r} has ended, and its history was removed when its retention time"
        " was over; the id stays taken"
    )


def from_code(code: str, message: str, **kw: Any) -> PerdureError:
    """The error that an answer with `code` stands for, ready to be raised.

    `kw` are the class's own options (`field`; `status` and `failure` for WORKFLOW_FAILED, `failure`
    for those of updates). A code of a newer node that this version does not know becomes Internal
    and is kept in the message.
    """
    kind = CODES.get(code)
    if kind is None:
        return Internal(f"{code}: {message}", field=kw.get("field"))
    return kind(message, **kw)
