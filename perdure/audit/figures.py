"""The arithmetic of a chain: how long a call may take, and how many calls it turns into."""

from __future__ import annotations

import math

import msgspec

from perdure.audit.chain import Chain, Layer
from perdure.audit.delays import LARGEST, Delay, bounded, delays, total

_SUMMED_MAX = 64


class LayerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from one layer's settings, and from those of the layers before it.

    Lengths in milliseconds. `worst_case_ms` None: nothing bounds it. `tries_that_fit` None: no
    deadline or no per-try timeout to reckon with. `tries_when_hanging`: those that can start
    before the deadline when every one times out.
    """

    delays_ms: tuple[Delay, ...]
    max_delay_total_ms: float
    expected_delay_total_ms: float
    worst_case_ms: float | None
    expected_tries: float
    cumulative_worst_amplification: int
    cumulative_expected_amplification: float
    tries_that_fit: int | None
    tries_when_hanging: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a whole chain, its layers' in their order.

    `timeouts_amplification` is the worst case where every try hangs until its timeout: tries that
    could not start in time are left out, tries whose caller has gone are counted.
    """

    layers: tuple[LayerFigures, ...]
    worst_amplification: int
    expected_amplification: float
    cascading_amplification: float
    outage_amplification: float
    timeouts_amplification: int


def figures(chain: Chain) -> Figures:
    """Everything that can be computed for `chain`."""
    found: list[LayerFigures] = []
    worst, expected, hanging = 1, 1.0, 1
    for layer in chain.layers:
        each = delays(layer)
        tries = expected_tries(chain.rate(layer), layer.attempts)
        worst *= layer.attempts
        expected = bounded(expected * _within_budget(layer, tries))
        started = tries_when_hanging(layer, each)
        hanging *= started
        most = total([delay.most for delay in each])
        longest_wait = max((delay.most for delay in each), default=0.0)
        found.append(
            LayerFigures(
                delays_ms=tuple(each),
                max_delay_total_ms=most,
                expected_delay_total_ms=total([delay.expected for delay in each]),
                worst_case_ms=worst_case_ms(layer, most, longest_wait),
                expected_tries=tries,
                cumulative_worst_amplification=worst,
                cumulative_expected_amplification=expected,
                tries_that_fit=tries_that_fit(layer, each),
                tries_when_hanging=started,
            )
        )
    rates = [chain.rate(layer) for layer in chain.layers]
    return Figures(
        layers=tuple(found),
        worst_amplification=worst,
        expected_amplification=expected,
        cascading_amplification=cascading(chain.layers, rates),
        outage_amplification=cascading(chain.layers, [0.0] * (len(rates) - 1) + rates[-1:]),
        timeouts_amplification=hanging,
    )


def expected_tries(rate: float, attempts: int) -> float:
    """1 + p + … + p**(attempts - 1), for the chance p = `rate` that one try fails."""
    if rate <= 0:
        return 1.0
    if rate >= 1:
        return float(attempts)
    if attempts <= _SUMMED_MAX:
        return math.fsum(rate**tries for tries in range(attempts))
    # (1 - p**n) / (1 - p), exact also where p is close to 1.
    return -math.expm1(attempts * math.log1p(rate - 1)) / (1 - rate)


def _within_budget(layer: Layer, tries: float) -> float:
    """Tries per call in steady state: a retry budget of ratio b allows at most 1 + b."""
    return tries if layer.retry_budget is None else min(tries, 1 + layer.retry_budget.ratio)


def cascading(layers: tuple[Layer, ...], rates: list[float]) -> float:
    """Calls at the innermost dependency per call at the top, where a layer's try fails by itself
    with its rate, or because all tries of the layer below failed.

    Innermost first: q = 1 - (1 - p)(1 - f below), tries E = (1 - q**n) / (1 - q), f = q**n. With
    E tries, however limited, a call succeeds with E (1 - q).
    """
    amplification, failing = 1.0, 0.0
    for layer, rate in zip(reversed(layers), reversed(rates), strict=True):
        failed = 1 - (1 - rate) * (1 - failing)
        unlimited = expected_tries(failed, layer.attempts)
        tries = _within_budget(layer, unlimited)
        amplification = bounded(amplification * tries)
        succeeding = tries * (1 - failed)
        failing = failed**layer.attempts if tries == unlimited else max(0.0, 1 - succeeding)
    return amplification


def worst_case_ms(
    layer: Layer, max_delay_total_ms: float, max_delay_ms: float = 0.0
) -> float | None:
    """The longest that one call may take; None where nothing bounds it."""
    if layer.deadline_is_soft and layer.deadline_ms is not None:
        # The last wait, and the try after it, come on top.
        if layer.per_try_timeout_ms is None:
            return None
        full = layer.attempts * layer.per_try_timeout_ms + max_delay_total_ms
        return bounded(min(full, layer.deadline_ms + max_delay_ms + layer.per_try_timeout_ms))
    if layer.unbounded and layer.deadline_ms is None:
        return None
    if layer.per_try_timeout_ms is None or layer.unbounded:
        return layer.deadline_ms
    longest = bounded(layer.attempts * layer.per_try_timeout_ms + max_delay_total_ms)
    return longest if layer.deadline_ms is None else min(longest, layer.deadline_ms)


def tries_that_fit(layer: Layer, each: list[Delay]) -> int | None:
    """The largest m with (m - 1) per-try timeouts and the expected delays before try m below the
    deadline; None without a deadline or a per-try timeout.
    """
    if layer.deadline_ms is None or layer.per_try_timeout_ms is None:
        return None
    return _started(layer, layer.per_try_timeout_ms, [delay.expected for delay in each])


def tries_when_hanging(layer: Layer, each: list[Delay]) -> int:
    """Tries that can start, the delays at their least, when every try lasts as long as it may."""
    lasts = layer.per_try_timeout_ms
    if layer.deadline_ms is None:
        return 1 if lasts is None else layer.attempts  # One try without a limit hangs for ever.
    return _started(layer, lasts or layer.deadline_ms, [delay.least for delay in each])


def _started(layer: Layer, lasts_ms: float, waits_ms: list[float]) -> int:
    """Tries that start before the deadline if each lasts `lasts_ms`."""
    deadline_ms = LARGEST if layer.deadline_ms is None else layer.deadline_ms
    waited = 0.0
    for before, wait in enumerate(waits_ms, 1):
        waited += wait
        # Sums of decimal milliseconds: a try due exactly at the deadline does not start.
        if before * lasts_ms + waited >= deadline_ms * (1 - 1e-12):
            return before
    return layer.attempts
