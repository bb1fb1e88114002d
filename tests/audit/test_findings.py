from __future__ import annotations

import pytest

from perdure.audit.chain import parse_chain
from perdure.audit.example import EXPECTED_FINDINGS
from perdure.audit.review import audit


def test_the_examples_findings_are_exactly_these(checkout):
    review = audit(parse_chain(checkout))
    assert {i: {each.code for each in review.of(i)} for i in range(3)} == EXPECTED_FINDINGS
    assert review.high == 4


def test_findings_come_severity_first_and_unsafe_retries_lead(checkout):
    findings = audit(parse_chain(checkout)).findings
    assert [(each.code, each.layer) for each in findings[:4]] == [
        ("RETRY_UNSAFE", 2),
        ("AMPLIFICATION", 2),
        ("INNER_OUTLIVES_CALLER", 1),
        ("INNER_OUTLIVES_CALLER", 2),
    ]
    severities = [each.severity for each in findings]
    assert severities == sorted(severities, key=("high", "medium", "low").index)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("RETRY_UNSAFE", {"idempotent": False}),
        ("AMPLIFICATION", {"attempts": 11}),
        ("HOT_LOOP", {"base_delay_ms": 0}),
        ("NO_PER_TRY_TIMEOUT", {"per_try_timeout_ms": None}),
        ("NO_JITTER", {"jitter": "none"}),
        ("NO_CAP", {"attempts": 4, "max_delay_ms": None}),
        ("RETRY_ON_4XX", {"retry_on": [503, 409]}),
        ("IGNORES_RETRY_AFTER", {"retry_on": [429], "respect_retry_after": False}),
        ("IGNORES_RETRY_AFTER", {"retry_on": ["503"], "respect_retry_after": False}),
        ("NO_DEADLINE", {"deadline_ms": None}),
        ("DEADLINE_TOO_SHORT", {"deadline_ms": 999}),
        ("TOO_MANY_ATTEMPTS", {"attempts": 6}),
    ],
)
def test_a_finding_appears_with_its_cause_alone(codes_of, sound, code, change):
    assert codes_of(sound()) == set()
    assert code in codes_of(sound(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"idempotent": False, "idempotency_key": True},
        {"max_delay_ms": None},  # Three attempts need no cap.
        {"retry_on": [408, 429, 503, "timeout"]},
        {"deadline_ms": 1000},
        {"attempts": 5},
    ],
)
def test_what_is_right_is_not_found(codes_of, sound, change):
    assert codes_of(sound(**change)) == set()


def test_one_attempt_gets_only_the_findings_that_need_no_retries(codes_of):
    bare = {"attempts": 1, "idempotent": False, "retry_on": [404, 503]}
    assert codes_of(bare) == {"NO_PER_TRY_TIMEOUT"}
    assert codes_of(bare | {"per_try_timeout_ms": 9, "deadline_ms": 5}) == {"DEADLINE_TOO_SHORT"}


def test_the_amplification_belongs_to_the_chain_and_is_shown_at_its_end(review_of, sound):
    review = review_of(
        sound(attempts=4), sound(attempts=3), {"attempts": 1, "per_try_timeout_ms": 1}
    )
    [finding] = [each for each in review.findings if each.code == "AMPLIFICATION"]
    assert finding.layer == 2
    assert "12 calls" in finding.detail
    assert "4 x 3 x 1" in finding.detail


def test_the_limit_itself_is_no_excess(codes_of, sound):
    assert "AMPLIFICATION" not in codes_of(sound(), max_amplification=3)
    assert "AMPLIFICATION" in codes_of(sound(), max_amplification=2.5)


@pytest.mark.parametrize(
    ("inner", "outlives"),
    [
        ({"deadline_ms": 8000}, False),
        ({"deadline_ms": 8001}, True),
        ({"deadline_ms": None, "per_try_timeout_ms": None}, True),
    ],
)
def test_an_inner_layer_may_last_as_long_as_its_caller_waits(codes_of, sound, inner, outlives):
    caller = sound(per_try_timeout_ms=8000, deadline_ms=20_000)
    callee = sound(per_try_timeout_ms=4000) | inner
    assert ("INNER_OUTLIVES_CALLER" in codes_of(caller, callee)) is outlives


def test_a_callee_slower_than_its_callers_timeout_runs_several_times_at_once(review_of, sound):
    """boto's case: 60 s read timeout, 5 tries, a function that takes 100 s."""
    caller = sound(attempts=5, per_try_timeout_ms=60_000, deadline_ms=400_000, idempotent=False)
    review = review_of(caller, {"attempts": 1, "per_try_timeout_ms": 100_000})
    details = {each.code: each for each in review.findings}
    outlives = details["INNER_OUTLIVES_CALLER"]
    assert outlives.severity == "high"
    assert "up to 5 overlapping executions" in outlives.detail
    assert "above 100 000" in outlives.detail
    assert "attempts to 1" in outlives.detail
    assert "RETRY_UNSAFE" in details


def test_every_finding_says_what_happens_with_the_numbers_in_it(checkout):
    details = {each.code: each.detail for each in audit(parse_chain(checkout)).findings}
    assert "36 calls to payments provider" in details["AMPLIFICATION"]
    assert "4 times" in details["RETRY_UNSAFE"]
    assert "409" in details["RETRY_ON_4XX"]
    assert "key is still in progress" in details["RETRY_ON_4XX"]
    assert all("set" in text or "take" in text or "wait" in text for text in details.values())


def test_a_plain_chain_gets_only_the_twelve(codes_of):
    tight = {
        "attempts": 5,
        "base_delay_ms": 10,
        "per_try_timeout_ms": 1000,
        "deadline_ms": 1500,
        "retry_budget": {"ratio": 0.1, "min_per_s": 10},
        "circuit_breaker": {"failure_ratio": 0.5, "min_calls": 20},
    }
    assert codes_of(tight) == {"NO_JITTER", "NO_CAP"}
