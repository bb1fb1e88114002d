"""urllib3.Retry, and requests adapters that carry one: counters are retries, the first is at once.

Source: urllib3's util/retry.py and connectionpool.py, requests' adapters.py.
"""

from __future__ import annotations

import ast
from typing import Any

from perdure.audit.chain import Layer
from perdure.audit.imports.draft import ENDLESS_ATTEMPTS, Draft
from perdure.audit.imports.python_source import Source, UnknownValueError, arguments, matches
from perdure.errors import InvalidArgument

RETRY = ("urllib3.Retry", "urllib3.util.Retry", "urllib3.util.retry.Retry", "Retry")
POOLS = ("urllib3.PoolManager", "urllib3.HTTPConnectionPool", "urllib3.HTTPSConnectionPool")
POOLS_SHORT = ("PoolManager", "HTTPConnectionPool", "HTTPSConnectionPool", "ProxyManager")
ADAPTER = ("requests.adapters.HTTPAdapter", "HTTPAdapter")
ORDER = tuple(
    """
    total connect read redirect status other allowed_methods status_forcelist backoff_factor
    backoff_max raise_on_redirect raise_on_status history respect_retry_after_header
    remove_headers_on_redirect backoff_jitter retry_after_max
    """.split()  # noqa: SIM905
)
RENAMED = {"method_whitelist": "allowed_methods"}
TOTAL_DEFAULT = 10
POOL_RETRIES_DEFAULT = 3
BACKOFF_MAX_S = 120
RETRY_AFTER_MAX_S = 21_600
RETRY_AFTER_SENSIBLE_S = 600
METHODS_DEFAULT = ("DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE")
WITH_RETRY_AFTER = ("413 with Retry-After", "429 with Retry-After", "503 with Retry-After")


def layers(sources: list[Source], kind: str) -> list[Layer]:
    """A layer for every Retry, and for every pool or adapter without one."""
    found = []
    for source in sources:
        for call in _policies(source, kind):
            found.append(_layer(source, call, kind))
    if not found:
        raise InvalidArgument(f"{sources[0].file}: no {kind} retry policy in it")
    return found


def _policies(source: Source, kind: str) -> list[ast.Call]:
    """Calls that set retries, in the order of the file; a Retry inside an adapter counts once."""
    found = [call for call in source.calls(*RETRY) if _is_retry(source, call)]
    carriers = ADAPTER if kind == "requests" else (*POOLS, *POOLS_SHORT)
    for call in source.calls(*carriers):
        inner = _carried(source, call)
        if inner is None or not _holds_retry(source, inner):
            found.append(call)
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _is_retry(source: Source, call: ast.Call) -> bool:
    name = source.dotted(call.func)
    return "urllib3" in name or name == "Retry" or name.endswith("packages.Retry")


def _carried(source: Source, call: ast.Call) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg in ("max_retries", "retries"):
            return source.resolved(keyword.value)
    return None


def _holds_retry(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and matches(source.dotted(node.func), RETRY)


def _layer(source: Source, call: ast.Call, kind: str) -> Layer:
    owner = source.owner(call) or f"line {call.lineno}"
    draft = Draft(kind, f"{kind} {owner}", source.file)
    if _is_retry(source, call) and matches(source.dotted(call.func), RETRY):
        _retry(draft, source, call)
    else:
        _number(draft, source, call, kind)
    timeouts(draft, source, source.tree, "library default: none")
    draft.default("deadline_ms", None, "the library has none")
    return draft.layer()


def _number(draft: Draft, source: Source, call: ast.Call, kind: str) -> None:
    """A pool or adapter whose retries are a number, or nothing at all."""
    carried = _carried(source, call)
    default = 0 if kind == "requests" else POOL_RETRIES_DEFAULT
    try:
        retries = default if carried is None else source.value(carried)
    except UnknownValueError:
        draft.unknown("attempts", default + 1, call.lineno, "retries")
        retries = default
    else:
        retries = int(retries or 0)
        what = f"retries {retries}"
        draft.either(
            "attempts", None if carried is None else retries + 1, call.lineno, default + 1, what
        )
    if retries:
        draft.note("ATTEMPTS_ARE_RETRIES", f"{retries} counts retries: {retries + 1} tries")
    read = kind == "urllib3"
    draft.default("retry_on", ["connect", "read"] if read else ["connect"])
    _pace(draft, source, {}, call.lineno)
    draft.default("methods", list(METHODS_DEFAULT) if read else None)
    draft.default("idempotent", True, "other methods are retried only before they are sent")
    draft.default("respect_retry_after", True)


def _retry(draft: Draft, source: Source, call: ast.Call) -> None:
    try:
        given = arguments(call, ORDER)
    except UnknownValueError:
        given = {each.arg: each.value for each in call.keywords if each.arg}
        draft.note("NOT_STATICALLY_KNOWN", f"arguments hidden by * ({source.file}:{call.lineno})")
    given = {RENAMED.get(name, name): value for name, value in given.items()}
    _counters(draft, source, given, call.lineno)
    _pace(draft, source, given, call.lineno)
    _conditions(draft, source, given, call.lineno)


def _read(draft: Draft, source: Source, given: dict[str, ast.expr], name: str, key: str) -> Any:
    """The value of an argument; None, and a note, where it can't be read."""
    if name not in given:
        return None
    try:
        return source.value(given[name])
    except UnknownValueError:
        draft.unknown(key, draft.value(key), given[name].lineno, name)
        return None


def _counters(draft: Draft, source: Source, given: dict[str, ast.expr], line: int) -> None:
    values: dict[str, Any] = {}
    for name in ("total", "connect", "read", "status", "other"):
        if name in given:
            try:
                values[name] = source.value(given[name])
            except UnknownValueError:
                draft.unknown("attempts", TOTAL_DEFAULT + 1, line, name)
                return
    total = values.get("total", TOTAL_DEFAULT)
    kinds = [values.get(name) for name in ("connect", "read", "status", "other")]
    if total is False:
        draft.given("attempts", 1, line, "total False")
        return
    if total is None:
        _without_total(draft, kinds, line)
        return
    # What a failure of some kind allows, the most patient kind counted.
    retries = max(int(total) if each is None else min(int(total), int(each)) for each in kinds)
    own = ", ".join(f"{name} {values[name]}" for name in values if name != "total")
    less = f"; of one kind of failure fewer: {own}" if own else ""
    draft.note("ATTEMPTS_ARE_RETRIES", f"total counts retries: {retries + 1} tries{less}")
    if "total" in given or any(each is not None for each in kinds):
        draft.given("attempts", retries + 1, line, f"total {total}")
    else:
        draft.default("attempts", retries + 1, f"library default: total {TOTAL_DEFAULT}")


def _without_total(draft: Draft, kinds: list[Any], line: int) -> None:
    if any(each is None for each in kinds):
        draft.given("attempts", ENDLESS_ATTEMPTS, line, "total None")
        draft.endless()
        return
    draft.given("attempts", 1 + sum(int(each) for each in kinds), line, "total None")


def _pace(draft: Draft, source: Source, given: dict[str, ast.expr], line: int) -> None:
    factor = _read(draft, source, given, "backoff_factor", "base_delay_ms")
    most = _read(draft, source, given, "backoff_max", "max_delay_ms")
    jitter = _read(draft, source, given, "backoff_jitter", "jitter_ms")
    draft.either(
        "base_delay_ms", _ms(factor), line, 0, "backoff_factor", "library default: no sleep"
    )
    draft.default("multiplier", 2, "fixed by urllib3")
    draft.either("max_delay_ms", _ms(most), line, BACKOFF_MAX_S * 1000, "backoff_max")
    draft.default("first_retry_immediate", True, "fixed by urllib3")
    if jitter:
        draft.given("jitter", "additive", line, "backoff_jitter")
        draft.given("jitter_ms", _ms(jitter), line, "backoff_jitter")
    else:
        draft.default("jitter", "none", "library default: backoff_jitter 0")


def _ms(seconds: Any) -> float | None:
    return None if seconds is None else float(seconds) * 1000


def _conditions(draft: Draft, source: Source, given: dict[str, ast.expr], line: int) -> None:
    respects = _read(draft, source, given, "respect_retry_after_header", "respect_retry_after")
    draft.either("respect_retry_after", respects, line, True, "respect_retry_after_header")
    statuses = _read(draft, source, given, "status_forcelist", "retry_on") or []
    conditions: list[Any] = ["connect", "read", *statuses]
    if respects is not False:
        conditions += [each for each in WITH_RETRY_AFTER if int(each[:3]) not in statuses]
        longest = _read(draft, source, given, "retry_after_max", "respect_retry_after")
        longest = RETRY_AFTER_MAX_S if longest is None else longest
        if longest > RETRY_AFTER_SENSIBLE_S:
            draft.note(
                "RETRY_AFTER_TOO_LONG",
                f"a Retry-After is slept out up to {longest / 3600:g} h: set retry_after_max to "
                "what the caller is ready to wait",
            )
    draft.either("retry_on", conditions if statuses else None, line, conditions, "status_forcelist")
    if "allowed_methods" not in given:
        draft.default("methods", list(METHODS_DEFAULT))
        draft.default("idempotent", True, "library default: POST and PATCH are not retried")
        return
    methods = _read(draft, source, given, "allowed_methods", "methods")
    if not methods or not isinstance(methods, list):
        draft.default("idempotent", False, f"{source.file}:{line} allowed_methods: every method")
        return
    draft.methods([str(method) for method in methods], line, "")


def timeouts(draft: Draft, source: Source, within: ast.AST, absent: str) -> None:
    """The one `timeout=` that the calls in a part of the source agree on, in seconds there."""
    found: dict[float, int] = {}
    for node in ast.walk(within):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg == "timeout":
                try:
                    found.setdefault(_timeout_s(source, keyword.value), keyword.value.lineno)
                except UnknownValueError:
                    found.setdefault(-1.0, keyword.value.lineno)
    if len(found) == 1 and -1.0 not in found:
        [(seconds, line)] = found.items()
        if seconds > 0:
            draft.given("per_try_timeout_ms", seconds * 1000, line, "timeout")
            return
    if found:
        draft.unknown("per_try_timeout_ms", None, min(found.values()), "timeout")
    else:
        draft.default("per_try_timeout_ms", None, absent)


def _timeout_s(source: Source, node: ast.expr) -> float:
    """A number, a (connect, read) pair, or urllib3.Timeout; 0 for None."""
    node = source.resolved(node)
    if isinstance(node, ast.Call) and matches(source.dotted(node.func), ("Timeout",)):
        parts = arguments(node, ("total", "connect", "read"))
        values = {name: source.value(each) for name, each in parts.items()}
        if values.get("total") is not None:
            return float(values["total"])
        return float(values.get("connect") or 0) + float(values.get("read") or 0)
    value = source.value(node)
    if value is None:
        return 0.0
    parts_s = value if isinstance(value, list) else [value]
    if all(isinstance(each, (int, float)) for each in parts_s):
        return float(sum(parts_s))
    raise UnknownValueError
