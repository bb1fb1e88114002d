"""The client of an engine in this process: the same methods as Client, answered without a wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import values, views, wire
from perdure.core.commands import (
    AnyAnswer,
    AnyCommand,
    CompleteActivity,
    CompleteDeadLetter,
    Deadline,
    Done,
    FailActivity,
    FailDeadLetter,
    RecordHeartbeat,
    RedriveDeadLetter,
    Refusal,
    StartWorkflow,
)
from perdure.core.records import Event, Payload, WorkflowStarted, decode_event
from perdure.core.state import Activity, Execution, Status
from perdure.errors import DeadlineExceeded, NotFound, WorkflowFailed, from_code
from perdure.local import PAGE_BYTES, Core
from perdure.operations import Operations
from perdure.store.protocol import WorkflowFilter

FORM = wire.MSGPACK
LIST_LIMIT = 100


class LocalClient(Operations):
    """What Client is for a node, for an engine in memory. Nothing is waited for: what is not there is not."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def result(self, workflow_id: str, timeout_ms: int | None = None) -> Any:
        """What the workflow returned. DeadlineExceeded at once if it has not ended: run the engine first."""
        return self._call(wire.GetResult(workflow_id, timeout_ms))["result"]

    def _call(self, args: wire.Args, wait_ms: int = 0) -> Any:
        return _OPERATIONS[type(args)](self, args)

    def _ask(self, command: AnyCommand) -> AnyAnswer:
        answer = self._core.ask(command)
        if isinstance(answer, Refusal):
            raise from_code(answer.code, answer.message)
        return answer

    # --- commands -----------------------------------------------------------
    def _start(self, args: wire.StartWorkflow) -> Any:
        payload = FORM.payload(args.input, "input")
        self._ask(
            StartWorkflow(
                args.workflow_id,
                args.type,
                args.task_queue,
                payload,
                args.request_id,
                values.digest(payload, args.type, args.task_queue),
            )
        )
        return {"workflow_id": args.workflow_id, "run": 1}

    def _redrive(self, args: wire.RedriveDeadLetter) -> Any:
        self._ask(RedriveDeadLetter(args.workflow_id, args.activity_id, args.request_id))
        return {}

    def _fail_dead(self, args: wire.FailDeadLetter) -> Any:
        self._ask(FailDeadLetter(args.workflow_id, args.activity_id, args.request_id))
        return {}

    def _complete_dead(self, args: wire.CompleteDeadLetter) -> Any:
        result = FORM.payload(args.result, "result")
        self._ask(
            CompleteDeadLetter(args.workflow_id, args.activity_id, result, args.request_id)
        )
        return {}

    def _complete(self, args: wire.CompleteActivityTask) -> Any:
        self._ask(CompleteActivity(args.token, FORM.payload(args.result, "result")))
        return {}

    def _fail(self, args: wire.FailActivityTask) -> Any:
        answer = self._ask(FailActivity(args.token, args.failure.to_failure()))
        return {"state": answer.state if isinstance(answer, Done) else ""}

    def _heartbeat(self, args: wire.RecordHeartbeat) -> Any:
        has_details = args.details is not wire.ABSENT
        details = FORM.payload(args.details, "details")
        answer = self._ask(RecordHeartbeat(args.token, 0, details, has_details))
        deadline_ms = answer.deadline_ms if isinstance(answer, Deadline) else 0
        return {"lease_deadline_ms": deadline_ms, "cancel_requested": False}

    def _poll(self, args: wire.PollActivityTask) -> Any:
        found = self._core.grant(args.task_queue, args.worker_id, args.types, args.request_id)
        if found is None:
            return None
        execution, held = found
        workflow_id = execution.workflow_id
        token = self._core.token(workflow_id, held)
        return {
            "token": token,
            "workflow_id": workflow_id,
            "workflow_type": execution.workflow_type,
            "activity_id": held.activity_id,
            "type": held.activity_type,
            "task_queue": held.options.task_queue,
            "attempt": held.attempt,
            "input": views.value(self._core.input_of(workflow_id, held)),
            "heartbeat_details": views.value(held.details),
            "idempotency_key": held.key(workflow_id),
            "lease_deadline_ms": None if held.lease is None else held.lease.deadline_ms,
            "scheduled_ms": held.scheduled_ms,
        }

    # --- reads --------------------------------------------------------------
    def _execution(self, workflow_id: str) -> Execution:
        execution = self._core.execution(workflow_id)
        if execution is None:
            raise NotFound(f"there is no workflow {workflow_id!r}")
        return execution

    def _event(self, workflow_id: str, event_id: int) -> Event | None:
        raw = self._core.reader.event(workflow_id, event_id)
        return None if raw is None else decode_event(raw)

    def _result(self, args: wire.GetResult) -> Any:
        execution = self._execution(args.workflow_id)
        if execution.is_open:
            raise DeadlineExceeded(
                f"workflow {args.workflow_id!r} has not ended; run the engine, then ask again"
            )
        closing = self._event(args.workflow_id, execution.last_event_id)
        if execution.status is not Status.COMPLETED:
            failure = getattr(closing, "failure", None)
            said = f": {failure.type}: {failure.message}" if failure else ""
            status = execution.status.value
            message = f"workflow {args.workflow_id!r} ended {status}{said}"
            raise WorkflowFailed(message, status, failure)
        return {"status": execution.status.value, "result": views.value(_result_of(closing))}

    def _describe(self, args: wire.DescribeWorkflow) -> Any:
        workflow_id = args.workflow_id
        execution = self._execution(workflow_id)
        first = self._event(workflow_id, 1)
        closing = None if execution.is_open else self._event(workflow_id, execution.last_event_id)
        payload = first.input if isinstance(first, WorkflowStarted) else None
        return views.describe(execution, payload, closing)

    def _history(self, args: wire.GetHistory) -> Any:
        self._execution(args.workflow_id)
        after = args.after or 0
        page = self._core.reader.events(args.workflow_id, after, 2**31, PAGE_BYTES)
        shown = views.events(map(decode_event, page), after, args.limit)
        return {"events": shown, "next_after": None}

    def _list(self, args: wire.ListWorkflows) -> Any:
        self._core.settle()
        where = WorkflowFilter(
            args.type,
            args.status,
            args.pending_state,
            args.failure_type,
            args.activity_type,
            None if args.older_than_ms is None else self._core.now_ms() - args.older_than_ms,
        )
        found, page = self._core.reader.list_workflows(where, args.limit or LIST_LIMIT, args.page)
        return {"workflows": [views.summary(one) for one in found], "next_page": page}

    def _dead_letters(self, args: wire.ListDeadLetters) -> Any:
        self._core.settle()
        whole = args.workflow_id is not None and args.activity_id is not None
        found = [
            (held.dead_ms or 0, workflow_id, workflow_type, held)
            for workflow_id, workflow_type, held in self._core.reader.dead_letters()
            if self._matches(args, workflow_id, held)
        ]
        found.sort(key=lambda one: (one[0], one[1], one[3].activity_id))
        shown = []
        for _, workflow_id, workflow_type, held in found[: args.limit]:
            view = views.dead_letter(workflow_id, workflow_type, held)
            if whole:
                payload = self._core.input_of(workflow_id, held)
                view |= views.dead_letter_rest(held, payload, held.details)
            shown.append(view)
        return {"dead_letters": shown, "next_page": None}

    def _matches(self, args: wire.ListDeadLetters, workflow_id: str, held: Activity) -> bool:
        failure = held.last_failure
        wanted = (
            (args.workflow_id, workflow_id),
            (args.activity_id, held.activity_id),
            (args.activity_type, held.activity_type),
            (args.failure_type, failure.type if failure else None),
        )
        if any(want is not None and want != has for want, has in wanted):
            return False
        age_ms = self._core.now_ms() - (held.dead_ms or 0)
        return args.older_than_ms is None or age_ms > args.older_than_ms


def _result_of(closing: Event | None) -> Payload | None:
    return getattr(closing, "result", None)


_OPERATIONS: dict[type[wire.Args], Callable[[LocalClient, Any], Any]] = {
    wire.StartWorkflow: LocalClient._start,
    wire.GetResult: LocalClient._result,
    wire.DescribeWorkflow: LocalClient._describe,
    wire.GetHistory: LocalClient._history,
    wire.ListWorkflows: LocalClient._list,
    wire.ListDeadLetters: LocalClient._dead_letters,
    wire.RedriveDeadLetter: LocalClient._redrive,
    wire.FailDeadLetter: LocalClient._fail_dead,
    wire.CompleteDeadLetter: LocalClient._complete_dead,
    wire.PollActivityTask: LocalClient._poll,
    wire.CompleteActivityTask: LocalClient._complete,
    wire.FailActivityTask: LocalClient._fail,
    wire.RecordHeartbeat: LocalClient._heartbeat,
}
