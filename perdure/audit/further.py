"""The further findings: only where the facts are given that they speak of, as importers give them.

A plain chain has none of these facts, and so none of these findings.
"""

from __future__ import annotations

from perdure.audit import words
from perdure.audit.chain import Chain, Layer
from perdure.audit.delays import nominal_ms
from perdure.audit.figures import Figures, LayerFigures
from perdure.audit.findings import Finding, found

ACTIVITY = "activity"
PROXIES = ("envoy", "istio")
UNBUDGETED_MAX = 2


def further(chain: Chain, figures: Figures) -> list[Finding]:
    """What the imported layers' facts amount to, in no particular order."""
    findings: list[Finding] = []
    for index, (layer, its) in enumerate(zip(chain.layers, figures.layers, strict=True)):
        findings += [found(index, note.code, note.detail) for note in layer.notes]
        if not layer.is_imported:
            continue
        details = _of_layer(layer, its) | _of_place(chain, figures, index)
        findings += [found(index, code, detail) for code, detail in details.items() if detail]
    return findings


def _of_layer(layer: Layer, its: LayerFigures) -> dict[str, str]:
    if not layer.retries:
        return {}
    ignored = _per_try_ignored(layer)
    return {
        "UNBOUNDED_RETRY": _unbounded(layer),
        "PER_TRY_IGNORED": ignored,
        "NEVER_RETRIES_TIMEOUT": _never_retries_timeout(layer),
        "TRIES_DO_NOT_FIT": "" if ignored else _do_not_fit(layer, its),
        "LAST_TRY_CUT": _last_try_cut(layer, its),
        "JITTER_LOST_AT_CAP": _jitter_lost(layer),
        "DELAY_EXCEEDS_CAP": _exceeds_cap(layer, its),
        "FIRST_RETRY_IMMEDIATE": _first_immediate(layer),
    }


def _unbounded(layer: Layer) -> str:
    if not layer.unbounded:
        return ""
    return (
        f"it retries without an end (reckoned here with {words.whole(layer.attempts)} tries): "
        "set a number of attempts, 3 for instance, and a deadline"
    )


def _per_try_ignored(layer: Layer) -> str:
    per_try, deadline = layer.per_try_timeout_ms, layer.deadline_ms
    if per_try is None or deadline is None or per_try < deadline:
        return ""
    return (
        f"the per-try timeout of {words.length(per_try)} never fires within the deadline of "
        f"{words.length(deadline)}; after a hang the effective tries are 1: set it to at most "
        f"{words.count(deadline // layer.attempts)}"
    )


def _never_retries_timeout(layer: Layer) -> str:
    if layer.kind not in PROXIES or layer.per_try_timeout_ms is not None:
        return ""
    limit = "" if layer.deadline_ms is None else f" of {words.length(layer.deadline_ms)}"
    return (
        f"without a per-try timeout a request that hangs takes the whole route timeout{limit} and "
        "is never retried, whatever the retry conditions say: set the per-try timeout"
    )


def _do_not_fit(layer: Layer, its: LayerFigures) -> str:
    fit = its.tries_that_fit
    if fit is None or fit >= layer.attempts or layer.deadline_ms is None:
        return ""
    return (
        f"only {fit} of {layer.attempts} tries of {words.length(layer.per_try_timeout_ms)} can "
        f"start within the deadline of {words.length(layer.deadline_ms)}: the rest are attempts "
        f"that you will never get; set attempts to {fit}, or per_try_timeout_ms to "
        f"{words.count(max(1, layer.deadline_ms * 0.9 // layer.attempts))}"
    )


def _last_try_cut(layer: Layer, its: LayerFigures) -> str:
    per_try, deadline = layer.per_try_timeout_ms, layer.deadline_ms
    if per_try is None or deadline is None or its.tries_that_fit != layer.attempts:
        return ""
    full = layer.attempts * per_try + its.max_delay_total_ms
    if full <= deadline:
        return ""
    ordinal = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}.get(layer.attempts, "last")
    waits = words.length(its.max_delay_total_ms)
    return (
        f"the {ordinal} attempt cannot use its full time: {layer.attempts} x "
        f"{words.length(per_try)} and waits of up to {waits} are {words.length(full)}, the "
        f"deadline is {words.length(deadline)}"
    )


def _jitter_lost(layer: Layer) -> str:
    if layer.jitter != "additive" or layer.max_delay_ms is None:
        return ""
    if nominal_ms(layer, layer.attempts - 1) < layer.max_delay_ms:
        return ""
    return (
        f"jitter is added before the delay is cut at {words.length(layer.max_delay_ms)}, so in a "
        "long outage every client waits exactly that long and they come back together (it matters "
        "from about 20 clients on): use full jitter"
    )


def _exceeds_cap(layer: Layer, its: LayerFigures) -> str:
    cap = layer.max_delay_ms
    most = max((delay.most for delay in its.delays_ms), default=0.0)
    if cap is None or most <= cap:
        return ""
    return f"jitter lifts delays to {words.length(most)}, above the cap of {words.length(cap)}"


def _first_immediate(layer: Layer) -> str:
    if not layer.first_retry_immediate:
        return ""
    return (
        "the first retry follows at once, from all clients that failed together: nothing in this "
        "library's settings changes that; keep the attempts few"
    )


# --- where a layer stands ----------------------------------------------------


def _of_place(chain: Chain, figures: Figures, index: int) -> dict[str, str]:
    return {
        "HIDDEN_LAYER": _hidden(chain, index),
        "RETRY_TOWER": _tower(chain, index),
        "LEASE_TOO_SHORT": _lease(chain, figures, index),
        "NO_BUDGET": _no_budget(chain, figures, index),
    }


def _hidden(chain: Chain, index: int) -> str:
    layer = chain.layers[index]
    if not layer.retries or "attempts" not in layer.assumed:
        return ""
    others = [each for each in chain.layers if each is not layer and each.retries]
    if not others:
        return ""
    return (
        f"nobody has set it, but it makes {layer.attempts} tries by default, under the "
        f"{others[0].attempts} of {others[0].name!r}: set its attempts to 1"
    )


def _tower(chain: Chain, index: int) -> str:
    layer, below = chain.layers[index], chain.layers[index + 1 :]
    if layer.kind != ACTIVITY or not any(each.retries for each in below):
        return ""
    calls = layer.attempts
    for each in below:
        calls *= each.attempts
    if calls <= chain.max_amplification:
        return ""
    product = " x ".join(str(each.attempts) for each in chain.layers[index:])
    return (
        f"{layer.attempts} attempts of the activity times the retries inside it are "
        f"{words.whole(calls)} calls ({product}), over the limit of "
        f"{words.count(chain.max_amplification)}: make 1 try inside the activity; the engine's "
        "retry is the durable one"
    )


def _lease(chain: Chain, figures: Figures, index: int) -> str:
    layer = chain.layers[index]
    if layer.kind != ACTIVITY or index + 1 == len(chain.layers):
        return ""
    worst = figures.layers[index + 1].worst_case_ms
    inner = chain.layers[index + 1].name
    limits = [("start_to_close_ms", layer.per_try_timeout_ms), ("heartbeat_ms", layer.heartbeat_ms)]
    short = [(name, ms) for name, ms in limits if ms is not None and (worst is None or worst > ms)]
    if not short:
        return ""
    lasts = "has no bound" if worst is None else f"can last {words.length(worst)}"
    less_than = words.listed([f"{name} is {words.length(ms)}" for name, ms in short])
    to = "" if worst is None else f" (above {words.count(worst)})"
    return (
        f"a call of {inner!r} {lasts}, and {less_than}: the attempt is given to another worker "
        f"while this one still retries; make 1 try with a timeout inside, or raise "
        f"{words.listed([name for name, _ in short])}{to}"
    )


def _no_budget(chain: Chain, figures: Figures, index: int) -> str:
    if index != len(chain.layers) - 1 or figures.worst_amplification <= UNBUDGETED_MAX:
        return ""
    if any(layer.retry_budget or layer.circuit_breaker for layer in chain.layers):
        return ""
    return (
        f"in an outage the load grows up to {words.whole(figures.worst_amplification)} times, and "
        "no budget or breaker at any hop stops it: allow retries for 10 % of the requests, which "
        "bounds the load at 1.1 times"
    )
