"""Istio virtual services: two retries for every HTTP route, asked for or not.

Source: Istio's VirtualService reference and its mesh configuration's defaults.
"""

from __future__ import annotations

from typing import Any

from perdure.audit.chain import Layer
from perdure.audit.imports.draft import Draft
from perdure.audit.imports.text import Path, Text
from perdure.errors import InvalidArgument

RETRIES_DEFAULT = 2
RETRY_ON_DEFAULT = ("connect-failure", "refused-stream", "unavailable", "cancelled")
BASE_MS_DEFAULT = 25
CAP_MS_DEFAULT = 250
MESH_DEFAULT = "mesh default"


def layers(texts: list[Text]) -> list[Layer]:
    """A layer for every HTTP route in these documents. InvalidArgument if there is none."""
    found = []
    for text in texts:
        for path, entry in text.walk():
            routes = entry.get("http")
            if isinstance(routes, list):
                found += [
                    _route(text, (*path, "http", index))
                    for index, route in enumerate(routes)
                    if isinstance(route, dict)
                ]
    if not found:
        raise InvalidArgument(f"{texts[0].file if texts else 'the file'}: no HTTP route in it")
    return found


def _route(text: Text, path: Path) -> Layer:
    draft = Draft("istio", _name(text, path), text.file)
    timeout = text.duration_ms((*path, "timeout"))
    if timeout:
        draft.given("deadline_ms", timeout, text.line((*path, "timeout")), "timeout")
    else:
        draft.default("deadline_ms", None, "mesh default: no timeout")
    draft.methods(
        _methods(text.get((*path, "match"))),
        text.line((*path, "match")),
        "the route does not say which methods it carries",
    )
    retries = (*path, "retries")
    _attempts(draft, text, retries)
    if draft.value("attempts") > 1:
        _conditions(draft, text, retries)
    else:
        draft.default("per_try_timeout_ms", draft.value("deadline_ms"), "the route's timeout")
    return draft.layer()


def _name(text: Text, path: Path) -> str:
    destination = text.get((*path, "route", 0, "destination", "host"))
    name = text.get((*path, "name")) or text.get(("metadata", "name")) or "route"
    return f"istio {name} -> {destination or 'service'}"


def _methods(match: Any) -> list[str] | None:
    """The methods of a route whose every alternative names one."""
    if not isinstance(match, list) or not match:
        return None
    found = []
    for each in match:
        method = each.get("method") if isinstance(each, dict) else None
        exact = method.get("exact") if isinstance(method, dict) else None
        if not isinstance(exact, str):
            return None
        found.append(exact)
    return found


def _attempts(draft: Draft, text: Text, retries: Path) -> None:
    given = text.whole((*retries, "attempts"))
    if given is None:
        draft.default("attempts", RETRIES_DEFAULT + 1, f"{MESH_DEFAULT}: 2 retries")
        draft.note(
            "ATTEMPTS_ARE_RETRIES",
            "without a retries block every HTTP route is retried twice, POST included: 3 tries; "
            "attempts: 0 turns it off",
        )
        return
    line = text.line((*retries, "attempts"))
    draft.given("attempts", given + 1, line, f"retries.attempts {given}")
    if given:
        draft.note(
            "ATTEMPTS_ARE_RETRIES", f"retries.attempts {given} counts retries: {given + 1} tries"
        )


def _conditions(draft: Draft, text: Text, retries: Path) -> None:
    per_try = text.duration_ms((*retries, "perTryTimeout"))
    if per_try:
        line = text.line((*retries, "perTryTimeout"))
        draft.given("per_try_timeout_ms", per_try, line, "perTryTimeout")
    else:
        draft.default("per_try_timeout_ms", None, f"{MESH_DEFAULT}: the route's timeout")
    condition = text.get((*retries, "retryOn"))
    line = text.line((*retries, "retryOn"))
    words = [word.strip() for word in str(condition or "").split(",") if word.strip()]
    draft.either("retry_on", words or None, line, list(RETRY_ON_DEFAULT), "retryOn", MESH_DEFAULT)
    base = text.duration_ms((*retries, "backoff"))
    line = text.line((*retries, "backoff"))
    draft.either("base_delay_ms", base, line, BASE_MS_DEFAULT, "backoff", MESH_DEFAULT)
    cap = 10 * base if base else CAP_MS_DEFAULT
    draft.default("max_delay_ms", cap, f"{MESH_DEFAULT}: 10 x the base")
    draft.default("multiplier", 2, "fixed by Envoy")
    draft.default("jitter", "full", "fixed by Envoy")
    draft.default("respect_retry_after", False, MESH_DEFAULT)
