"""The operations as Python methods, over a node or over an engine in memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from perdure import values, wire
from perdure.answers import Answer, Page, to_answer
from perdure.errors import DeadlineExceeded
from perdure.failures import Failure
from perdure.wire_checks import PAGE_MAX

RESULT_SLICE_MS = 10_000


class WorkflowHandle:
    """One workflow, by its id. Cheap: it holds no state, and may be made for any id."""

    __slots__ = ("_client", "workflow_id")

    def __init__(self, client: Operations, workflow_id: str) -> None:
        self._client = client
        self.workflow_id = workflow_id

    def result(self, timeout_ms: int | None = None) -> Any:
        """See Client.result."""
        return self._client.result(self.workflow_id, timeout_ms=timeout_ms)

    def describe(self) -> Answer:
        """See Client.describe_workflow."""
        return self._client.describe_workflow(self.workflow_id)

    def history(self) -> list[Answer]:
        """See Client.history."""
        return self._client.history(self.workflow_id)

    def __repr__(self) -> str:
        return f"WorkflowHandle({self.workflow_id!r})"


class Operations(ABC):
    """What can be asked of Perdure. Every method raises a perdure.errors.PerdureError.

    Where a method takes no `request_id`, a random one is chosen before the first send, so that
    whatever is sent again takes effect once.
    """

    @abstractmethod
    def _call(self, args: wire.Args, wait_ms: int = 0) -> Any:
        """The `ok` of the answer, as plain data, or the error raised.

        `wait_ms`: how long the operation itself may take, beside the time for an answer.
        """

    def _clock_ms(self) -> int:
        """For measuring waits; stands still where nothing is ever waited for."""
        return 0

    # --- workflows -------------------------------------------------------------
    def start_workflow(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        workflow_id: str,
        request_id: str | None = None,
        task_queue: str = "default",
        **kwargs: Any,
    ) -> WorkflowHandle:
        """Start the workflow function, or the one of this name, with these arguments.

        AlreadyExists if the id was ever used, except by a start with the same `request_id` and
        arguments, which is answered as the first time.
        """
        self._call(
            start_args(workflow, args, kwargs, workflow_id, request_id, task_queue),
        )
        return WorkflowHandle(self, workflow_id)

    def result(self, workflow_id: str, timeout_ms: int | None = None) -> Any:
        """What the workflow returned, waited for; None waits as long as it takes.

        WorkflowFailed (status, failure) if it ended otherwise than Completed, DeadlineExceeded if
        it did not end within `timeout_ms`, NotFound, Unavailable if no node answers meanwhile.
        """
        began_ms, waited_ms = self._clock_ms(), 0
        while True:
            left_ms = RESULT_SLICE_MS
            if timeout_ms is not None:
                left_ms = max(0, timeout_ms - max(waited_ms, self._clock_ms() - began_ms))
            slice_ms = min(left_ms, RESULT_SLICE_MS)
            try:
                return self._call(wire.GetResult(workflow_id, slice_ms), left_ms)["result"]
            except DeadlineExceeded:
                waited_ms += slice_ms
                if slice_ms < left_ms or timeout_ms is None:
                    continue
                raise DeadlineExceeded(
                    f"workflow {workflow_id!r} has not ended within {timeout_ms} ms"
                ) from None

    def describe_workflow(self, workflow_id: str) -> Answer:
        """The workflow's state, with the fields of `wf describe --json`."""
        return Answer(self._call(wire.DescribeWorkflow(workflow_id)))

    def history(self, workflow_id: str, after: int = 0, limit: int | None = None) -> list[Answer]:
        """The workflow's events with an id above `after`, `limit` at most (None: all)."""
        events: list[Answer] = []
        while limit is None or len(events) < limit:
            size = PAGE_MAX if limit is None else min(limit - len(events), PAGE_MAX)
            ok = self._call(wire.GetHistory(workflow_id, after, size))
            events += to_answer(ok["events"])
            if ok["next_after"] is None:
                break
            after = ok["next_after"]
        return events

    def list_workflows(
        self,
        type: str | None = None,
        status: wire.WorkflowStatus | None = None,
        pending_state: wire.PendingState | None = None,
        failure_type: str | None = None,
        activity_type: str | None = None,
        older_than_ms: int | None = None,
        limit: int | None = None,
        page: str | None = None,
    ) -> Page:
        """Workflows that match, newest first. `older_than_ms` is an age; `limit` at most 1 000."""
        ok = self._call(
            wire.ListWorkflows(
                type, status, pending_state, failure_type, activity_type, older_than_ms, limit, page
            )
        )
        return Page(ok["workflows"], ok["next_page"])

    # --- dead letters ------------------------------------------------------------
    def list_dead_letters(
        self,
        workflow_id: str | None = None,
        activity_id: str | None = None,
        activity_type: str | None = None,
        failure_type: str | None = None,
        older_than_ms: int | None = None,
        limit: int | None = None,
        page: str | None = None,
    ) -> Page:
        """Dead letters that match, oldest first; whole where both ids are given."""
        ok = self._call(
            wire.ListDeadLetters(
                workflow_id, activity_id, activity_type, failure_type, older_than_ms, limit, page
            )
        )
        return Page(ok["dead_letters"], ok["next_page"])

    def redrive_dead_letter(
        self, workflow_id: str, activity_id: str, *, request_id: str | None = None
    ) -> None:
        """Try a dead letter again from attempt 1. NotFound if it is none."""
        chosen = request_id or new_request_id()
        self._call(wire.RedriveDeadLetter(workflow_id, activity_id, request_id=chosen))

    def fail_dead_letter(
        self, workflow_id: str, activity_id: str, *, request_id: str | None = None
    ) -> None:
        """Let the workflow see the last failure. NotFound if it is no dead letter."""
        chosen = request_id or new_request_id()
        self._call(wire.FailDeadLetter(workflow_id, activity_id, request_id=chosen))

    def complete_dead_letter(
        self, workflow_id: str, activity_id: str, result: Any, *, request_id: str | None = None
    ) -> None:
        """Give the workflow this result, made by hand. NotFound if it is no dead letter."""
        chosen = request_id or new_request_id()
        raw = wire.raw_payload(values.encode_result(result))
        self._call(wire.CompleteDeadLetter(workflow_id, activity_id, raw, chosen))

    # --- activities by hand ------------------------------------------------------
    def poll_activity_task(
        self,
        task_queue: str = "default",
        worker_id: str = "w1",
        types: Sequence[str] | None = None,
        wait_ms: int = 0,
        *,
        request_id: str | None = None,
    ) -> Answer | None:
        """One activity task (token, workflow_id, activity_id, type, attempt, input, …) or None.

        Its lease names no worker process: it ends by a report or by its deadline only.
        """
        chosen = request_id or new_request_id()
        kinds = None if types is None else tuple(types)
        task = self._call(
            wire.PollActivityTask(worker_id, task_queue, kinds, wait_ms, chosen), wait_ms
        )
        return None if task is None else Answer(task)

    def complete_activity_task(self, token: str, result: Any = None) -> None:
        """Report that the attempt is done. FailedPrecondition if the token is not live."""
        raw = wire.raw_payload(values.encode_result(result))
        self._call(wire.CompleteActivityTask(token, raw))

    def fail_activity_task(self, token: str, failure: Failure) -> str:
        """Report that the attempt failed; what became of the activity: "Retrying", "DeadLettered"
        or "Dropped". FailedPrecondition if the token is not live.
        """
        args = {name: getattr(failure, name) for name in Failure.__struct_fields__}
        ok = self._call(wire.FailActivityTask(token, wire.FailureArgs(**args)))
        state: str = ok["state"]
        return state

    def record_heartbeat(self, token: str, details: Any = None) -> int:
        """Move the lease's deadline and keep `details` (None: those before); the new deadline."""
        raw = wire.ABSENT if details is None else wire.raw_payload(values.encode(details))
        deadline_ms: int = self._call(wire.RecordHeartbeat(token, raw))["lease_deadline_ms"]
        return deadline_ms


def new_request_id() -> str:
    """A request id that nobody else has."""
    return os.urandom(12).hex()


def start_args(
    workflow: str | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    workflow_id: str,
    request_id: str | None = None,
    task_queue: str = "default",
) -> wire.StartWorkflow:
    """The request that starts `workflow`, a function or a name, with these arguments."""
    is_name = isinstance(workflow, str)
    name = workflow if isinstance(workflow, str) else _name_of(workflow)
    payload = values.encode_input(None if is_name else workflow, args, kwargs)  # type: ignore[arg-type]
    return wire.StartWorkflow(
        name,
        workflow_id,
        wire.raw_payload(payload),
        request_id or new_request_id(),
        task_queue,
    )


def _name_of(function: Callable[..., Any]) -> str:
    """The name under which a workflow function was defined."""
    definition = getattr(function, "__perdure_workflow__", None)
    name: str = getattr(definition, "name", None) or function.__name__
    return name
