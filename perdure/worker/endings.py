"""How a workflow function ended, as the last command of its workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from perdure import values
from perdure.core import commands
from perdure.errors import InvalidArgument
from perdure.failures import Failure, failure_from_exception
from perdure.worker.lines import is_authors
from perdure.workflow import ActivityFailed, ChildFailed
from perdure.workflow.failing import Continue

TERMINAL = (
    commands.CompleteWorkflow,
    commands.FailWorkflow,
    commands.CancelWorkflowStep,
    commands.ContinueAsNew,
)
"""The steps that end a run: nothing follows them."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What the function returned, or the exception that left it."""

    result: Any = None
    problem: BaseException | None = None


def step_of(
    ending: Ending, cancel_reason: str | None, going_on: Callable[[Continue], commands.Step]
) -> commands.Step:
    """The command that ends the workflow. A result that can't be kept fails it.

    `cancel_reason`: why somebody wanted it to end; None: nobody did. `going_on` makes the step of
    a workflow that continues as new.
    """
    problem = ending.problem
    if isinstance(problem, Continue):
        return going_on(problem)
    if isinstance(problem, asyncio.CancelledError) and cancel_reason is not None:
        return commands.CancelWorkflowStep(cancel_reason)
    if problem is not None:
        return commands.FailWorkflow(failure_of(problem))
    try:
        return commands.CompleteWorkflow(values.encode_result(ending.result))
    except InvalidArgument as unfit:
        return commands.FailWorkflow(failure_from_exception(unfit))


def failure_of(problem: BaseException) -> Failure:
    """The failure of an exception, and below it that of the activity or child it came from."""
    failure = failure_from_exception(problem)
    if isinstance(problem, TimeoutError) and not failure.message:
        # asyncio says nothing at all.
        failure = msgspec.structs.replace(failure, message=f"timed out{_where(problem)}")
    seen = {id(problem)}
    last = problem
    while last.__cause__ is not None and id(last.__cause__) not in seen:
        last = last.__cause__
        seen.add(id(last))
    if isinstance(last, (ActivityFailed, ChildFailed)):
        return _grafted(failure, last.failure)
    if isinstance(last, BaseExceptionGroup):
        # Of several that failed together the first stands for all; the stack shows each.
        return _grafted(failure, failure_of(last.exceptions[0]))
    return failure


def _where(problem: BaseException) -> str:
    """The line of the author's code that raised it."""
    where, trace = "", problem.__traceback__
    while trace is not None:
        if is_authors(trace.tb_frame.f_code.co_filename):
            where = f", at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return where


def _grafted(failure: Failure, root: Failure) -> Failure:
    cause = root if failure.cause is None else _grafted(failure.cause, root)
    return msgspec.structs.replace(failure, cause=cause)
