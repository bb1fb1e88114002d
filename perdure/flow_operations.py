"""What operators do to the flow of work, as methods of a client."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from perdure import wire_flow
from perdure.answers import Answer, to_answer
from perdure.wire_args import Args


class FlowOperations(ABC):
    """Pauses, tries at once, and why nothing runs.

    What is paused begins nothing new: attempts that run go on and may report, nothing is charged,
    and the deadlines of callers (schedule_to_start, schedule_to_close) go on. Pauses are durable.
    """

    @abstractmethod
    def _call(self, args: Args, wait_ms: int = 0) -> Any: ...

    def pause_queue(
        self, name: str, reason: str | None = None, *, request_id: str | None = None
    ) -> None:
        """Give no task of this queue to anybody, workflow tasks included."""
        self._call(wire_flow.PauseQueue(name, reason, request_id or _made()))

    def resume_queue(
        self, name: str, reason: str | None = None, *, request_id: str | None = None
    ) -> None:
        """Go on with a queue. One that is not paused is no error."""
        self._call(wire_flow.ResumeQueue(name, reason, request_id or _made()))

    def pause_activity_type(
        self, type: str, reason: str | None = None, *, request_id: str | None = None
    ) -> None:
        """Begin no attempt of this activity type, on any queue."""
        self._call(wire_flow.PauseActivityType(type, reason, request_id or _made()))

    def resume_activity_type(
        self, type: str, reason: str | None = None, *, request_id: str | None = None
    ) -> None:
        """Go on with an activity type. One that is not paused is no error."""
        self._call(wire_flow.ResumeActivityType(type, reason, request_id or _made()))

    def pause_workflow(
        self, workflow_id: str, reason: str | None = None, *, request_id: str | None = None
    ) -> None:
        """Give no task of this workflow to anybody. FailedPrecondition once it has ended."""
        self._call(wire_flow.PauseWorkflow(workflow_id, reason, request_id or _made()))

    def resume_workflow(
        self, workflow_id: str, reason: str | None = None, *, request_id: str | None = None
    ) -> None:
        """Go on with a workflow. One that is not paused is no error."""
        self._call(wire_flow.ResumeWorkflow(workflow_id, reason, request_id or _made()))

    def list_pauses(self) -> list[Answer]:
        """The queues and activity types that are paused: kind, name, since_ms, reason."""
        pauses: list[Answer] = to_answer(self._call(wire_flow.ListPauses())["pauses"])
        return pauses

    def retry_workflow(
        self, workflow_id: str, activity_id: str | None = None, *, request_id: str | None = None
    ) -> None:
        """Try now what waits for its time: the activity, or else the parked workflow task, or else
        every activity in its backoff. FailedPrecondition where nothing waits, or it has ended.
        """
        self._call(wire_flow.RetryWorkflow(workflow_id, activity_id, request_id or _made()))

    def reset_workflow(
        self,
        workflow_id: str,
        to_event: int,
        reason: str | None = None,
        *,
        dry_run: bool = False,
        request_id: str | None = None,
    ) -> Answer:
        """Take the newest run back to event `to_event` of its history, and on from there; one that
        has ended runs again. Signals that came later are kept, what was open is given up.

        The answer: event_id of the reset (None after `dry_run`, which changes nothing), effects
        (kind, id, type, idempotency_key, outcome, at_ms: what its code would ask for again, at
        most 1 000) and effects_count, said (kind, id, name, becomes, at_ms) and said_count: the
        signals ("kept"), updates ("failed" where they wait, else "taken_back") and requests to
        cancel ("dropped") that came later. The keys are as before: receivers that honour them
        ignore the repeat. InvalidArgument, naming the nearest events it can go back to, where it
        can't go back to this one; FailedPrecondition where the run has continued as new.
        """
        made = request_id or _made()
        args = wire_flow.ResetWorkflow(workflow_id, to_event, reason, made, dry_run)
        return Answer(self._call(args))

    def explain_workflow(self, workflow_id: str, activity_id: str | None = None) -> Answer:
        """Why it (or one open activity of it) is not running, what happens next, and when:
        state, reason, next, at_ms, details.
        """
        return Answer(self._call(wire_flow.ExplainWorkflow(workflow_id, activity_id)))


def _made() -> str:
    return os.urandom(12).hex()
