"""How executions begin that others begin: children, and the next run of a workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from perdure.core.commands import (
    STARTED,
    AnyAnswer,
    ChildEnded,
    Command,
    ContinueAsNew,
    Done,
    Refusal,
    SignalWorkflow,
    StartChild,
    StartWorkflow,
    UpdateWorkflow,
)
from perdure.core.facts import Facts
from perdure.core.ids import execution_id, of_execution
from perdure.core.limits import INTEGER_MAX
from perdure.core.records import ChildWorkflowCompleted, ChildWorkflowFailed, Record
from perdure.core.start import Attribute, Parent, StartTerms
from perdure.core.state import Execution, Status
from perdure.failures import engine_failure

MESSAGES = (SignalWorkflow, UpdateWorkflow)
CHILD_ID_TAKEN = "ChildIdTaken"
CHILD_NOT_STARTED = "ChildNotStarted"


def resolve_terms(terms: StartTerms, facts: Facts) -> StartTerms:
    """The terms as they stand in the log: with the instant at which the time given is over.

    It is counted from when the first run may begin, its delay over.
    """
    if not terms.timeout_ms or terms.timeout_at_ms:
        return terms
    at_ms = min(facts.now_ms + terms.delay_ms + terms.timeout_ms, INTEGER_MAX)
    return msgspec.structs.replace(terms, timeout_at_ms=at_ms)


def child_of(parent: Execution, step: StartChild) -> StartTerms:
    """The terms of a child's start."""
    link = Parent(parent.workflow_id, step.child_id, step.parent_close)
    return msgspec.structs.replace(step.terms or StartTerms(), parent=link)


def id_taken(parent: Execution, child_id: str) -> ChildEnded:
    """What the parent is told where its child could not be started."""
    failure = engine_failure(CHILD_ID_TAKEN, f"workflow_id {child_id!r} is taken")
    return ChildEnded(parent.workflow_id, child_id, Status.FAILED.value, None, failure)


def because(otherwise: ChildEnded, refusal: Refusal) -> ChildEnded:
    """`otherwise` with history's own words for why."""
    kind = CHILD_ID_TAKEN if refusal.code == "ALREADY_EXISTS" else CHILD_NOT_STARTED
    return msgspec.structs.replace(otherwise, failure=engine_failure(kind, refusal.message))


def end_of_child(event: Record) -> ChildEnded | None:
    """What a parent was told by this event, for another to be told; None: nothing of a child."""
    match event:
        case ChildWorkflowCompleted(child_id=child_id, result=result):
            return ChildEnded("", child_id, Status.COMPLETED.value, result, None)
        case ChildWorkflowFailed(child_id=child_id, status=status, failure=failure):
            return ChildEnded("", child_id, status, None, failure)
        case _:
            return None


def with_start(
    judge: Callable[[str, Command], AnyAnswer],
    execution: Callable[[str], Execution | None],
    workflow_id: str,
    command: SignalWorkflow | UpdateWorkflow,
) -> AnyAnswer:
    """The answer to a message for `workflow_id` that has a start: judged first, where there is
    nothing of its id.
    """
    start = command.start
    assert start is not None
    first = execution(start.workflow_id)
    if first is None:
        answer = judge(start.workflow_id, start)
        if isinstance(answer, Refusal):
            return answer
        is_its = True
    else:  # Asked again it is answered as it was; without a request id nobody can tell.
        is_its = start.request_id is not None and first.request_id == start.request_id
    answer = judge(workflow_id, command)
    return Done(STARTED) if isinstance(answer, Done) and is_its else answer


def next_run(
    execution: Execution,
    step: ContinueAsNew,
    attributes: Mapping[str, Attribute | None],
    started: Mapping[str, str],
) -> tuple[StartWorkflow, int]:
    """The start of the run that goes on from this one, and its number.

    Its parent, its open children (and those `started` in the same commit), its time and what it is
    found by (`attributes`) move along.
    """
    workflow_id, run = of_execution(execution.workflow_id)
    more = execution.more
    kept = [(name, value) for name, value in attributes.items() if value is not None]
    terms = StartTerms(
        first_started_ms=execution.started_ms,
        attributes=tuple(kept),
        signals=step.signals,
        children=(*({} if more is None else more.children).items(), *started.items()),
    )
    if more is not None:
        terms = msgspec.structs.replace(
            terms,
            first_started_ms=more.first_started_ms or execution.started_ms,
            timeout_at_ms=more.timeout_at_ms,
            parent=more.parent,
        )
    start = StartWorkflow(
        execution_id(workflow_id, run + 1),
        step.workflow_type,
        step.task_queue,
        step.input,
        None,
        b"",
        terms,
    )
    return start, run + 1
