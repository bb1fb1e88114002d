"""What workflow code is told by exceptions."""

from __future__ import annotations

import asyncio

from perdure.errors import PerdureError
from perdure.failures import Failure

# The class itself and no subclass: asyncio.timeout and TaskGroup know their own cancellation by it.
Cancelled = asyncio.CancelledError


class ActivityFailed(PerdureError):
    """An activity that the workflow waited for has failed for good: `failure` says how.

    `activity_id` and `activity_type` say which. Never raised while retries go on, nor for an
    activity that waits as a dead letter.
    """

    __module__ = "perdure.workflow"  # The name in type_chain, and for pickles.
    code = "ACTIVITY_FAILED"

    # Defaults, so that the exception can be rebuilt from its message alone when it is unpickled.
    def __init__(
        self,
        message: str = "",
        failure: Failure | None = None,
        *,
        activity_id: str = "",
        activity_type: str = "",
    ) -> None:
        super().__init__(message)
        self.failure = Failure("Unknown", message) if failure is None else failure
        self.activity_id = activity_id
        self.activity_type = activity_type


class ChildFailed(PerdureError):
    """A child that the workflow waited for ended otherwise than Completed: `failure` says how.

    `workflow_id` and `workflow_type` say which, `status` is Failed, Cancelled or Terminated. A
    child whose id was taken has failed with the type ChildIdTaken.
    """

    __module__ = "perdure.workflow"
    code = "CHILD_FAILED"

    def __init__(
        self,
        message: str = "",
        failure: Failure | None = None,
        *,
        workflow_id: str = "",
        workflow_type: str = "",
        status: str = "Failed",
    ) -> None:
        super().__init__(message)
        self.failure = Failure("Unknown", message) if failure is None else failure
        self.workflow_id = workflow_id
        self.workflow_type = workflow_type
        self.status = status


class ExternalFailed(PerdureError):
    """What the workflow said to another could not be taken: `failure` says why.

    `workflow_id` says to which. `failure.type` is NotFound where there is none of this id,
    FailedPrecondition where it has ended, ResourceExhausted where it has too much unread.
    """

    __module__ = "perdure.workflow"
    code = "EXTERNAL_FAILED"

    def __init__(
        self, message: str = "", failure: Failure | None = None, *, workflow_id: str = ""
    ) -> None:
        super().__init__(message)
        self.failure = Failure("Unknown", message) if failure is None else failure
        self.workflow_id = workflow_id


class Continue(BaseException):
    """Leaves a workflow function that continues as new. No `except Exception` stops it."""

    __module__ = "perdure.workflow"

    def __init__(self, payload: bytes | None = None) -> None:
        super().__init__("the workflow continues as new")
        self.payload = payload


class NonDeterminism(PerdureError):
    """The workflow's code did what a replay could not repeat, or a replay went another way.

    It fails no workflow: the workflow task is given out again, for code that agrees with history.
    `expected` is the recorded event, `got` the command of the code, `where` its file and line; all
    are empty where the code was stopped before anything was recorded.
    """

    __module__ = "perdure.workflow"
    code = "FAILED_PRECONDITION"

    def __init__(
        self, message: str = "", *, expected: str = "", got: str = "", where: str = ""
    ) -> None:
        super().__init__(message)
        self.expected = expected
        self.got = got
        self.where = where
