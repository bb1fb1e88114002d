"""The operations as Python methods, over a node or over an engine in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, overload

from perdure import values, wire
from perdure.answers import Answer, Page, to_answer
from perdure.errors import InvalidArgument
from perdure.failures import Failure
from perdure.flow_operations import FlowOperations
from perdure.handles import Result, WorkflowHandle
from perdure.interacting import Interactions
from perdure.request_ids import new_request_id
from perdure.schedule_operations import ScheduleOperations
from perdure.targets import target
from perdure.wire_checks import (
    PAGE_MAX,
    Findable,
    attributes_of,
    check_count,
    check_length,
    texts_of,
)

KEEP: Any = object()
"""Stands for the input that an activity has."""

__all__ = ["KEEP", "Operations", "WorkflowHandle", "new_request_id", "start_args"]


class Operations(Interactions, FlowOperations, ScheduleOperations):
    """What can be asked of Perdure. Every method raises a perdure.errors.PerdureError.

    Where a method takes no `request_id`, a random one is chosen before the first send, so that
    whatever is sent again takes effect once.
    """

    # --- workflows -------------------------------------------------------------
    @overload
    def start_workflow(
        self,
        workflow: Callable[..., Awaitable[Result]],
        *args: Any,
        workflow_id: str,
        request_id: str | None = None,
        task_queue: str = "default",
        start_delay_ms: int | None = None,
        timeout_ms: int | None = None,
        search_attributes: Mapping[str, Findable] | None = None,
        **kwargs: Any,
    ) -> WorkflowHandle[Result]: ...

    @overload
    def start_workflow(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        workflow_id: str,
        request_id: str | None = None,
        task_queue: str = "default",
        start_delay_ms: int | None = None,
        timeout_ms: int | None = None,
        search_attributes: Mapping[str, Findable] | None = None,
        **kwargs: Any,
    ) -> WorkflowHandle[Any]: ...

    def start_workflow(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        workflow_id: str,
        request_id: str | None = None,
        task_queue: str = "default",
        start_delay_ms: int | None = None,
        timeout_ms: int | None = None,
        search_attributes: Mapping[str, Findable] | None = None,
        **kwargs: Any,
    ) -> WorkflowHandle[Any]:
        """Start the workflow function, or the one of this name, with these arguments.

        `start_delay_ms`: until its first step. `timeout_ms`: of all its runs; then it fails with
        WorkflowTimeout. `search_attributes`: what it can be found by. AlreadyExists if the id was
        ever used, except by a start with the same `request_id` and arguments, which is answered
        as the first time.
        """
        options = start_options(start_delay_ms, timeout_ms, search_attributes)
        self._call(
            start_args(workflow, args, kwargs, workflow_id, request_id, task_queue, options),
        )
        return WorkflowHandle(self, workflow_id)

    @overload
    def signal_with_start(
        self,
        workflow: Callable[..., Awaitable[Result]],
        *args: Any,
        workflow_id: str,
        signal: str,
        signal_args: Sequence[Any] = (),
        request_id: str | None = None,
        task_queue: str = "default",
        start_delay_ms: int | None = None,
        timeout_ms: int | None = None,
        search_attributes: Mapping[str, Findable] | None = None,
        **kwargs: Any,
    ) -> WorkflowHandle[Result]: ...

    @overload
    def signal_with_start(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        workflow_id: str,
        signal: str,
        signal_args: Sequence[Any] = (),
        request_id: str | None = None,
        task_queue: str = "default",
        start_delay_ms: int | None = None,
        timeout_ms: int | None = None,
        search_attributes: Mapping[str, Findable] | None = None,
        **kwargs: Any,
    ) -> WorkflowHandle[Any]: ...

    def signal_with_start(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        workflow_id: str,
        signal: str,
        signal_args: Sequence[Any] = (),
        request_id: str | None = None,
        task_queue: str = "default",
        start_delay_ms: int | None = None,
        timeout_ms: int | None = None,
        search_attributes: Mapping[str, Findable] | None = None,
        **kwargs: Any,
    ) -> WorkflowHandle[Any]:
        """Hand a workflow the signal `signal`, and start it first where there is none of this id.

        Both in one step: no other sees one without the other. Arguments and options are of the
        start, as of `start_workflow`, and say nothing to a workflow that is there. AlreadyExists if
        that is of another type, FailedPrecondition if it has ended. Asked again with the same
        `request_id`, neither is done twice.
        """
        options = start_options(start_delay_ms, timeout_ms, search_attributes)
        first = start_args(workflow, args, kwargs, workflow_id, request_id, task_queue, options)
        raw = wire.raw_payload(_arguments("signal_args", signal_args))
        chosen = first.request_id
        self._call(wire.SignalWorkflow(workflow_id, signal, raw, chosen, _where_none(first)))
        return WorkflowHandle(self, workflow_id)

    def update_with_start(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        workflow_id: str,
        update: str,
        update_args: Sequence[Any] = (),
        request_id: str | None = None,
        answer_timeout_ms: int | None = None,
        task_queue: str = "default",
        start_delay_ms: int | None = None,
        timeout_ms: int | None = None,
        search_attributes: Mapping[str, Findable] | None = None,
        **kwargs: Any,
    ) -> Any:
        """What a workflow answers to the update `update`, started first where there is none.

        As `signal_with_start`, but that the answer is waited for, `answer_timeout_ms` at most, as
        by `update_workflow`.
        """
        options = start_options(start_delay_ms, timeout_ms, search_attributes)
        first = start_args(workflow, args, kwargs, workflow_id, request_id, task_queue, options)
        return self._updated(
            workflow_id,
            update,
            _arguments("update_args", update_args),
            first.request_id or "",
            answer_timeout_ms,
            _where_none(first),
        )

    def result(
        self, workflow_id: str, timeout_ms: int | None = None, *, run: int | None = None
    ) -> Any:
        """What the workflow returned, waited for; None waits as long as it takes.

        A workflow that continues as new is followed to its last run, unless `run` names one. That
        one may have ended by continuing: WorkflowFailed with the status ContinuedAsNew.
        WorkflowFailed (status, failure) if it ended otherwise than Completed, DeadlineExceeded if
        it did not end within `timeout_ms`, NotFound, Unavailable if no node answers meanwhile.
        """
        return self._waited(
            lambda wait_ms: wire.GetResult(workflow_id, wait_ms, run),
            timeout_ms,
            f"workflow {workflow_id!r} has not ended",
        )["result"]

    def describe_workflow(self, workflow_id: str, *, run: int | None = None) -> Answer:
        """The state of the newest run (or of `run`), with the fields of `wf describe --json`."""
        return Answer(self._call(wire.DescribeWorkflow(workflow_id, run)))

    def history(
        self,
        workflow_id: str,
        after: int = 0,
        limit: int | None = None,
        *,
        run: int | None = None,
    ) -> list[Answer]:
        """The events of the newest run (or of `run`) with an id above `after`, `limit` at most
        (None: all).
        """
        check_count("limit", limit)
        events: list[Answer] = []
        while limit is None or len(events) < limit:
            size = PAGE_MAX if limit is None else min(limit - len(events), PAGE_MAX)
            ok = self._call(wire.GetHistory(workflow_id, after, size, run))
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
        younger_than_ms: int | None = None,
        attempts: int | None = None,
        attributes: Mapping[str, Findable] | None = None,
        parent: str | None = None,
        stuck: bool = False,
    ) -> Page:
        """Runs of workflows that match, newest first; `limit` at most 1 000.

        `older_than_ms` and `younger_than_ms` are ages since the start. What is said of activities
        (pending_state, failure_type, activity_type, `attempts` at least) holds for one and the
        same open one. `attributes`: search attributes that it has. `parent`: whose child it is.
        `stuck`: only those that go no further until somebody acts; `.stuck` of each says why in a
        word: mismatch, history_limit, parked, dead_letter, no_worker (None: it is not). A page may
        be short of `limit`, and one of those empty, though there is a next one.
        """
        ok = self._call(
            wire.ListWorkflows(
                type,
                status,
                pending_state,
                failure_type,
                activity_type,
                older_than_ms,
                limit,
                page,
                younger_than_ms,
                attempts,
                attributes_of("attributes", attributes),
                parent,
                stuck,
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
        self,
        workflow_id: str,
        activity_id: str,
        input: Any = KEEP,
        request_id: str | None = None,
        *,
        by: str | None = None,
    ) -> None:
        """Try a dead letter again from attempt 1. NotFound if it is none.

        `input`: instead of the one that it was scheduled with; a list is the positional arguments,
        a dict the keyword arguments. `by`: who does it, for the history.
        """
        chosen = request_id or new_request_id()
        raw = wire.ABSENT if input is KEEP else wire.raw_payload(values.encode(input))
        self._call(wire.RedriveDeadLetter(workflow_id, activity_id, raw, chosen, by))

    def fail_dead_letter(
        self, workflow_id: str, activity_id: str, request_id: str | None = None
    ) -> None:
        """Let the workflow see the last failure. NotFound if it is no dead letter."""
        chosen = request_id or new_request_id()
        self._call(wire.FailDeadLetter(workflow_id, activity_id, request_id=chosen))

    def complete_dead_letter(
        self, workflow_id: str, activity_id: str, result: Any, request_id: str | None = None
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
        request_id: str | None = None,
    ) -> Answer | None:
        """One activity task (token, workflow_id, activity_id, type, attempt, input, …) or None.

        Its lease names no worker process: it ends by a report or by its deadline only.
        """
        check_length("wait_ms", wait_ms)
        chosen = request_id or new_request_id()
        kinds = texts_of("types", types)
        task = self._call(
            wire.PollActivityTask(worker_id, task_queue, kinds, wait_ms, chosen), wait_ms or 0
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
        ok = self._call(wire.FailActivityTask(token, _failure_args(failure)))
        state: str = ok["state"]
        return state

    def record_heartbeat(self, token: str, details: Any = None) -> int:
        """Move the lease's deadline and keep `details` (None: those before); the new deadline."""
        raw = wire.ABSENT if details is None else wire.raw_payload(values.encode(details))
        deadline_ms: int = self._call(wire.RecordHeartbeat(token, raw))["lease_deadline_ms"]
        return deadline_ms


def start_options(
    start_delay_ms: int | None,
    timeout_ms: int | None,
    search_attributes: Mapping[str, Findable] | None,
) -> wire.StartOptions | None:
    """The options of a start; None where nothing is said."""
    if start_delay_ms is None and timeout_ms is None and search_attributes is None:
        return None
    for field, length_ms in (("start_delay_ms", start_delay_ms), ("timeout_ms", timeout_ms)):
        check_length(field, length_ms)
    attributes = attributes_of("search_attributes", search_attributes)
    return wire.StartOptions(start_delay_ms, timeout_ms, attributes)


def start_args(
    workflow: str | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    workflow_id: str,
    request_id: str | None = None,
    task_queue: str = "default",
    options: wire.StartOptions | None = None,
) -> wire.StartWorkflow:
    """The request that starts `workflow`, a function or a name, with these arguments."""
    name, input = target(workflow, args, kwargs)
    return wire.StartWorkflow(
        name,
        workflow_id,
        input,
        request_id or new_request_id(),
        task_queue,
        options,
    )


def _failure_args(failure: object) -> wire.FailureArgs:
    if not isinstance(failure, Failure):
        text = f"failure must be a perdure.failures.Failure, not a {type(failure).__name__}"
        raise InvalidArgument(text, field="failure")
    return wire.FailureArgs(**{name: getattr(failure, name) for name in Failure.__struct_fields__})


def _arguments(field: str, args: Sequence[Any]) -> bytes | None:
    if not isinstance(args, list | tuple):
        text = f"{field} must be a list of arguments, not {args!r:.80}"
        raise InvalidArgument(text, field=field)
    return values.encode_input(None, tuple(args), {})


def _where_none(first: wire.StartWorkflow) -> wire.StartFirst:
    """The same start, for where there is no workflow of its id."""
    return wire.StartFirst(first.type, first.input, first.task_queue, first.options)
