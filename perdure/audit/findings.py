"""The twelve findings that are computed for every chain."""

from __future__ import annotations

import msgspec

from perdure.audit import codes, words
from perdure.audit.chain import Chain, Layer
from perdure.audit.figures import Figures, LayerFigures

HOPELESS_4XX = frozenset({400, 401, 403, 404, 405, 409, 410, 422})
WITH_RETRY_AFTER = frozenset({429, 503})
UNCAPPED_ATTEMPTS_MAX = 3
ATTEMPTS_ADVISED_MAX = 5
BASE_ADVISED_MS = 100.0
DEADLINE_ADVISED_MS = 60_000.0

# Words that stand for statuses in the settings that are imported.
_MEANT: dict[str, frozenset[int]] = {
    "retriable-4xx": frozenset({409}),
    "4xx": HOPELESS_4XX,
    "5xx": frozenset({500, 502, 503, 504}),
    "gateway-error": frozenset({502, 503, 504}),
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong at one layer (its index), with its numbers and what to change."""

    layer: int
    code: str
    severity: str
    detail: str


def found(layer: int, code: str, detail: str) -> Finding:
    """A finding, with the severity that its code has."""
    return Finding(layer=layer, code=code, severity=codes.severity(code), detail=detail)


def statuses(layer: Layer) -> frozenset[int]:
    """The status numbers that a layer retries, words that stand for some included."""
    numbers = {item for item in layer.retry_on if isinstance(item, int)}
    for item in layer.retry_on:
        if isinstance(item, str):
            numbers |= _MEANT.get(item.casefold(), frozenset())
    return frozenset(numbers)


def twelve(chain: Chain, figures: Figures) -> list[Finding]:
    """The findings of a chain: severity first, then the chain's order."""
    all_found: list[Finding] = []
    for index, (layer, its) in enumerate(zip(chain.layers, figures.layers, strict=True)):
        caller = chain.layers[index - 1] if index else None
        details = _of_any_layer(layer, its, caller)
        if index == len(chain.layers) - 1:
            details["AMPLIFICATION"] = _amplification(chain, figures)
        if layer.retries:
            details |= _of_retries(layer, its)
        all_found += [found(index, code, detail) for code, detail in details.items() if detail]
    return ordered(all_found)


def ordered(findings: list[Finding]) -> list[Finding]:
    """Severity first (RETRY_UNSAFE and AMPLIFICATION lead), then the chain's order."""
    return sorted(
        findings, key=lambda each: (*_leading(each.code), each.layer, codes.rank(each.code))
    )


def _leading(code: str) -> tuple[int, int]:
    lead = ("RETRY_UNSAFE", "AMPLIFICATION")
    return codes.rank(code)[0], lead.index(code) if code in lead else len(lead)


# --- every layer -------------------------------------------------------------


def _of_any_layer(layer: Layer, its: LayerFigures, caller: Layer | None) -> dict[str, str]:
    return {
        "INNER_OUTLIVES_CALLER": _outlives(layer, its, caller),
        "NO_PER_TRY_TIMEOUT": _no_per_try(layer),
        "DEADLINE_TOO_SHORT": _deadline_too_short(layer),
    }


def _outlives(layer: Layer, its: LayerFigures, caller: Layer | None) -> str:
    if caller is None or caller.per_try_timeout_ms is None:
        return ""
    limit, worst = caller.per_try_timeout_ms, its.worst_case_ms
    if worst is not None and worst <= limit:
        return ""
    lasts = "has no end" if worst is None else f"can last {words.length(worst)}"
    overlap = ""
    if caller.retries:
        overlap = (
            f", so that the {caller.attempts} tries become up to {caller.attempts} overlapping "
            "executions"
        )
    elif worst is not None:
        overlap = ", and the work goes on for nobody"
    raised = "" if worst is None else f" above {words.count(worst)}"
    once = " or attempts to 1" if caller.retries else ""
    return (
        f"a call {lasts}, but {caller.name!r} gives up on it after {words.length(limit)}{overlap}: "
        f"set deadline_ms here to at most {words.count(limit * 0.9)}, with tries and delays that "
        f"fit in it, or there per_try_timeout_ms{raised}{once}"
    )


def _no_per_try(layer: Layer) -> str:
    if layer.per_try_timeout_ms is not None:
        return ""
    if layer.deadline_ms is None:
        return (
            f"one try that hangs holds its caller for ever, and no other of the "
            f"{words.times(layer.attempts, 'try', 'tries')} is made: set per_try_timeout_ms to a "
            "little above the callee's slowest normal answer (its 99.9th percentile)"
        )
    share = layer.deadline_ms / (layer.attempts + 0.5)
    return (
        f"one try that hangs uses up the whole deadline of {words.length(layer.deadline_ms)}: set "
        f"per_try_timeout_ms to at most {words.count(round(max(1.0, share)))}, so that "
        f"{'all tries fit' if layer.retries else 'it ends before the deadline'}"
    )


def _deadline_too_short(layer: Layer) -> str:
    deadline, per_try = layer.deadline_ms, layer.per_try_timeout_ms
    if deadline is None or per_try is None or deadline >= per_try:
        return ""
    return (
        f"the deadline of {words.length(deadline)} ends before one try may "
        f"({words.length(per_try)}), so a try that hangs is never repeated: set "
        f"per_try_timeout_ms to at most {words.count(max(1.0, deadline // layer.attempts))}, or "
        f"deadline_ms to at least {words.count(per_try)}"
    )


def _amplification(chain: Chain, figures: Figures) -> str:
    worst = figures.worst_amplification
    if worst <= chain.max_amplification:
        return ""
    first, last = chain.layers[0], chain.layers[-1]
    product = " x ".join(str(layer.attempts) for layer in chain.layers[:12])
    more = " x …" if len(chain.layers) > 12 else ""
    kept = keeper(chain)
    advice = (
        f"keep the retries at {chain.layers[kept].name!r} ({chain.layers[kept].attempts} attempts) "
        "and set attempts to 1 elsewhere"
    )
    if chain.layers[kept].attempts > chain.max_amplification:
        advice = (
            f"retry at {chain.layers[kept].name!r} only, and set its attempts to at most "
            f"{words.whole(min(3, max(1, int(chain.max_amplification))))}"
        )
    name = chain.name if chain.name != "chain" else "call"
    by = f" ({first.caller})" if name not in first.caller else ""
    return (
        f"one {name}{by} can become "
        f"{words.times(worst, 'call')} to {last.callee} ({product}{more}), over the limit of "
        f"{words.count(chain.max_amplification)}: {advice}"
    )


def keeper(chain: Chain) -> int:
    """The index of the one layer that should retry: the outermost that retries and may do so
    safely, being nearest to the user or the owner of the key; else the outermost that retries.
    """
    retrying = [index for index, layer in enumerate(chain.layers) if layer.retries]
    safe = [index for index in retrying if chain.layers[index].is_safe]
    keyed = [index for index in safe if chain.layers[index].idempotency_key]
    return (keyed or safe or retrying or [0])[0]


# --- layers that retry -------------------------------------------------------


def _of_retries(layer: Layer, its: LayerFigures) -> dict[str, str]:
    return {
        "RETRY_UNSAFE": _unsafe(layer),
        "HOT_LOOP": _hot_loop(layer, its),
        "NO_JITTER": _no_jitter(layer, its),
        "NO_CAP": _no_cap(layer, its),
        "RETRY_ON_4XX": _retry_on_4xx(layer),
        "NO_DEADLINE": _no_deadline(layer, its),
        "IGNORES_RETRY_AFTER": _ignores_retry_after(layer),
        "TOO_MANY_ATTEMPTS": _too_many(layer, its),
    }


def _unsafe(layer: Layer) -> str:
    if layer.is_safe:
        return ""
    return (
        f"a request to {layer.callee} whose answer is lost is sent again, so its effect can be "
        f"made {words.times(layer.attempts, 'time')}: send an idempotency key, made once before "
        "the first try, or set attempts to 1"
    )


def _hot_loop(layer: Layer, its: LayerFigures) -> str:
    if its.max_delay_total_ms > 0 or (layer.first_retry_immediate and layer.base_delay_ms):
        return ""
    return (
        f"all {layer.attempts} tries follow each other without a pause: set base_delay_ms to "
        f"{words.count(BASE_ADVISED_MS)} or more, and jitter to full"
    )


def _no_jitter(layer: Layer, its: LayerFigures) -> str:
    if layer.jitter != "none":
        return ""
    first = words.length(its.delays_ms[0].most)
    return (
        f"clients that failed together come back together, all of them {first} later: "
        "set jitter to full"
    )


def _no_cap(layer: Layer, its: LayerFigures) -> str:
    if layer.attempts <= UNCAPPED_ATTEMPTS_MAX or layer.max_delay_ms is not None:
        return ""
    last = its.delays_ms[-1].most
    advised = words.count(min(last, max(4 * layer.base_delay_ms, 2_000.0)))
    return (
        f"the delay before the last of {layer.attempts} tries grows to {words.length(last)}: "
        f"set max_delay_ms, for instance to {advised}"
    )


def _retry_on_4xx(layer: Layer) -> str:
    hopeless = sorted(statuses(layer) & HOPELESS_4XX)
    if not hopeless:
        return ""
    exception = " (409 only where it means that a key is still in progress)"
    return (
        f"{words.listed([str(status) for status in hopeless])} will be answered the same way all "
        f"{layer.attempts} times: take {'them' if len(hopeless) > 1 else 'it'} out of retry_on"
        f"{exception if 409 in hopeless else ''}; of the 4xx only 408 and 429 may pass"
    )


def _no_deadline(layer: Layer, its: LayerFigures) -> str:
    if layer.deadline_ms is not None:
        return ""
    worst = its.worst_case_ms
    if worst is None:
        return "nothing bounds the whole call: set deadline_ms to what its caller is ready to wait"
    return (
        f"the whole call can last {words.length(worst)}, whatever its caller still waits for: set "
        f"deadline_ms, at most to {words.count(min(worst, DEADLINE_ADVISED_MS))}, and pass what is "
        "left of it on"
    )


def _ignores_retry_after(layer: Layer) -> str:
    asked = sorted(statuses(layer) & WITH_RETRY_AFTER)
    if not asked or layer.respect_retry_after:
        return ""
    return (
        f"retries {words.listed([str(status) for status in asked])} after "
        f"{words.length(layer.base_delay_ms)} even if the server asked for more: wait at least "
        "Retry-After, and give up when it is longer than what is left of the deadline"
    )


def _too_many(layer: Layer, its: LayerFigures) -> str:
    if layer.attempts <= ATTEMPTS_ADVISED_MAX:
        return ""
    return (
        f"{layer.attempts} tries: what five have not achieved is an outage, and more of them load "
        "it; set attempts to 3"
    )
