"""The same chain with and without jitter, budget and breaker; and the formulas put to the test."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.audit import words
from perdure.audit.chain import Breaker, Budget, Chain, Layer
from perdure.audit.figures import cascading
from perdure.audit.limits import SLOT_MS, WINDOW_SLOTS
from perdure.audit.simulation import BUCKET_MS, Load, Measured, simulate
from perdure.errors import InvalidArgument

LAYERS_MAX = 100
VALIDATION_REQUESTS = 20_000
# Of ten thousand right simulations, fewer than one is further off.
ERRORS_ALLOWED = 4.0


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run the chain, and what came of it."""

    name: str
    chain: Chain
    measured: Measured


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """A measured mean of calls per request beside the formula's."""

    what: str
    measured: float
    standard_error: float
    formula: float

    @property
    def holds(self) -> bool:
        """Whether they agree within the measurement's own error."""
        return abs(self.measured - self.formula) <= ERRORS_ALLOWED * self.standard_error + 1e-9


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one seed gives."""

    load: Load
    seed: int
    variants: tuple[Variant, ...]
    agreements: tuple[Agreement, ...]


def experiment(chain: Chain, load: Load, seed: int) -> Experiment:
    """Runs the variants under `load`, and holds the simulation against the formulas."""
    if chain.alternatives:
        raise InvalidArgument(
            "these layers stand side by side and are no chain: choose one, with import --only"
        )
    if len(chain.layers) > LAYERS_MAX:
        raise InvalidArgument(f"at most {LAYERS_MAX} layers are simulated")
    return Experiment(
        load=load,
        seed=seed,
        variants=tuple(
            Variant(name=name, chain=each, measured=simulate(each, load, seed))
            for name, each in _variants(chain)
        ),
        agreements=tuple(_agreements(chain, seed)),
    )


def _variants(chain: Chain) -> list[tuple[str, Chain]]:
    bare = _each(chain, retry_budget=None, circuit_breaker=None)
    jittered = _each(bare, jitter="full")
    return [
        ("as it is", chain),
        ("no jitter", _each(bare, jitter="none")),
        ("full jitter", jittered),
        ("full jitter, budget 10 %", _each(jittered, retry_budget=Budget(ratio=0.1, min_per_s=1))),
        ("full jitter, breaker", _innermost(jittered, circuit_breaker=Breaker())),
    ]


def _each(chain: Chain, **settings: Any) -> Chain:
    layers = [replace(layer, **settings) if layer.retries else layer for layer in chain.layers]
    return replace(chain, layers=tuple(layers))


def _innermost(chain: Chain, **settings: Any) -> Chain:
    return replace(chain, layers=(*chain.layers[:-1], replace(chain.layers[-1], **settings)))


def _agreements(chain: Chain, seed: int) -> list[Agreement]:
    """The formulas know no time, so what is compared has no timeouts, budgets or breakers."""
    timeless = replace(chain, layers=tuple(_timeless(layer) for layer in chain.layers))
    rates = [chain.rate(layer) for layer in chain.layers]
    outage = [0.0] * (len(rates) - 1) + rates[-1:]
    found = []
    for what, formula, every in (
        ("every layer fails at its rate", cascading(timeless.layers, rates), True),
        ("only the innermost fails", cascading(timeless.layers, outage), False),
    ):
        load = Load(
            clients=100,
            requests_per_s=1,
            duration_ms=VALIDATION_REQUESTS * 10.0,
            outage_ms=0,
            every_layer_fails=every,
            latency_ms=0,
        )
        measured = simulate(timeless, load, seed)
        found.append(
            Agreement(
                what=what,
                measured=measured.calls_per_request,
                standard_error=measured.standard_error,
                formula=formula,
            )
        )
    return found


def _timeless(layer: Layer) -> Layer:
    return Layer(name=layer.name, attempts=layer.attempts, failure_rate=layer.failure_rate)


# --- shown -------------------------------------------------------------------

COLUMNS = ("variant", "before", "outage", "peak", "30 s after", "failed", "opened")


def table(found: Experiment) -> str:
    """The experiment for people: calls per second at the innermost dependency."""
    load = found.load
    lines = [
        f"{words.whole(load.clients)} clients, {words.count(load.requests_per_s)} requests/s each, "
        f"for {words.length(load.duration_ms)}; outage of {words.length(load.outage_ms)} from "
        f"{words.length(load.outage_start_ms)} on; seed {found.seed}",
        "",
        "calls per second at the innermost dependency (peak: the fullest 100 ms, times 10)",
        "",
    ]
    rows = [COLUMNS, *(_row(each, load) for each in found.variants)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells]))
    lines += ["", "calls per request without timeouts, measured and by formula"]
    for each in found.agreements:
        verdict = "agree" if each.holds else "DISAGREE"
        lines.append(
            f"  {each.what}: {each.measured:.3f} ± {each.standard_error:.3f}, formula "
            f"{each.formula:.3f}: {verdict}"
        )
    lines += _idle_breakers(found)
    return "\n".join(lines)


def _idle_breakers(found: Experiment) -> list[str]:
    """Breakers of the chain as it is that this much traffic never trips."""
    load = found.load
    window_s = WINDOW_SLOTS * SLOT_MS / 1_000
    calls = load.clients * load.requests_per_s * window_s
    return [
        f"BREAKER_CANNOT_TRIP: {layer.name!r} sees about {words.count(calls)} requests in "
        f"{words.count(window_s)} s, its breaker needs {layer.circuit_breaker.min_calls} calls: "
        "lower min_calls"
        for layer in found.variants[0].chain.layers
        if layer.circuit_breaker is not None and layer.circuit_breaker.min_calls > calls
    ]


def _row(variant: Variant, load: Load) -> tuple[str, ...]:
    end = load.outage_start_ms + load.outage_ms
    measured = variant.measured
    share = measured.failed / measured.requests if measured.requests else 0.0
    return (
        variant.name,
        f"{measured.per_s(0, load.outage_start_ms):.1f}",
        f"{measured.per_s(load.outage_start_ms, end):.1f}" if load.outage_ms else "-",
        f"{measured.peak_per_s(0, load.duration_ms):.0f}",
        f"{measured.per_s(end, min(load.duration_ms, end + 30_000)):.1f}",
        f"{share:.1%}",
        str(measured.breaker_opened),
    )


def as_json(found: Experiment) -> dict[str, Any]:
    """The experiment as JSON: the load, each variant with its series, the agreements."""
    load = found.load
    end = load.outage_start_ms + load.outage_ms
    return {
        "seed": found.seed,
        "load": msgspec.to_builtins(load),
        "bucket_ms": BUCKET_MS,
        "variants": [
            {
                "name": each.name,
                "requests": each.measured.requests,
                "failed": each.measured.failed,
                "calls": sum(each.measured.calls),
                "calls_per_s_before": round(each.measured.per_s(0, load.outage_start_ms), 3),
                "calls_per_s_outage": round(each.measured.per_s(load.outage_start_ms, end), 3),
                "calls_per_s_peak": round(each.measured.peak_per_s(0, load.duration_ms), 3),
                "breaker_opened": each.measured.breaker_opened,
                "calls_per_bucket": list(each.measured.calls),
            }
            for each in found.variants
        ],
        "agreements": [
            {
                "what": each.what,
                "measured": round(each.measured, 6),
                "standard_error": round(each.standard_error, 6),
                "formula": round(each.formula, 6),
                "holds": each.holds,
            }
            for each in found.agreements
        ],
    }
