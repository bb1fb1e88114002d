"""How a workflow function ended, as the last command of its workflow."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure import values
from perdure.core import commands
from perdure.errors import InvalidArgument
from perdure.failures import Failure, failure_from_exception
from perdure.workflow import ActivityFailed


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What the function returned, or the exception that left it."""

    result: Any = None
    problem: BaseException | None = None


def step_of(ending: Ending) -> commands.Step:
    """The command that ends the workflow. A result that can't be kept fails it."""
    if ending.problem is not None:
        return commands.FailWorkflow(_failure(ending.problem))
    try:
        return commands.CompleteWorkflow(values.encode_result(ending.result))
    except InvalidArgument as problem:
        return commands.FailWorkflow(failure_from_exception(problem))


def _failure(problem: BaseException) -> Failure:
    """The failure of an exception, and below it that of the activity it came from."""
    failure = failure_from_exception(problem)
    seen = {id(problem)}
    last = problem
    while last.__cause__ is not None and id(last.__cause__) not in seen:
        last = last.__cause__
        seen.add(id(last))
    if isinstance(last, ActivityFailed):
        return _grafted(failure, last.failure)
    if isinstance(last, BaseExceptionGroup):
        # Of several that failed together the first stands for all; the stack shows each.
        return _grafted(failure, _failure(last.exceptions[0]))
    return failure


def _grafted(failure: Failure, root: Failure) -> Failure:
    cause = root if failure.cause is None else _grafted(failure.cause, root)
    return msgspec.structs.replace(failure, cause=cause)
