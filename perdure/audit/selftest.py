"""The built-in checks: known chains with known answers, run on the machine that asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from perdure.audit import documents
from perdure.audit.chain import as_data, parse_chain
from perdure.audit.delays import delays
from perdure.audit.example import CHECKOUT, EXPECTED_FINDINGS
from perdure.audit.figures import expected_tries
from perdure.audit.review import Review, as_json, audit
from perdure.errors import InvalidArgument

Check = Callable[[], bool]


def run() -> list[tuple[str, bool]]:
    """Every check by what it claims, and whether the claim holds here."""
    return [(claim, check()) for claim, check in CHECKS.items()]


def _checkout(**over: Any) -> Review:
    return audit(parse_chain(CHECKOUT | over))


def _chain(*layers: dict[str, Any], **over: Any) -> Review:
    return audit(parse_chain({"layers": list(layers), **over}))


def _layer(**over: Any) -> dict[str, Any]:
    sound = {
        "attempts": 3,
        "base_delay_ms": 100,
        "max_delay_ms": 1000,
        "jitter": "full",
        "per_try_timeout_ms": 1000,
        "deadline_ms": 4000,
        "respect_retry_after": True,
    }
    return sound | over


def _tries(*attempts: int, **over: Any) -> Review:
    return _chain(*({"attempts": each} for each in attempts), **over)


def _has(review: Review, code: str) -> bool:
    return any(each.code == code for each in review.findings)


def _refused(data: Any) -> bool:
    try:
        parse_chain(data)
    except InvalidArgument:
        return True
    return False


def _refuses_duplicates() -> bool:
    try:
        documents.parse('{"layers": [{"attempts": 1, "attempts": 9}]}', "chain.json")
    except InvalidArgument:
        return True
    return False


def _expected_delays(**layer: Any) -> list[float]:
    chain = parse_chain({"layers": [layer]})
    return [delay.expected for delay in delays(chain.layers[0])]


def _close(value: float, wanted: float, within: float = 0.0005) -> bool:
    return math.isclose(value, wanted, rel_tol=0, abs_tol=within)


def _flags_of(layer: int) -> set[str]:
    return {each.code for each in _checkout().of(layer)}


def _finds(code: str, **change: Any) -> Check:
    """That a sound layer lacks the finding, and has it after this change."""
    return lambda: not _has(_chain(_layer()), code) and _has(_chain(_layer(**change)), code)


CHECKS: dict[str, Check] = {
    "3 x 3 x 4 tries are 36 calls": lambda: _checkout().figures.worst_amplification == 36,
    "the example has 4 high findings": lambda: _checkout().high == 4,
    "the example's first layer is clean": lambda: _flags_of(0) == EXPECTED_FINDINGS[0],
    "the example's second layer has its 4 findings": lambda: _flags_of(1) == EXPECTED_FINDINGS[1],
    "the example's third layer has its 6 findings": lambda: _flags_of(2) == EXPECTED_FINDINGS[2],
    "the example's worst cases are 20, 9.3 and 9 s": lambda: (
        [each.worst_case_ms for each in _checkout().figures.layers] == [20_000, 9_300, 9_000]
    ),
    "the example's expected calls are 1.39, 1.932 and 2.738": lambda: (
        [each["cumulative_expected_amplification"] for each in as_json(_checkout())["layers"]]
        == [1.39, 1.932, 2.738]
    ),
    "at failure rate 0.5 they begin 1.75, 3.062": lambda: (
        [
            each["cumulative_expected_amplification"]
            for each in as_json(_checkout(failure_rate=0.5))["layers"]
        ][:2]
        == [1.75, 3.062]
    ),
    "expected tries at 0.3 of 3 are 1.39": lambda: _close(expected_tries(0.3, 3), 1.39),
    "expected tries at 0.5 of 3 are 1.75": lambda: _close(expected_tries(0.5, 3), 1.75),
    "expected tries at 1 are all of them": lambda: expected_tries(1.0, 7) == 7,
    "cascading at 0.3: 2.82": lambda: _close(
        _tries(3, 3, 4, failure_rate=0.3).figures.cascading_amplification, 2.82, 0.005
    ),
    "only the innermost fails at 0.9: 9.77": lambda: _close(
        _tries(3, 3, 4, failure_rate=0.9).figures.outage_amplification, 9.77, 0.005
    ),
    "only the innermost fails at 0.99: 30.4": lambda: _close(
        _tries(3, 3, 4, failure_rate=0.99).figures.outage_amplification, 30.4, 0.05
    ),
    "only the innermost fails always: 36": lambda: (
        _tries(3, 3, 4, failure_rate=1).figures.outage_amplification == 36
    ),
    "3 tries of 1 s with 100 and 200 ms last 3.3 s": lambda: (
        _chain({"attempts": 3, "base_delay_ms": 100, "per_try_timeout_ms": 1000})
        .figures.layers[0]
        .worst_case_ms
        == 3300
    ),
    "a deadline of 2 s makes it 2 s": lambda: (
        _chain(
            {"attempts": 3, "base_delay_ms": 100, "per_try_timeout_ms": 1000, "deadline_ms": 2000}
        )
        .figures.layers[0]
        .worst_case_ms
        == 2000
    ),
    "with neither limit a call has no bound": lambda: (
        _tries(2).figures.layers[0].worst_case_ms is None
    ),
    "full jitter halves the mean": lambda: (
        _expected_delays(attempts=4, base_delay_ms=100, jitter="full") == [50, 100, 200]
    ),
    "equal jitter takes three quarters": lambda: (
        _expected_delays(attempts=3, base_delay_ms=100, jitter="equal") == [75, 150]
    ),
    "decorrelated jitter begins at twice the base": lambda: (
        _expected_delays(attempts=4, base_delay_ms=100, jitter="decorrelated") == [200, 350, 575]
    ),
    # min(250, U(100, 300)): (250**2 - 100**2) / 2 / 200 + 250 * 50 / 200.
    "decorrelated jitter under a cap": lambda: _close(
        _expected_delays(attempts=2, base_delay_ms=100, jitter="decorrelated", max_delay_ms=250)[0],
        193.75,
        0.19,
    ),
    "the largest multiplier and 10 000 attempts do not overflow": lambda: (
        _chain({"attempts": 10_000, "base_delay_ms": 1, "multiplier": 1e308, "max_delay_ms": 60})
        .figures.layers[0]
        .max_delay_total_ms
        == 1 + 60 * 9_998
    ),
    "a sound layer has no finding": lambda: not _chain(_layer()).findings,
    "RETRY_UNSAFE is found": _finds("RETRY_UNSAFE", idempotent=False),
    "AMPLIFICATION is found": _finds("AMPLIFICATION", attempts=11),
    "HOT_LOOP is found": _finds("HOT_LOOP", base_delay_ms=0),
    "NO_PER_TRY_TIMEOUT is found": _finds("NO_PER_TRY_TIMEOUT", per_try_timeout_ms=None),
    "NO_JITTER is found": _finds("NO_JITTER", jitter="none"),
    "NO_CAP is found": _finds("NO_CAP", attempts=4, max_delay_ms=None),
    "RETRY_ON_4XX is found": _finds("RETRY_ON_4XX", retry_on=[404]),
    "IGNORES_RETRY_AFTER is found": _finds(
        "IGNORES_RETRY_AFTER", retry_on=[429], respect_retry_after=False
    ),
    "NO_DEADLINE is found": _finds("NO_DEADLINE", deadline_ms=None),
    "DEADLINE_TOO_SHORT is found": _finds("DEADLINE_TOO_SHORT", deadline_ms=900),
    "TOO_MANY_ATTEMPTS is found": _finds("TOO_MANY_ATTEMPTS", attempts=6),
    "INNER_OUTLIVES_CALLER is found": lambda: _has(
        _chain(_layer(), _layer(deadline_ms=1001)), "INNER_OUTLIVES_CALLER"
    ),
    "a typo in a key is refused": lambda: _refused({"layers": [{"atempts": 3}]}),
    "a key given twice is refused": _refuses_duplicates,
    "attempts true, 0, 2.5 and 10 001 are refused": lambda: all(
        _refused({"layers": [{"attempts": wrong}]}) for wrong in (True, 0, 2.5, 10_001)
    ),
    "a chain written out and read again is the same": lambda: (
        parse_chain(as_data(parse_chain(CHECKOUT))) == parse_chain(CHECKOUT)
    ),
}
