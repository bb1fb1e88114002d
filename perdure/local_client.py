"""The client of an engine in this process: the same methods as Client, answered without a wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import reads, values, views, wire
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
from perdure.core.dead_letters import DeadLetterFilter
from perdure.core.state import Status
from perdure.errors import DeadlineExceeded, WorkflowFailed, from_code
from perdure.local import Core
from perdure.operations import Operations
from perdure.store.protocol import Reader
from perdure.waiting import Offer

FORM = wire.MSGPACK


class LocalClient(Operations):
    """What Client is for a node, for an engine in memory. Nothing is waited for."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def result(self, workflow_id: str, timeout_ms: int | None = None) -> Any:
        """What the workflow returned. DeadlineExceeded at once if it has not ended."""
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
        self._ask(CompleteDeadLetter(args.workflow_id, args.activity_id, result, args.request_id))
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
        core = self._core
        entry = core.grant(args.task_queue, args.worker_id, args.types, args.request_id)
        if entry is None:
            return None
        held, workflow_id = entry.activity, entry.work.workflow_id
        return {
            "token": core.token(entry),
            "workflow_id": workflow_id,
            "workflow_type": entry.work.execution.workflow_type,
            "activity_id": held.activity_id,
            "type": held.activity_type,
            "attempt": held.attempt,
            "input": views.value(core.input_of(workflow_id, held)),
            "heartbeat_details": views.value(reads.details_of(core.reader, workflow_id, held)),
            "idempotency_key": held.key(workflow_id),
            "lease_deadline_ms": None if held.lease is None else held.lease.deadline_ms,
            "scheduled_ms": held.scheduled_ms,
        }

    # --- reads --------------------------------------------------------------
    def _reader(self) -> Reader:
        """What is durable now; what fell due before is done first."""
        self._core.settle()
        return self._core.reader

    def _result(self, args: wire.GetResult) -> Any:
        workflow_id, reader = args.workflow_id, self._reader()
        execution = reads.execution(reader, workflow_id)
        if execution.is_open:
            raise DeadlineExceeded(
                f"workflow {workflow_id!r} has not ended; run the engine, then ask again"
            )
        closed = reads.closed(reader, execution)
        if closed.status == Status.COMPLETED:
            return {"status": closed.status, "result": views.value(closed.result)}
        why = closed.failure
        said = f": {why.type}: {why.message[:1_000]}" if why else ""
        text = f"workflow {workflow_id!r} ended {closed.status}{said}"
        raise WorkflowFailed(text, closed.status, why)

    def _describe(self, args: wire.DescribeWorkflow) -> Any:
        core = self._core
        # One that serves every queue; what it has not may still be polled for.
        offer = Offer(None, tuple(core.activities), tuple(core.workflows))
        return reads.describe(
            self._reader(), args.workflow_id, [offer], core.now_ms(), in_engine=True
        )

    def _history(self, args: wire.GetHistory) -> Any:
        return reads.history(self._reader(), args)

    def _list(self, args: wire.ListWorkflows) -> Any:
        return reads.list_workflows(self._reader(), args, self._core.now_ms())

    def _dead_letters(self, args: wire.ListDeadLetters) -> Any:
        where = DeadLetterFilter(
            args.workflow_id,
            args.activity_id,
            args.activity_type,
            args.failure_type,
            args.older_than_ms,
        )
        limit = args.limit or reads.LIST_LIMIT
        found, next_page = self._core.dead_letters(where, limit, args.page)
        whole = bool(args.workflow_id and args.activity_id)
        shown = [reads.dead_letter(self._core.reader, entry, whole=whole) for entry in found]
        return {"dead_letters": shown, "next_page": next_page}


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
