"""tenacity's wait strategies in the auditor's terms."""

from __future__ import annotations

import ast
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.audit.imports.python_source import Source, UnknownValueError, arguments

# tenacity's own "no limit", in seconds.
_NO_LIMIT_S = 4_611_686_018_427_387_903 / 2


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """The delays of one wait strategy, in milliseconds."""

    base_delay_ms: float = 0.0
    multiplier: float = 1.0
    max_delay_ms: float | None = None
    jitter: str = "none"
    min_delay_ms: float = 0.0
    jitter_ms: float = 0.0
    increment_ms: float = 0.0
    steps_ms: tuple[float, ...] = ()
    asks_the_exception: bool = False

    def settings(self) -> dict[str, Any]:
        """The layer's settings that say this."""
        plain = Wait()
        found = {"base_delay_ms": self.base_delay_ms, "multiplier": self.multiplier}
        for key in Wait.__struct_fields__:
            value = getattr(self, key)
            if value != getattr(plain, key) and key != "asks_the_exception":
                found[key] = value
        return found


def wait_of(source: Source, node: ast.expr) -> Wait:
    """What a wait expression amounts to. UnknownValueError if it can't be read, or said."""
    node = source.resolved(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sum([wait_of(source, node.left), wait_of(source, node.right)])
    if not isinstance(node, ast.Call):
        raise UnknownValueError
    name = source.dotted(node.func).rpartition(".")[2]
    if name == "wait_combine":
        return _sum([wait_of(source, each) for each in source.items(node.args)])
    if name == "wait_chain":
        return _chain([wait_of(source, each) for each in source.items(node.args)])
    if name == "wait_exception":
        return Wait(asks_the_exception=True)
    if name not in _ORDERS:
        raise UnknownValueError
    given = {key: source.value(each) for key, each in arguments(node, _ORDERS[name]).items()}
    if not all(isinstance(value, (int, float)) for value in given.values()):
        raise UnknownValueError
    built: Wait = _BUILDERS[name](given)
    return built


_ORDERS: dict[str, tuple[str, ...]] = {
    "wait_none": (),
    "wait_fixed": ("wait",),
    "wait_random": ("min", "max"),
    "wait_incrementing": ("start", "increment", "max"),
    "wait_exponential": ("multiplier", "max", "exp_base", "min"),
    "wait_random_exponential": ("multiplier", "max", "exp_base", "min"),
    "wait_full_jitter": ("multiplier", "max", "exp_base", "min"),
    "wait_exponential_jitter": ("initial", "max", "exp_base", "jitter", "min", "multiplier"),
}


def _cap_ms(given: dict[str, Any]) -> float | None:
    most = given.get("max")
    return None if most is None or most >= _NO_LIMIT_S else max(0.0, most * 1000)


def _fixed(given: dict[str, Any]) -> Wait:
    return Wait(base_delay_ms=given.get("wait", 0) * 1000)


def _random(given: dict[str, Any]) -> Wait:
    least, most = given.get("min", 0) * 1000, given.get("max", 1) * 1000
    return Wait(base_delay_ms=max(least, most), min_delay_ms=min(least, most), jitter="full")


def _incrementing(given: dict[str, Any]) -> Wait:
    start, step = given.get("start", 0) * 1000, given.get("increment", 100) * 1000
    if start < 0 or step < 0:
        raise UnknownValueError
    return Wait(base_delay_ms=start, increment_ms=step, max_delay_ms=_cap_ms(given))


def _exponential(given: dict[str, Any]) -> Wait:
    multiplier = given.get("exp_base", 2)
    if multiplier < 1:
        raise UnknownValueError
    return Wait(
        base_delay_ms=given.get("multiplier", 1) * 1000,
        multiplier=multiplier,
        max_delay_ms=_cap_ms(given),
        min_delay_ms=max(0.0, given.get("min", 0) * 1000),
    )


def _random_exponential(given: dict[str, Any]) -> Wait:
    return replace(_exponential(given), jitter="full")


def _exponential_jitter(given: dict[str, Any]) -> Wait:
    base = given.get("multiplier", 1) if "initial" not in given else given["initial"]
    wait = _exponential(given | {"multiplier": base})
    return replace(wait, jitter="additive", jitter_ms=given.get("jitter", 1) * 1000)


_BUILDERS: dict[str, Any] = {
    "wait_none": lambda _given: Wait(),
    "wait_fixed": _fixed,
    "wait_random": _random,
    "wait_incrementing": _incrementing,
    "wait_exponential": _exponential,
    "wait_random_exponential": _random_exponential,
    "wait_full_jitter": _random_exponential,
    "wait_exponential_jitter": _exponential_jitter,
}


def _is_fixed(wait: Wait) -> bool:
    return wait == Wait(base_delay_ms=wait.base_delay_ms)


def _sum(parts: list[Wait]) -> Wait:
    """Waits that are added: fixed ones and one random range on top of one growing wait."""
    fixed = sum(part.base_delay_ms for part in parts if _is_fixed(part))
    rest = [part for part in parts if not _is_fixed(part)]
    ranges = [
        part
        for part in rest
        if part
        == Wait(jitter="full", base_delay_ms=part.base_delay_ms, min_delay_ms=part.min_delay_ms)
    ]
    growing = [part for part in rest if part not in ranges]
    if len(ranges) > 1 or len(growing) > 1:
        raise UnknownValueError
    drawn = ranges[0] if ranges else Wait()
    shift = fixed + drawn.min_delay_ms
    spread = drawn.base_delay_ms - drawn.min_delay_ms
    jitter: dict[str, Any] = {"jitter": "additive", "jitter_ms": spread} if spread else {}
    if not growing:
        return Wait(base_delay_ms=shift, **jitter)
    base = growing[0]
    if not shift and not spread:
        return base
    # Nothing is said of an addition behind a cap, or of a constant on what grows by a factor.
    if base.max_delay_ms is not None or base.jitter != "none" or base.min_delay_ms:
        raise UnknownValueError
    if shift and base.multiplier != 1:
        raise UnknownValueError
    return replace(base, base_delay_ms=base.base_delay_ms + shift, **jitter)


def _chain(parts: list[Wait]) -> Wait:
    """Waits one after the other, the last one repeated: only fixed ones can be told in advance."""
    if not parts or not all(_is_fixed(part) for part in parts):
        raise UnknownValueError
    return Wait(
        base_delay_ms=parts[0].base_delay_ms,
        steps_ms=tuple(part.base_delay_ms for part in parts),
    )
