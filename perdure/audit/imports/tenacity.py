"""tenacity, from decorators and Retrying(…): its default is an endless loop without a pause.

Source: tenacity's __init__.py, wait.py and stop.py.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from perdure.audit.chain import ATTEMPTS_MAX, Layer
from perdure.audit.delays import delays
from perdure.audit.imports.draft import ENDLESS_ATTEMPTS, Draft
from perdure.audit.imports.python_source import (
    Function,
    Source,
    UnknownValueError,
    arguments,
    matches,
)
from perdure.audit.imports.tenacity_waits import Wait, wait_of
from perdure.audit.imports.urllib3 import timeouts
from perdure.errors import InvalidArgument

RETRY = ("tenacity.retry",)
RETRYING = ("Retrying", "AsyncRetrying", "TornadoRetrying")
ORDER = ("sleep", "stop", "wait", "retry")


class Stop(NamedTuple):
    """When tenacity gives up: None where that is no reason. `asks_after`: the limit is looked at
    before the wait, so that the last wait may pass it.
    """

    attempts: int | None = None
    deadline_ms: float | None = None
    asks_after: bool = False
    together: bool = False


def layers(sources: list[Source]) -> list[Layer]:
    """A layer for every tenacity decorator and Retrying object. InvalidArgument if none."""
    found = []
    for source in sources:
        for name, node, call, within in _policies(source):
            found.append(_layer(source, name, call, (node, within)))
    if not found:
        raise InvalidArgument(f"{sources[0].file}: no tenacity policy in it")
    return found


Policy = tuple[str, ast.expr, ast.Call | None, ast.AST]


def _policies(source: Source) -> list[Policy]:
    """(name, where it stands, its call if it has arguments, the code that it repeats)."""
    found: list[Policy] = []
    for function in source.functions():
        for decorator in function.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            target = call.func if call else decorator
            if matches(source.dotted(target), RETRY):
                found.append((_name(source, function), decorator, call, function))
    for call in source.calls(*RETRYING):
        if "tenacity" in source.dotted(call.func):
            found.append((source.owner(call) or f"line {call.lineno}", call, call, call))
    return sorted(found, key=lambda each: each[1].lineno)


def _name(source: Source, function: Function) -> str:
    owner = source.owner(function)
    return f"{owner}.{function.name}".lstrip(".")


def _layer(
    source: Source, name: str, call: ast.Call | None, place: tuple[ast.expr, ast.AST]
) -> Layer:
    draft = Draft("tenacity", f"tenacity {name}", source.file)
    node, within = place
    line = node.lineno
    given: dict[str, ast.expr] = {}
    try:
        given = arguments(call, ORDER) if call is not None else {}
    except UnknownValueError:
        given = {each.arg: each.value for each in call.keywords if each.arg} if call else {}
        draft.note("NOT_STATICALLY_KNOWN", f"arguments hidden by * ({source.file}:{line})")
    wait = _wait(draft, source, given, line)
    _stop(draft, source, given, line, wait)
    _conditions(draft, source, given, line)
    timeouts(draft, source, within, "tenacity has none, and the call gives none")
    draft.default("idempotent", False, "the source does not say; say --idempotent if it is")
    return draft.layer()


# --- waits -------------------------------------------------------------------


def _wait(draft: Draft, source: Source, given: dict[str, ast.expr], line: int) -> Wait:
    if "wait" not in given:
        wait = Wait()
        draft.default("base_delay_ms", 0, "library default: wait_none")
        draft.default("multiplier", 1, "library default: wait_none")
        draft.default("jitter", "none", "library default: wait_none")
        draft.default("respect_retry_after", False)
        return wait
    node = given["wait"]
    try:
        wait = wait_of(source, node)
    except UnknownValueError:
        draft.unknown("base_delay_ms", 0, node.lineno, "wait")
        draft.default("respect_retry_after", False)
        return Wait()
    for key, value in wait.settings().items():
        draft.given(key, value, node.lineno, "wait")
    if "jitter" not in wait.settings():
        draft.given("jitter", "none", node.lineno, "wait")
    if wait.asks_the_exception:
        draft.given("respect_retry_after", True, node.lineno, "wait_exception")
        draft.note(
            "NOT_STATICALLY_KNOWN",
            f"wait_exception takes its delay from the exception ({source.file}:{node.lineno})",
        )
    else:
        draft.default("respect_retry_after", False, "tenacity has none but wait_exception")
    return wait


# --- stops -------------------------------------------------------------------


def _stop(draft: Draft, source: Source, given: dict[str, ast.expr], line: int, wait: Wait) -> None:
    if "stop" not in given:
        draft.default("attempts", ENDLESS_ATTEMPTS, "library default: stop_never")
        draft.endless()
        draft.default("deadline_ms", None, "library default: stop_never")
        return
    node = given["stop"]
    try:
        stop = stop_of(source, node)
    except UnknownValueError:
        draft.unknown("attempts", ENDLESS_ATTEMPTS, node.lineno, "stop")
        draft.default("deadline_ms", None, "stop is not statically known")
        draft.endless()
        return
    if stop.deadline_ms is None:
        draft.default("deadline_ms", None, "stop names no time")
    else:
        draft.given("deadline_ms", stop.deadline_ms, node.lineno, "stop")
        draft.soft_deadline()
    _attempts(draft, stop, node.lineno, wait)
    if stop.asks_after:
        draft.note(
            "DEADLINE_OVERSHOOTS",
            "stop_after_delay is asked before the wait, so the last wait, and a try after it, come "
            f"on top of {(stop.deadline_ms or 0) / 1000:g} s: use stop_before_delay",
        )


def _attempts(draft: Draft, stop: Stop, line: int, wait: Wait) -> None:
    if stop.together:
        draft.note("NOT_STATICALLY_KNOWN", "stops with & end when both hold: the later counts")
    if stop.attempts is None and stop.deadline_ms is None:
        draft.given("attempts", ENDLESS_ATTEMPTS, line, "stop_never")
        draft.endless()
        return
    by_time = _tries_in(stop, wait) if stop.deadline_ms is not None else None
    counts = [each for each in (stop.attempts, by_time) if each is not None]
    attempts = max(counts) if stop.together else min(counts)
    draft.given("attempts", attempts, line, "stop")
    if attempts >= ATTEMPTS_MAX:
        draft.given("attempts", ENDLESS_ATTEMPTS, line, "stop, by time only")
        draft.endless()


def _tries_in(stop: Stop, wait: Wait) -> int:
    """Tries that start when each fails at once and every wait is at its least."""
    layer = Layer(name="", attempts=ATTEMPTS_MAX, **wait.settings())
    elapsed, tries = 0.0, 1
    for delay in delays(layer):
        if stop.asks_after and elapsed >= (stop.deadline_ms or 0):
            break
        elapsed += delay.least
        if not stop.asks_after and elapsed >= (stop.deadline_ms or 0):
            break
        tries += 1
    return tries


def stop_of(source: Source, node: ast.expr) -> Stop:
    """When a stop expression gives up. UnknownValueError if it can't be read."""
    node = source.resolved(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd)):
        parts = [stop_of(source, node.left), stop_of(source, node.right)]
        return _combined(parts, together=isinstance(node.op, ast.BitAnd))
    name = source.dotted(node.func if isinstance(node, ast.Call) else node)
    if matches(name, ("stop_never",)):
        return Stop()
    if not isinstance(node, ast.Call):
        raise UnknownValueError
    if matches(name, ("stop_any", "stop_all")):
        parts = [stop_of(source, each) for each in source.items(node.args)]
        return _combined(parts, together=name.endswith("stop_all"))
    values = {key: source.value(each) for key, each in arguments(node, ("limit",)).items()}
    value: Any = next(iter(values.values()), None)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UnknownValueError
    if matches(name, ("stop_after_attempt",)):
        return Stop(attempts=max(1, int(value)))
    if matches(name, ("stop_after_delay", "stop_before_delay")):
        return Stop(deadline_ms=value * 1000, asks_after=name.endswith("stop_after_delay"))
    raise UnknownValueError


def _combined(parts: list[Stop], *, together: bool) -> Stop:
    attempts = [part.attempts for part in parts if part.attempts is not None]
    deadlines = [part.deadline_ms for part in parts if part.deadline_ms is not None]
    if together and (not attempts or not deadlines or len(parts) != len(attempts) + len(deadlines)):
        # Of equal kinds the later counts; with stop_never there is no end.
        if len(attempts) == len(parts):
            return Stop(attempts=max(attempts))
        if len(deadlines) == len(parts):
            return Stop(deadline_ms=max(deadlines), asks_after=any(p.asks_after for p in parts))
        return Stop()
    choose = max if together else min
    return Stop(
        attempts=choose(attempts, default=None),
        deadline_ms=choose(deadlines, default=None),
        asks_after=any(part.asks_after for part in parts),
        together=together,
    )


# --- conditions --------------------------------------------------------------


def _conditions(draft: Draft, source: Source, given: dict[str, ast.expr], line: int) -> None:
    if "retry" not in given:
        draft.default("retry_on", ["any exception"], "library default: retry_if_exception_type")
        return
    node = given["retry"]
    words = [
        ast.unparse(each) for each in ast.walk(source.resolved(node)) if isinstance(each, ast.Call)
    ]
    draft.given(
        "retry_on",
        [" ".join(word.split())[:120] for word in words[:1]] or ["retry"],
        node.lineno,
        "retry",
    )
