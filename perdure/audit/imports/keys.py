"""Idempotency keys in source code that change from try to try, and so protect nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perdure.audit.imports.python_source import Function, Source, matches

UNSTABLE = {
    "activity.attempt": "the attempt number",
    "activity.fence": "the fence of this attempt",
    "activity.task_token": "the token of this attempt",
    "time.time": "the time",
    "time.time_ns": "the time",
    "time.monotonic": "the time",
    "datetime.now": "the time",
    "datetime.utcnow": "the time",
    "uuid.uuid4": "a random number made in the attempt",
    "uuid.uuid1": "the time",
    "uuid4": "a random number made in the attempt",
    "secrets.token_hex": "a random number made in the attempt",
    "random.random": "a random number made in the attempt",
    "os.getpid": "the worker's process",
    "socket.gethostname": "the worker's host",
}
UNSTABLE_FIELDS = {
    "attempt": "the attempt number",
    "generation": "the generation",
    "run_id": "the run",
    "run": "the run",
    "worker_id": "the worker",
    "fence": "the fence of this attempt",
}
KEY_NAMES = ("dedup_key", "dedupe_key", "request_key")


def unstable_keys(source: Source, function: Function) -> list[tuple[int, str]]:
    """Lines on which something named as an idempotency key is built from what changes, and what
    that is.
    """
    made: dict[str, str] = {}
    found = set()
    for key, value in _bindings(source, function):
        why = _changing(source, value, made)
        if not why:
            continue
        if isinstance(key, str):
            made[key] = why
        if _is_key(key):
            found.add((value.lineno, why))
    return sorted(found)


def _bindings(source: Source, function: Function) -> Iterator[tuple[str | ast.expr, ast.expr]]:
    """Everything that gets a value in the function, in the order of its lines: variables by name;
    keyword arguments, keys of maps and first arguments of apply_once as expressions.
    """
    found: list[tuple[str | ast.expr, ast.expr]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.append((target.id, node.value))
                elif isinstance(target, ast.Subscript):
                    found.append((target.slice, node.value))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found.append((node.target.id, node.value))
        elif isinstance(node, ast.keyword) and node.arg:
            found.append((ast.Constant(node.arg), node.value))
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found += [(key, value) for key, value in pairs if key is not None]
        elif isinstance(node, ast.Call) and matches(source.dotted(node.func), ("apply_once",)):
            found += [(ast.Constant("idempotency_key"), each) for each in node.args[:1]]
    yield from sorted(found, key=lambda pair: (pair[1].lineno, pair[1].col_offset))


def _is_key(key: str | ast.expr) -> bool:
    """Whether a variable, or a text that stands for a name, is called like an idempotency key."""
    name = key.value if isinstance(key, ast.Constant) else key
    if not isinstance(name, str):
        return False
    folded = name.casefold().replace("-", "_")
    return "idempoten" in folded or folded in KEY_NAMES


def _changing(source: Source, node: ast.AST, made: dict[str, str]) -> str:
    """What in this expression changes from try to try, "" if nothing does."""
    for each in ast.walk(node):
        why = ""
        if isinstance(each, ast.Call):
            dotted = source.dotted(each.func)
            why = next((why for name, why in UNSTABLE.items() if matches(dotted, (name,))), "")
        elif isinstance(each, ast.Attribute) and each.attr in UNSTABLE_FIELDS:
            why = UNSTABLE_FIELDS[each.attr] if _is_info(source, each.value) else ""
        elif isinstance(each, ast.Name):
            why = made.get(each.id, "")
        if why:
            return why
    return ""


def _is_info(source: Source, node: ast.expr) -> bool:
    """Whether this is activity.info(), or a variable named after it."""
    if isinstance(node, ast.Call):
        return source.dotted(node.func).endswith("info")
    return isinstance(node, ast.Name) and "info" in node.id
