"""The children of one workflow, and what it says to other workflows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from perdure import values, workflow
from perdure.core import commands, records
from perdure.core.ids import of_execution
from perdure.core.start import StartTerms
from perdure.errors import CODES, Internal, InvalidArgument
from perdure.failures import Failure, engine_failure
from perdure.wire_checks import check_id
from perdure.worker import mismatch
from perdure.worker.loop import Evicted
from perdure.worker.notes import checked_attributes
from perdure.workflow.children import ChildHandle, ChildOptions, Sent

if TYPE_CHECKING:
    from perdure.worker.workflow_side import WorkflowSide

CANCELLED = "Cancelled"
_PLAIN = StartTerms()


class Offspring:
    """The children of one workflow (perdure.workflow.runtime.Children)."""

    def __init__(self, side: WorkflowSide) -> None:
        self._side = side
        self._ids: set[str] = set()
        self._default_ids = 0
        # Those that run.
        self.handles: dict[str, tuple[ChildHandle[Any], Callable[..., Any] | None]] = {}
        self.earlier: dict[str, ChildHandle[Any]] = {}  # Of the runs before.
        self._signals_sent = 0
        self._sent: deque[Sent] = deque()  # Said to others, without an event so far.

    # --- the workflow's -----------------------------------------------------------
    def start(
        self,
        target: workflow.Definition | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: ChildOptions,
    ) -> ChildHandle[Any]:
        """Issue the step that starts a child."""
        side = self._side
        if side.loop.is_closing:
            raise Evicted
        function = None if isinstance(target, str) else target.function
        name = target if isinstance(target, str) else target.name
        payload = values.encode_input(function, args, kwargs)
        pairs = checked_attributes(options.search_attributes)
        attributes = tuple((key, value) for key, value in pairs if value is not None)
        child_id = self._id(options.workflow_id)
        terms = StartTerms(
            delay_ms=options.start_delay_ms, timeout_ms=options.timeout_ms, attributes=attributes
        )
        self._ids.add(child_id)
        loop = side.loop
        handle = ChildHandle[Any](self, child_id, name, loop=loop, rank=loop.next_rank())
        self.handles[child_id] = (handle, function)
        side.issue_here(
            commands.StartChild(
                child_id,
                name,
                options.task_queue or side.task_queue,
                payload,
                options.parent_close,
                None if terms == _PLAIN else terms,
            )
        )
        return handle

    def inherit(self, child_ids: Iterable[str]) -> None:
        """Take over the children of the run before."""
        loop = self._side.loop
        for child_id in child_ids:
            handle = ChildHandle[Any](self, child_id, "", loop=loop, rank=loop.next_rank())
            self._ids.add(child_id)
            self.handles[child_id] = (handle, None)
            self.earlier[child_id] = handle

    def _id(self, said: str | None) -> str:
        if said is None:
            self._default_ids += 1
            workflow_id, run = of_execution(self._side.workflow_id)
            parent = workflow_id if run == 1 else f"{workflow_id}#{run}"
            said = f"{parent}/@{self._default_ids}"
            check_id("workflow_id of the child", said)
        if said in self._ids:
            raise InvalidArgument(
                f"workflow_id {said!r} is used for two children of this workflow: ids are never "
                "used again",
                field="workflow_id",
            )
        return said

    def cancel(self, handle: ChildHandle[Any]) -> bool:
        """Issue the step that asks a child to end, once. True: there is nothing to wait for."""
        if self._side.loop.is_closing or handle.id not in self.handles:
            return True
        if not handle.cancel_requested:
            handle.cancel_requested = True
            self._side.issue_here(commands.CancelChild(handle.id))
        return False

    def signal(
        self, workflow_id: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sent:
        """Issue the step that signals a workflow."""
        if self._side.loop.is_closing:
            raise Evicted
        payload = values.encode_input(None, args, kwargs)
        self._signals_sent += 1
        is_answered = self._side.known.is_answered(self._signals_sent)
        sent = self._say(workflow_id, f"signal {name!r} to", is_answered=is_answered)
        self._side.issue_here(commands.SendSignal(workflow_id, name, payload, is_answered))
        return sent

    def cancel_external(self, workflow_id: str, reason: str) -> Sent:
        """Issue the step that asks a workflow to end."""
        if self._side.loop.is_closing:
            raise Evicted
        sent = self._say(workflow_id, "request to end to", is_answered=True)
        self._side.issue_here(commands.CancelExternal(workflow_id, reason))
        return sent

    def _say(self, workflow_id: str, what: str, *, is_answered: bool) -> Sent:
        loop = self._side.loop
        # An earlier version gave it no rank: those behind it keep theirs, and sets their order.
        sent = Sent(workflow_id, what, loop=loop, rank=loop.next_rank() if is_answered else 0)
        if not is_answered:
            sent.set_result(None)
        self._sent.append(sent)
        return sent

    @property
    def is_speaking(self) -> bool:
        """Whether history has not told yet what became of something that was said."""
        return bool(self._sent)

    # --- events -------------------------------------------------------------------
    def completed(self, event: records.ChildWorkflowCompleted) -> bool:
        """A child has returned; whether anybody waits for it."""
        found = self._closed(event)
        if found is None:
            return False
        handle, function = found
        try:
            handle.set_result(values.decode_result(function, event.result))
        except InvalidArgument as problem:
            failure = engine_failure("BadResult", problem.message)
            handle.set_exception(_failed(handle, failure, "Completed"))
        return True

    def failed(self, event: records.ChildWorkflowFailed) -> bool:
        """A child has ended otherwise; whether anybody waits for it."""
        found = self._closed(event)
        if found is None:
            return False
        handle = found[0]
        if event.status == CANCELLED and handle.cancel_requested:
            handle.give_up()
        else:
            handle.set_exception(_failed(handle, event.failure, event.status))
        if event.child_id in self.earlier:
            handle.cancelled() or handle.exception()  # This run need not wait for it.
        return True

    def said(self, event: records.SignalSent | records.ExternalCancelRequested) -> bool:
        """History has what was said, and what became of it; whether somebody may wait for that."""
        sent = self._sent.popleft()
        if sent.done():
            return False
        sent.finished = self._side.loop.next_finished()
        if not event.code:
            sent.set_result(None)
            return True
        kind = CODES.get(event.code, Internal)
        failure = Failure(kind.__name__, event.refused)
        text = f"the {sent.what} {sent.workflow_id!r} was not taken: {event.refused}"
        sent.set_exception(workflow.ExternalFailed(text, failure, workflow_id=sent.workflow_id))
        sent.exception()  # Whoever does not wait for it does not want to know.
        return True

    def _closed(
        self, event: records.ChildWorkflowCompleted | records.ChildWorkflowFailed
    ) -> tuple[ChildHandle[Any], Callable[..., Any] | None] | None:
        found = self.handles.pop(event.child_id, None)
        if found is None:
            if event.child_id not in self._ids:
                raise mismatch.unknown(event)
            return None
        found[0].finished = self._side.loop.next_finished()
        return found


def _failed(handle: ChildHandle[Any], failure: Failure, status: str) -> workflow.ChildFailed:
    return workflow.ChildFailed(
        f"child workflow {handle.id!r} {status.lower()}: {failure.type}: {failure.message}",
        failure,
        workflow_id=handle.id,
        workflow_type=handle.workflow_type,
        status=status,
    )
