"""What became of an update, as whoever waits for it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from perdure.core.commands import AnyAnswer, Refusal, Updated
from perdure.core.facts import scoped
from perdure.core.ids import execution_id, of_execution
from perdure.core.limits import RUNS_LOOKED_AT
from perdure.core.records import Record, UpdateEnded, UpdateReceived
from perdure.core.state import Execution
from perdure.failures import engine_failure

WORKFLOW_ENDED = "WorkflowEnded"


class Places(NamedTuple):
    """Where to look. `newest` names the newest run's execution of a workflow, `execution` gives
    one, `requested` the event that a request made in it, if it made one.
    """

    newest: Callable[[str], str]
    execution: Callable[[str], Execution | None]
    requested: Callable[[str, str], Record | None]


def of_record(record: UpdateEnded) -> Updated:
    """The answer that this event is."""
    return Updated(record.result, record.failure, record.rejected)


def never_answered() -> Updated:
    """The answer to an update whose run has ended without it."""
    text = "the workflow ended before it answered the update"
    return Updated(None, engine_failure(WORKFLOW_ENDED, text))


def answer_or_place(places: Places, workflow_id: str, update_id: str) -> AnyAnswer | str:
    """The answer; or, while there is none, the execution that it will come from."""
    name, run = of_execution(places.newest(workflow_id))
    for earlier in range(run, max(0, run - RUNS_LOOKED_AT), -1):
        one = execution_id(name, earlier)
        ended = places.requested(one, scoped(UpdateEnded, update_id))
        if isinstance(ended, UpdateEnded):
            return of_record(ended)
        if places.requested(one, scoped(UpdateReceived, update_id)) is not None:
            execution = places.execution(one)
            is_open = execution is not None and execution.is_open
            return one if is_open else never_answered()
    return Refusal("NOT_FOUND", f"there is no update {update_id!r}")
