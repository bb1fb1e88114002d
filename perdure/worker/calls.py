"""The call of an activity's function, wherever it runs: bind, call, and what came of it.

Whatever leaves a user's function is an outcome, SystemExit and KeyboardInterrupt included.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

from perdure import values
from perdure.activity import ActivityContext, Definition, bound
from perdure.core.records import Payload
from perdure.worker.outcome import Outcome, outcome_of, outcome_of_result


def call(definition: Definition, context: ActivityContext, payload: Payload | None) -> Outcome:
    """What came of a plain function."""
    pid = os.getpid()
    try:
        with bound(context):
            args, kwargs = values.bind_input(definition.function, payload)
            result = definition.function(*args, **kwargs)
    except BaseException as problem:  # noqa: BLE001 - whatever it is, it becomes the report
        _end_if_forked(pid, problem)
        return outcome_of(problem)
    _end_if_forked(pid, None)
    return outcome_of_result(result)


async def acall(
    definition: Definition, context: ActivityContext, payload: Payload | None
) -> Outcome:
    """What came of an async function."""
    pid = os.getpid()
    try:
        with bound(context):
            args, kwargs = values.bind_input(definition.function, payload)
            result = await definition.function(*args, **kwargs)
    except BaseException as problem:  # noqa: BLE001 - whatever it is, it becomes the report
        _end_if_forked(pid, problem)
        return outcome_of(problem)
    _end_if_forked(pid, None)
    return outcome_of_result(result)


def _end_if_forked(pid: int, problem: BaseException | None) -> None:
    """A child that the function forked must not live on as us when it leaves the function."""
    if os.getpid() == pid:
        return
    code = 0
    if isinstance(problem, SystemExit):
        code = problem.code if isinstance(problem.code, int) else int(problem.code is not None)
    elif problem is not None:
        traceback.print_exception(problem)
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)
