"""What came of the call of an activity's function, as the report of its attempt.

Whatever leaves a user's function is an outcome, SystemExit and KeyboardInterrupt included: only the
end of the process ends a worker.
"""

from __future__ import annotations

import inspect

from perdure import values
from perdure.core.records import Payload
from perdure.failures import (
    BAD_RESULT,
    ENGINE_NON_RETRYABLE,
    CompleteLater,
    Failure,
    engine_failure,
    failure_from_exception,
)

Outcome = Failure | Payload | None
"""How it failed, what it returned, or None: it was left open, to be completed by somebody else."""


def outcome_of(problem: BaseException) -> Outcome:
    """The report that an exception stands for."""
    if isinstance(problem, CompleteLater):
        return None
    return failure_from_exception(problem)


def outcome_of_result(result: object) -> Outcome:
    """The report that a returned value stands for: BadResult where it can't be converted."""
    if isinstance(result, CompleteLater) or result is CompleteLater:
        return None
    if inspect.iscoroutine(result):
        result.close()
        return engine_failure(BAD_RESULT, "result: a coroutine; make the function async")
    try:
        return values.encode_result(result)
    except BaseException as problem:  # noqa: BLE001 - foreign code runs in there
        failure = failure_from_exception(problem)
        if failure.type in ENGINE_NON_RETRYABLE:
            return failure
        return engine_failure(BAD_RESULT, f"result: {failure.message}", cause=failure)
