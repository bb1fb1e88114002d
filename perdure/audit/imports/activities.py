"""This engine's own activities: from their source, or from an application that is loaded."""

from __future__ import annotations

import ast
from typing import Any

from perdure.activity import Options
from perdure.audit.chain import ATTEMPTS_MAX, Layer
from perdure.audit.imports.draft import Draft
from perdure.audit.imports.keys import unstable_keys
from perdure.audit.imports.python_source import (
    Function,
    Source,
    UnknownValueError,
    arguments,
    matches,
)
from perdure.errors import InvalidArgument
from perdure.policy import RetryPolicy

START_TO_CLOSE_MS_DEFAULT = 600_000
ENGINE_DEFAULT = "engine default"
# What code uses that hands an activity's key to the receiver of its effect.
KEYED = ("idempotency_key", "http_headers", "apply_once", "run_once")


def layers(sources: list[Source]) -> list[Layer]:
    """A layer for every function with @activity.define in these modules."""
    found = []
    for source in sources:
        for function in source.functions():
            for decorator in function.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                if matches(source.dotted(target), ("activity.define",)):
                    found.append(_of_source(source, function, decorator))
    if not found:
        raise InvalidArgument(f"{sources[0].file}: no @activity.define in it")
    return found


def _of_source(source: Source, function: Function, decorator: ast.expr) -> Layer:
    said: dict[str, Any] = {}
    lines: dict[str, int] = {}
    name, unknown = function.name, []
    given = arguments(decorator) if isinstance(decorator, ast.Call) else {}
    for key, node in given.items():
        lines[key] = node.lineno
        try:
            said[key] = _policy(source, node) if key == "retry" else source.value(node)
        except UnknownValueError:
            unknown.append((key, node.lineno))
    name = said.pop("name", None) or name
    known = {key: value for key, value in said.items() if key in Options.__dataclass_fields__}
    draft = draft_of(name, Options(**known), source.file, lines, function.lineno)
    for key, line in unknown:
        draft.note("NOT_STATICALLY_KNOWN", f"{key} is not statically known ({source.file}:{line})")
    judge_keys(draft, source, function)
    return draft.layer()


def _policy(source: Source, node: ast.expr) -> RetryPolicy:
    node = source.resolved(node)
    if not isinstance(node, ast.Call) or not matches(source.dotted(node.func), ("RetryPolicy",)):
        raise UnknownValueError
    fields = RetryPolicy.__struct_fields__
    values = {
        key: source.value(each)
        for key, each in arguments(node, fields).items()
        if key != "non_retryable"
    }
    return RetryPolicy(**values)


def draft_of(
    name: str,
    options: Options,
    file: str,
    lines: dict[str, int],
    line: int | None,
    dlq_after_attempts: int | None = None,
) -> Draft:
    """The activity's layer so far: its policy, lease and deadlines.

    `lines`: where each option stands. What stands nowhere is the engine's default, or the
    operator's for `dlq_after_attempts`.
    """
    draft = Draft("activity", f"activity {name}", file)
    policy = options.retry or RetryPolicy()
    resolved = (
        policy.resolved() if dlq_after_attempts is None else policy.resolved(dlq_after_attempts)
    )
    at = lines.get("retry", line)
    unsaid = RetryPolicy().resolved()
    names = {
        "base_delay_ms": "initial_ms",
        "multiplier": "backoff",
        "max_delay_ms": "max_interval_ms",
    }
    used: Any = resolved.max_attempts
    said = used if policy.max_attempts else None
    draft.either("attempts", said, at, used, "max_attempts", ENGINE_DEFAULT)
    for key, field in names.items():
        used = getattr(resolved, field)
        said = None if used == getattr(unsaid, field) else used
        draft.either(key, said, at, used, field, ENGINE_DEFAULT)
    if resolved.max_attempts > ATTEMPTS_MAX:
        draft.endless()
    if policy.min_interval_ms:
        draft.given("min_delay_ms", policy.min_interval_ms, at, "min_interval_ms")
    draft.default("jitter", "full", "fixed by the engine")
    draft.default("respect_retry_after", True, "a failure's retry_after_ms is obeyed")
    draft.default("retry_on", ["any failure that is not non_retryable"], ENGINE_DEFAULT)
    lease = options.start_to_close_ms or None
    at = lines.get("start_to_close_ms", line)
    default = START_TO_CLOSE_MS_DEFAULT
    draft.either("per_try_timeout_ms", lease, at, default, "start_to_close_ms", ENGINE_DEFAULT)
    whole = options.schedule_to_close_ms or None
    at = lines.get("schedule_to_close_ms", line)
    why = "engine default: none"
    draft.either("deadline_ms", whole, at, None, "schedule_to_close_ms", why)
    if options.heartbeat_ms:
        at = lines.get("heartbeat_ms", line)
        draft.given("heartbeat_ms", options.heartbeat_ms, at, "heartbeat_ms")
    return draft


def judge_keys(draft: Draft, source: Source, function: Function) -> None:
    """Whether the activity's code hands a key on, and whether that stays the same."""
    keyed = _first_use(source, function)
    if keyed is None:
        draft.default("idempotent", False, "its code hands no idempotency key on")
    else:
        draft.given("idempotency_key", True, keyed, "the activity's key is handed on")
        draft.default("idempotent", False, "a write, as it carries a key")
    for line, why in unstable_keys(source, function):
        draft.note(
            "KEY_NOT_STABLE",
            f"the idempotency key at {source.file}:{line} is built from {why}, so every retry is "
            "a new effect: use activity.idempotency_key(), the same on every attempt",
        )


def _first_use(source: Source, function: Function) -> int | None:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and matches(source.dotted(node.func), KEYED):
            return node.lineno
    return None
