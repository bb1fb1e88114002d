"""Envoy routes: num_retries counts retries, 15 s bound a route, and all of it is silent.

Sources: Envoy's route_components, circuit_breaker and outlier_detection API pages, and its router
filter's page on retries.
"""

from __future__ import annotations

import math
from typing import Any

from perdure.audit.chain import Layer
from perdure.audit.imports.draft import Draft
from perdure.audit.imports.text import Path, Text
from perdure.errors import InvalidArgument

TIMEOUT_MS_DEFAULT = 15_000
BASE_MS_DEFAULT = 25
CAP_FACTOR_DEFAULT = 10
RATE_LIMITED_MS_MAX = 300_000
CONCURRENT_RETRIES_DEFAULT = 3
BUDGET_PERCENT_DEFAULT = 20.0
BUDGET_MINIMUM_DEFAULT = 3
UNIQUE_STATUSES = "retriable-status-codes"
FEW_CONCURRENT = 10


def allowed_retries(active: int, percent: float, minimum: int) -> int:
    """Retries that a budget allows at one time while `active` requests are under way."""
    return max(minimum, math.floor(active * percent / 100 + 1e-9))


def layers(texts: list[Text]) -> list[Layer]:
    """A layer for every route in these documents. InvalidArgument if there is none."""
    clusters = _clusters(texts)
    found = []
    for text in texts:
        for path, entry in text.walk():
            if isinstance(entry.get("route"), dict):
                found.append(_route(text, path, clusters))
    if not found:
        raise InvalidArgument(f"{texts[0].file if texts else 'the file'}: no Envoy route in it")
    return found


def _clusters(texts: list[Text]) -> dict[str, tuple[Text, Path]]:
    found = {}
    for text in texts:
        for path, entry in text.walk():
            in_list = len(path) > 1 and path[-2] == "clusters"
            if in_list and isinstance(entry.get("name"), str):
                found[entry["name"]] = (text, path)
    return found


def _policy_path(text: Text, path: Path) -> Path:
    """Where the retry policy of the route at `path` stands: its own, else its virtual host's."""
    own = (*path, "route", "retry_policy")
    if text.get(own) is None and len(path) >= 2 and path[-2] == "routes":
        return (*path[:-2], "retry_policy")
    return own


def _route(text: Text, path: Path, clusters: dict[str, tuple[Text, Path]]) -> Layer:
    route = (*path, "route")
    cluster = text.get((*route, "cluster"))
    draft = Draft("envoy", _name(text, path, cluster), text.file)
    timeout = text.duration_ms((*route, "timeout"))
    line = text.line((*route, "timeout"))
    if timeout == 0:
        draft.given("deadline_ms", None, line, "timeout 0: none")
    else:
        draft.either("deadline_ms", timeout, line, TIMEOUT_MS_DEFAULT, "timeout")
    methods = _methods(text, path)
    method_line = text.line((*path, "match"))
    draft.methods(methods, method_line, "the route does not say which methods it carries")
    policy = _policy_path(text, path)
    if not isinstance(text.get(policy), dict) or not text.get((*policy, "retry_on")):
        draft.default("attempts", 1, "no retry_on: no retries")
        draft.default("per_try_timeout_ms", draft.value("deadline_ms"), "the route's timeout")
        return draft.layer()
    _retries(draft, text, policy)
    _limits(draft, cluster, clusters)
    hedge = (*route, "hedge_policy", "hedge_on_per_try_timeout")
    if text.get(hedge) is True and not draft.value("idempotent"):
        draft.note(
            "HEDGE_UNSAFE",
            "hedge_on_per_try_timeout leaves the first request running beside its retry: only for "
            "calls that may be made twice; set it to false",
        )
    return draft.layer()


def _name(text: Text, path: Path, cluster: Any) -> str:
    match = text.get((*path, "match")) or {}
    matched = next(
        (str(match[key]) for key in ("prefix", "path", "safe_regex") if key in match), "route"
    )
    name = text.get((*path, "name")) or matched
    return f"envoy {name} -> {cluster or 'cluster'}"


def _methods(text: Text, path: Path) -> list[str] | None:
    headers = text.get((*path, "match", "headers"))
    for header in headers if isinstance(headers, list) else []:
        if isinstance(header, dict) and header.get("name") == ":method":
            string = header.get("string_match") or {}
            exact = header.get("exact_match") or string.get("exact")
            if isinstance(exact, str):
                return [exact]
    return None


def _retries(draft: Draft, text: Text, policy: Path) -> None:
    retries = text.whole((*policy, "num_retries"))
    line = text.line((*policy, "num_retries"))
    if retries is None:
        draft.default("attempts", 2, "library default: num_retries 1")
    else:
        draft.given("attempts", retries + 1, line, f"num_retries {retries}")
        draft.note(
            "ATTEMPTS_ARE_RETRIES", f"num_retries {retries} counts retries: {retries + 1} tries"
        )
    conditions = [word.strip() for word in str(text.get((*policy, "retry_on"))).split(",")]
    conditions = [word for word in conditions if word]
    statuses = text.get((*policy, "retriable_status_codes"))
    if UNIQUE_STATUSES in conditions and isinstance(statuses, list):
        conditions = [word for word in conditions if word != UNIQUE_STATUSES]
        conditions += statuses
    draft.given("retry_on", conditions, text.line((*policy, "retry_on")), "retry_on")
    per_try = text.duration_ms((*policy, "per_try_timeout"))
    if per_try:
        line = text.line((*policy, "per_try_timeout"))
        draft.given("per_try_timeout_ms", per_try, line, "per_try_timeout")
    else:
        draft.default("per_try_timeout_ms", None, "library default: the route's timeout")
    _backoff(draft, text, policy)


def _backoff(draft: Draft, text: Text, policy: Path) -> None:
    backoff = (*policy, "retry_back_off")
    base = text.duration_ms((*backoff, "base_interval"))
    cap = text.duration_ms((*backoff, "max_interval"))
    line = text.line(backoff)
    draft.either("base_delay_ms", base, line, BASE_MS_DEFAULT, "base_interval")
    draft.default("multiplier", 2, "fixed by Envoy")
    why = "library default: 10 x base_interval"
    default_cap = CAP_FACTOR_DEFAULT * (base or BASE_MS_DEFAULT)
    draft.either("max_delay_ms", cap, line, default_cap, "max_interval", why)
    draft.default("jitter", "full", "fixed by Envoy")
    limited = (*policy, "rate_limited_retry_back_off")
    if text.get(limited) is None:
        draft.default("respect_retry_after", False, "library default: off")
        return
    most = text.duration_ms((*limited, "max_interval"))
    draft.given("respect_retry_after", True, text.line(limited), "rate_limited_retry_back_off")
    draft.note(
        "RETRY_AFTER_DISCARDED",
        f"a Retry-After above {(most or RATE_LIMITED_MS_MAX) / 1000:g} s is thrown away, not cut: "
        "the retry then comes after the usual short delay",
    )


def _limits(draft: Draft, cluster: Any, clusters: dict[str, tuple[Text, Path]]) -> None:
    """The cluster's limit of concurrent retries: a number, or a budget that overrides it."""
    place = clusters.get(cluster) if isinstance(cluster, str) else None
    text, path = place or (None, ())
    thresholds = (*path, "circuit_breakers", "thresholds", 0)
    budget = text and text.get((*thresholds, "retry_budget"))
    if text is not None and isinstance(budget, dict):
        where = (*thresholds, "retry_budget")
        percent = text.number((*where, "budget_percent"))
        minimum = text.whole((*where, "min_retry_concurrency"))
        percent = BUDGET_PERCENT_DEFAULT if percent is None else percent
        minimum = BUDGET_MINIMUM_DEFAULT if minimum is None else minimum
        value = {"ratio": percent / 100, "min_per_s": 0}
        what = f"retry_budget {percent:g} %, at least {minimum} at a time"
        draft.given("retry_budget", value, text.line(where), what)
    else:
        _concurrent(draft, text, (*thresholds, "max_retries"))
    _outliers(draft, text, (*path, "outlier_detection"))


def _concurrent(draft: Draft, text: Text | None, path: Path) -> None:
    limit = None if text is None else text.whole(path)
    if limit is not None and limit >= FEW_CONCURRENT:
        return
    shown = f"{CONCURRENT_RETRIES_DEFAULT} by default" if limit is None else str(limit)
    draft.note(
        "CONCURRENT_RETRY_LIMIT",
        f"the cluster allows {shown} retries at a time, and refuses the rest without a word: set "
        "retry_budget (20 %, at least 3) in the cluster's circuit_breakers.thresholds",
    )


def _outliers(draft: Draft, text: Text | None, path: Path) -> None:
    if text is None or not isinstance(text.get(path), dict):
        return
    failures = text.whole((*path, "consecutive_5xx"), at_least=1)
    ejected = text.duration_ms((*path, "base_ejection_time"))
    breaker = {
        "failure_ratio": 1,
        "min_calls": 5 if failures is None else failures,
        "open_ms": 30_000 if ejected is None else ejected,
    }
    draft.given("circuit_breaker", breaker, text.line(path), "outlier_detection, per host")
