"""The client of an engine in this process: the same methods as Client, answered without a wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perdure import event_feed, reads, schedule_commanding, schedule_views, views, wire, wire_flow
from perdure.answers import Answer
from perdure.commanding import command_of, signalled, update_error
from perdure.core.commands import (
    AnyAnswer,
    AnyCommand,
    Deadline,
    Done,
    RecordHeartbeat,
    Refusal,
    WasReset,
)
from perdure.core.dead_letters import DeadLetterFilter
from perdure.core.ids import of_execution
from perdure.core.state import Status
from perdure.errors import (
    DeadlineExceeded,
    InvalidArgument,
    PerdureError,
    WorkflowFailed,
    from_code,
)
from perdure.flow_commands import pauses_view, reset_view
from perdure.local import ROUNDS_MAX, Core
from perdure.operations import Operations
from perdure.store.protocol import Reader
from perdure.waiting import Offer
from perdure.wire_checks import check_length

FORM = wire.MSGPACK


class LocalClient(Operations):
    """What Client is for a node, for an engine in memory. Nothing is waited for."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def _waited(self, of: Callable[[int], wire.Args], timeout_ms: int | None, too_late: str) -> Any:
        """Once: nothing is waited for here."""
        check_length("timeout_ms", timeout_ms)
        return self._call(of(0))

    def _call(self, args: wire.Args, wait_ms: int = 0) -> Any:
        args = FORM.checked(args)  # Python takes what no node would.
        operation = _OPERATIONS.get(type(args))
        return self._about_schedules(args) if operation is None else operation(self, args)

    def call_many(
        self, calls: Sequence[wire.Args], timeout_ms: int | None = None
    ) -> list[Any | PerdureError]:
        """The `ok` or the error of each call, in order. Nothing is waited for."""
        outcomes: list[Any | PerdureError] = []
        for args in calls:
            try:
                outcomes.append(self._call(args))
            except PerdureError as error:
                outcomes.append(error)
        return outcomes

    def _about_schedules(self, args: wire.Args) -> Any:
        command = schedule_commanding.command_of(FORM, args)
        if command is None:
            return schedule_views.look(self._reader(), args, self._core.now_ms())
        self._ask(command)
        return {}

    def _ask(self, command: AnyCommand) -> AnyAnswer:
        answer = self._core.ask(command)
        if isinstance(answer, Refusal):
            raise from_code(answer.code, answer.message)
        return answer

    # --- commands -----------------------------------------------------------
    def _change(self, args: wire.Args) -> Any:
        self._ask(command_of(FORM, args))
        return {}

    def _signal(self, args: wire.SignalWorkflow) -> Any:
        return signalled(self._ask(command_of(FORM, args)))

    def _start(self, args: wire.StartWorkflow) -> Any:
        self._ask(command_of(FORM, args))
        return {"workflow_id": args.workflow_id, "run": 1}

    def _reset(self, args: wire_flow.ResetWorkflow) -> Any:
        answer = self._ask(command_of(FORM, args))
        assert isinstance(answer, WasReset)
        return reset_view(answer)

    def _pauses(self, args: wire_flow.ListPauses) -> Any:
        return pauses_view(self._reader().gates())

    def _explain(self, args: wire_flow.ExplainWorkflow) -> Any:
        return self._core.explain(args.workflow_id, args.activity_id)

    def _fail(self, args: wire.FailActivityTask) -> Any:
        answer = self._ask(command_of(FORM, args))
        return {"state": answer.state if isinstance(answer, Done) else ""}

    def _heartbeat(self, args: wire.RecordHeartbeat) -> Any:
        has_details = args.details is not wire.ABSENT
        details = FORM.payload(args.details, "details")
        answer = self._ask(RecordHeartbeat(args.token, 0, details, has_details))
        if not isinstance(answer, Deadline):
            return {"lease_deadline_ms": 0, "cancel_requested": False}
        return {
            "lease_deadline_ms": answer.deadline_ms,
            "cancel_requested": answer.cancel_requested,
        }

    def _poll(self, args: wire.PollActivityTask) -> Any:
        core = self._core
        entry = core.grant(args.task_queue, args.worker_id, args.types, args.request_id)
        if entry is None:
            return None
        held, workflow_id = entry.activity, entry.work.workflow_id
        id_, run = of_execution(workflow_id)
        return {
            "token": core.token(entry),
            "workflow_id": id_,
            "run": run,
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
        execution = reads.execution(reader, workflow_id, args.run)
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

    def _query(self, args: wire.QueryWorkflow) -> Any:
        """Of what has been committed; it need not have been run on from there."""
        core = self._core
        execution = reads.execution(self._reader(), args.workflow_id, args.run)
        payload = FORM.payload(args.input, "input")
        return {"result": views.value(core.query(execution, args.name, payload))}

    def _update(self, args: wire.UpdateWorkflow) -> Any:
        """All that can run now is run until there is the answer; the clock stands still."""
        core = self._core
        self._ask(command_of(FORM, args))
        end = None
        for _ in range(ROUNDS_MAX):
            ran = core.run_workflow_tasks()
            end = core.update_ended(args.workflow_id, args.request_id)
            if end is not None or not (core.run_activities() or ran):
                break
        if end is None:
            raise DeadlineExceeded(
                f"the update {args.name!r} of workflow {args.workflow_id!r} (request_id"
                f" {args.request_id!r}: ask again with it) is not done; run the engine first"
            )
        if end.failure is not None or end.rejected:
            raise update_error(args, end)
        return {"result": views.value(end.result)}

    def _events(self, args: wire.ReadEvents) -> Any:
        reader = self._reader()
        start = event_feed.start_of(args.after, reader)
        wanted = event_feed.wanted_of(args)
        return event_feed.read(reader, start, wanted, args.limit or event_feed.LIMIT).as_answer()

    def events(
        self,
        after: str | None = None,
        kinds: Sequence[str] | None = None,
        workflow_id: str | None = None,
        *,
        follow: bool = False,
    ) -> Iterator[Answer]:
        """As Client.events, of what has happened so far: nothing is waited for."""
        if follow:
            raise InvalidArgument("an engine in memory has nothing to wait for", field="follow")
        return super().events(after, kinds, workflow_id, follow=False)

    def _describe(self, args: wire.DescribeWorkflow) -> Any:
        reader = self._reader()  # First what fell due before now, each at its own time.
        now_ms = self._core.now_ms()
        core, offers = self._core, self._offers()
        grace_ms = core.recovery_grace_ms
        return reads.describe(reader, args, offers, now_ms, in_engine=True, grace_ms=grace_ms)

    def _history(self, args: wire.GetHistory) -> Any:
        return reads.history(self._reader(), args)

    def _list(self, args: wire.ListWorkflows) -> Any:
        reader = self._reader()
        now_ms = self._core.now_ms()
        return reads.list_workflows(reader, args, self._offers(), now_ms, in_engine=True)

    def _offers(self) -> list[Offer]:
        """One that serves every queue; what it has not may still be polled for."""
        core = self._core
        return [Offer(None, tuple(core.activities), tuple(core.workflows))]

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
    wire.UpdateWorkflow: LocalClient._update,
    wire.QueryWorkflow: LocalClient._query,
    wire.ReadEvents: LocalClient._events,
    wire.GetResult: LocalClient._result,
    wire.DescribeWorkflow: LocalClient._describe,
    wire.GetHistory: LocalClient._history,
    wire.ListWorkflows: LocalClient._list,
    wire.ListDeadLetters: LocalClient._dead_letters,
    wire.SignalWorkflow: LocalClient._signal,
    wire.CancelWorkflow: LocalClient._change,
    wire.TerminateWorkflow: LocalClient._change,
    wire.RedriveDeadLetter: LocalClient._change,
    wire.FailDeadLetter: LocalClient._change,
    wire.CompleteDeadLetter: LocalClient._change,
    wire.PollActivityTask: LocalClient._poll,
    wire.CompleteActivityTask: LocalClient._change,
    wire.FailActivityTask: LocalClient._fail,
    wire.RecordHeartbeat: LocalClient._heartbeat,
    wire_flow.ListPauses: LocalClient._pauses,
    wire_flow.ExplainWorkflow: LocalClient._explain,
    **dict.fromkeys(wire_flow.CHANGES, LocalClient._change),
    wire_flow.ResetWorkflow: LocalClient._reset,
}
