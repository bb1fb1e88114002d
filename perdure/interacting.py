"""What people and programs do to a workflow that runs, and what they hear of it: for Operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perdure import values, wire
from perdure.answers import Answer
from perdure.errors import DeadlineExceeded
from perdure.handles import WorkflowHandle
from perdure.request_ids import new_request_id
from perdure.wire_checks import check_length, texts_of

SLICE_MS = 10_000
EVENTS_WAIT_MS = 20_000
QUERY_MS = 10_000


class Interactions(ABC):
    """Signals, queries, updates, endings, events."""

    @abstractmethod
    def _call(self, args: wire.Args, wait_ms: int = 0) -> Any:
        """The `ok` of the answer, as plain data, or the error raised.

        `wait_ms`: how long the operation itself may take, beside the time for an answer.
        """

    def _clock_ms(self) -> int:
        """For measuring waits; stands still where nothing is ever waited for."""
        return 0

    def _waited(self, of: Callable[[int], wire.Args], timeout_ms: int | None, too_late: str) -> Any:
        """The `ok` of an operation that waits, asked for again and again in slices of time.

        `of(wait_ms)` are its arguments. DeadlineExceeded with `too_late` after `timeout_ms`
        (None: never).
        """
        check_length("timeout_ms", timeout_ms)
        began_ms, waited_ms = self._clock_ms(), 0
        while True:
            left_ms = SLICE_MS
            if timeout_ms is not None:
                left_ms = max(0, timeout_ms - max(waited_ms, self._clock_ms() - began_ms))
            slice_ms = min(left_ms, SLICE_MS)
            try:
                return self._call(of(slice_ms), left_ms)
            except DeadlineExceeded:
                waited_ms += slice_ms
                if slice_ms < left_ms or timeout_ms is None:
                    continue
                raise DeadlineExceeded(f"{too_late} within {timeout_ms} ms") from None

    def handle(self, workflow_id: str, run: int | None = None) -> WorkflowHandle[Any]:
        """A handle of any workflow, whether it is there or not; of one `run`, where it is named."""
        return WorkflowHandle(self, workflow_id, run)  # type: ignore[arg-type]

    def signal_workflow(
        self,
        workflow_id: str,
        name: str,
        *args: Any,
        request_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Hand the newest run the signal `name` with these arguments: durable when this returns.

        FailedPrecondition if the workflow has ended, ResourceExhausted if too many signals wait.
        """
        raw = wire.raw_payload(values.encode_input(None, args, kwargs))
        chosen = request_id or new_request_id()
        self._call(wire.SignalWorkflow(workflow_id, name, raw, chosen))

    def query_workflow(
        self,
        workflow_id: str,
        name: str,
        *args: Any,
        run: int | None = None,
        timeout_ms: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """What the workflow's query handler `name` returns, now; nothing of it is recorded.

        A workflow that has ended can be asked, too. NotFound where it has no such query,
        FailedPrecondition where no worker has its type or the handler fails or would change
        something, DeadlineExceeded if no worker answers within `timeout_ms` (10 000).
        """
        check_length("timeout_ms", timeout_ms)
        raw = wire.raw_payload(values.encode_input(None, args, kwargs))
        wait_ms = QUERY_MS if timeout_ms is None else timeout_ms
        return self._call(wire.QueryWorkflow(workflow_id, name, raw, run, wait_ms), wait_ms)[
            "result"
        ]

    def update_workflow(
        self,
        workflow_id: str,
        name: str,
        *args: Any,
        request_id: str | None = None,
        timeout_ms: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """What the workflow's update handler `name` returns, waited for; None: as long as it takes.

        UpdateRejected if its validator says no, UpdateFailed if the handler fails or the workflow
        ends first, DeadlineExceeded if it is not done within `timeout_ms` (it goes on). The same
        `request_id` again is the same update, and waits for the same answer.
        """
        payload = values.encode_input(None, args, kwargs)
        chosen = request_id or new_request_id()
        return self._updated(workflow_id, name, payload, chosen, timeout_ms)

    def _updated(
        self,
        workflow_id: str,
        name: str,
        payload: bytes | None,
        request_id: str,
        timeout_ms: int | None,
        start: wire.StartFirst | None = None,
    ) -> Any:
        """The answer to an update, waited for."""
        raw = wire.raw_payload(payload)
        return self._waited(
            lambda ms: wire.UpdateWorkflow(workflow_id, name, request_id, raw, ms, start),
            timeout_ms,
            f"the update {name!r} of workflow {workflow_id!r} (request_id {request_id!r}: ask again"
            " with it) was not done",
        )["result"]

    def cancel_workflow(
        self, workflow_id: str, reason: str = "", request_id: str | None = None
    ) -> None:
        """Ask the newest run to end: its code may clean up first, or go on.

        A second time changes nothing. FailedPrecondition if it has ended.
        """
        chosen = request_id or new_request_id()
        self._call(wire.CancelWorkflow(workflow_id, reason or None, chosen))

    def terminate_workflow(
        self, workflow_id: str, reason: str = "", request_id: str | None = None
    ) -> None:
        """End the newest run at once, its code unasked. FailedPrecondition if it has ended."""
        chosen = request_id or new_request_id()
        self._call(wire.TerminateWorkflow(workflow_id, reason or None, chosen))

    # --- events -------------------------------------------------------------------
    def events(
        self,
        after: str | None = None,
        kinds: Sequence[str] | None = None,
        workflow_id: str | None = None,
        *,
        follow: bool = True,
    ) -> Iterator[Answer]:
        """What has happened on the node, in order, each with `id`, `kind`, `at_ms`, `workflow_id`.

        After the event with the id `after` (None: from the oldest on that is kept; "now": only
        what comes). Without end, waiting for more; `follow=False` ends where there is no more.
        To go on after a restart of this program, keep the id of the last event that was dealt
        with. FailedPrecondition, naming where it can go on, where what follows `after` was pruned;
        Unavailable where no node answers for the client's timeout.
        """
        if after == "now":
            # Named once: asked again after a restart of the node, "now" would be another place.
            after = self.read_events(after).next
        while True:
            ok = self.read_events(
                after,
                kinds=kinds,
                workflow_id=workflow_id,
                wait_ms=EVENTS_WAIT_MS if follow else 0,
            )
            yield from ok.events
            if ok.next == after and not follow:
                return
            after = ok.next

    def read_events(
        self,
        after: str | None = None,
        limit: int | None = None,
        *,
        kinds: Sequence[str] | None = None,
        workflow_id: str | None = None,
        wait_ms: int = 0,
    ) -> Answer:
        """One page of `events` (a list, maybe empty) and `next`, what to name as `after` then.

        There is no more for now where `next` is `after`.
        """
        check_length("wait_ms", wait_ms)
        args = wire.ReadEvents(after, limit, wait_ms, texts_of("kinds", kinds), workflow_id)
        return Answer(self._call(args, wait_ms or 0))
