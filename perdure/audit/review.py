"""A chain audited: its figures and findings together, and both as JSON has them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.audit import codes
from perdure.audit.chain import Chain, tidy
from perdure.audit.figures import Figures, LayerFigures, figures
from perdure.audit.findings import Finding, ordered, twelve
from perdure.audit.further import further

_ROUNDED_MAX = 1e15


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an audit; findings severity first, then in the chain's order."""

    chain: Chain
    figures: Figures
    findings: tuple[Finding, ...]

    @property
    def high(self) -> int:
        """How many findings are high: any makes the exit code 1."""
        return sum(finding.severity == codes.HIGH for finding in self.findings)

    def of(self, layer: int) -> list[Finding]:
        """The findings of one layer, by its index."""
        return [finding for finding in self.findings if finding.layer == layer]


def audit(chain: Chain) -> Review:
    """Everything there is to say about `chain`. Pure: the same chain, the same review."""
    if chain.alternatives:
        return _side_by_side(chain)
    computed = figures(chain)
    findings = ordered(twelve(chain, computed) + further(chain, computed))
    return Review(chain=chain, figures=computed, findings=tuple(findings))


def _side_by_side(chain: Chain) -> Review:
    """Each layer as a chain of its own; the chain's figures are those of the worst layer."""
    alone = [audit(replace(chain, layers=(each,), alternatives=False)) for each in chain.layers]
    findings = [
        replace(finding, layer=index)
        for index, review in enumerate(alone)
        for finding in review.findings
    ]
    own = [each.figures for each in alone]
    computed = Figures(
        layers=tuple(each.layers[0] for each in own),
        worst_amplification=max(each.worst_amplification for each in own),
        expected_amplification=max(each.expected_amplification for each in own),
        cascading_amplification=max(each.cascading_amplification for each in own),
        outage_amplification=max(each.outage_amplification for each in own),
        timeouts_amplification=max(each.timeouts_amplification for each in own),
    )
    return Review(chain=chain, figures=computed, findings=tuple(ordered(findings)))


def as_json(review: Review) -> dict[str, Any]:
    """The review with fixed keys: milliseconds to 0.1, tries and multiples to 0.001."""
    chain, computed = review.chain, review.figures
    return {
        "name": chain.name,
        "failure_rate": chain.failure_rate,
        "max_amplification": tidy(chain.max_amplification),
        "layers": [_layer(review, index) for index in range(len(chain.layers))],
        "worst_amplification": computed.worst_amplification,
        "expected_amplification": multiple(computed.expected_amplification),
        "expected_amplification_cascading": multiple(computed.cascading_amplification),
        "expected_amplification_outage": multiple(computed.outage_amplification),
        "worst_amplification_timeouts": computed.timeouts_amplification,
        "high_flags": review.high,
    }


def _layer(review: Review, index: int) -> dict[str, Any]:
    layer = review.chain.layers[index]
    its: LayerFigures = review.figures.layers[index]
    return {
        "name": layer.name,
        "attempts": layer.attempts,
        "jitter": layer.jitter,
        "delays_ms": [[ms(part) for part in delay] for delay in its.delays_ms],
        "max_delay_total_ms": ms(its.max_delay_total_ms),
        "expected_delay_total_ms": ms(its.expected_delay_total_ms),
        "per_try_timeout_ms": ms(layer.per_try_timeout_ms),
        "deadline_ms": ms(layer.deadline_ms),
        "worst_case_ms": ms(its.worst_case_ms),
        "expected_tries": multiple(its.expected_tries),
        "cumulative_worst_amplification": its.cumulative_worst_amplification,
        "cumulative_expected_amplification": multiple(its.cumulative_expected_amplification),
        "tries_that_fit": its.tries_that_fit,
        "flags": [
            {"code": each.code, "severity": each.severity, "detail": each.detail}
            for each in review.of(index)
        ],
    }


def ms(value: float | None) -> Any:
    """Milliseconds, rounded to 0.1."""
    return None if value is None else _rounded(value, 1)


def multiple(value: float) -> Any:
    """Tries or a multiple, rounded to 0.001."""
    return _rounded(value, 3)


def _rounded(value: float, digits: int) -> Any:
    # Beyond this a float has no decimals, and round() of the largest ones overflows.
    return tidy(round(value, digits) if value < _ROUNDED_MAX else value)
