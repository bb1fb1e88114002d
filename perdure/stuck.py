"""Which running workflows go no further until somebody does something, in one word. Pure.

Judged anew at each look, from what is open and who is there now: nothing of it is kept. Why, and
what to do, is what `perdure wf explain` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from perdure import waiting
from perdure.core.gates import Gates
from perdure.core.limits import WORKFLOW_TASK_FAILURES_FREE
from perdure.core.state import ActivityState, Execution

Word = Literal["mismatch", "history_limit", "parked", "dead_letter", "no_worker"]

# Trying these again is of no use by itself.
_AT_ONCE: dict[str, Word] = {"mismatch": "mismatch", "history_limit": "history_limit"}


class Judge:
    """Judges executions that come with their open activities, at one instant."""

    def __init__(
        self,
        offers: Sequence[waiting.Offer],
        gates: Gates,
        now_ms: int,
        *,
        in_engine: bool = False,
    ) -> None:
        self._offers = offers
        self._gates = gates
        self._now_ms = now_ms
        self._in_engine = in_engine
        self._served: dict[tuple[waiting.Kind, str, str], bool] = {}

    def word(self, execution: Execution) -> Word | None:
        """Why it is stuck; None: it is not, or somebody has paused it."""
        if not execution.is_open or execution.is_paused:
            return None
        if execution.task_ready:
            at_once = _AT_ONCE.get(execution.task_reason)
            if at_once is not None:
                return at_once
            if execution.task_failures > WORKFLOW_TASK_FAILURES_FREE:
                return "parked"
        activities = execution.activities.values()
        if any(one.state is ActivityState.DEAD_LETTERED for one in activities):
            return "dead_letter"
        return "no_worker" if self._waits_for_nobody(execution) else None

    def _waits_for_nobody(self, execution: Execution) -> bool:
        """Whether something of it is due, nobody holds it back, and no worker has it."""
        if (
            execution.task_ready
            and (execution.task_due_ms <= self._now_ms or execution.task_reason == "unknown_type")
            and self._gates.of_queue(execution.task_queue) is None
            and not self._is_served("workflow", execution.workflow_type, execution.task_queue)
        ):
            return True
        return any(
            one.state in (ActivityState.SCHEDULED, ActivityState.RETRYING)
            and one.due_ms <= self._now_ms
            and self._gates.of_activity(one.options.task_queue, one.activity_type) is None
            and not self._is_served("activity", one.activity_type, one.options.task_queue)
            for one in execution.activities.values()
        )

    def _is_served(self, kind: waiting.Kind, type_: str, queue: str) -> bool:
        if self._in_engine and kind == "activity":
            return True  # It may be polled for.
        wanted = (kind, type_, queue)
        known = self._served.get(wanted)
        if known is None:
            text = waiting.sentence(kind, type_, queue, self._offers)
            known = self._served[wanted] = text is None
        return known
