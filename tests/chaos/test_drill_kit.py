"""The frame of all drills: verdicts, words, and what the picture is drawn from."""

from __future__ import annotations

import pytest

from chaos.auditor import AuditReport, Violation
from chaos.auditor.findings import Operations
from chaos.drill_kit import EXIT_CODES, Options, Report, Spread, Verdict, audits, spread, words
from chaos.drill_kit.report import Audit, verdict
from chaos.drill_kit.timeline import Fault, applications, attempts
from chaos.ledger_audit import Effect, Run

RUNS = [
    Run(1, "w/a", 1, 10, "t1", 100, 105, None, None),
    Run(2, "w/a", 2, 11, "t2", 200, 201, 202, "returned"),
    Run(3, "w/b", 1, 11, "t3", 210, None, 220, "failed before its effect"),
    Run(4, "w/c", 1, 12, "t4", 230, None, None, None),
]
KILL = Fault(kind="SIGKILL", target="worker-1", at_ms=110, pids=(10,))


def test_a_violation_counts_whether_the_fault_bit_or_not_and_without_a_bite_nothing_is_proved():
    assert verdict(violations=["x"], bit=False) == "violated"
    assert verdict(violations=["x"], bit=True) == "violated"
    assert verdict(violations=[], bit=False) == "inconclusive"
    assert verdict(violations=[], bit=True) == "proved"


def test_exit_codes_are_those_of_the_contract():
    codes = {str(word): code for word, code in EXIT_CODES.items()}
    assert codes == {"proved": 0, "violated": 1, "inconclusive": 3}


def test_a_spread_is_the_median_and_the_maximum():
    assert spread([30, 10, 20]) == Spread(20, 30)
    assert spread([]) == Spread(None, None)


def test_an_attempt_that_its_process_did_not_survive_ends_at_the_kill():
    found = attempts(RUNS, [KILL], {10: "worker-1", 11: "worker-2"})
    assert [(it.lane, it.began_ms, it.ended_ms, it.ending) for it in found] == [
        ("worker-1", 100, 110, "killed"),
        ("worker-2", 200, 202, "returned"),
        ("worker-2", 210, 220, "failed"),
        ("pid 12", 230, None, "open"),
    ]
    assert found[2].label == "w/b #1: failed before its effect"


def test_an_effect_that_was_asked_for_again_is_no_first_application():
    found = applications(RUNS, [Effect("w/a", 1, "receipt")])
    assert [(it.at_ms, it.label, it.first) for it in found] == [
        (105, "w/a #1", True),
        (201, "w/a #2", False),
    ]


def test_an_effect_whose_process_died_before_it_was_noted_counts_all_the_same():
    runs = [Run(1, "w/a", 1, 10, "t1", 100, None, None, None), RUNS[1]]
    found = applications(runs, [Effect("w/a", 1, "receipt")])
    assert [(it.at_ms, it.first) for it in found] == [(100, True), (201, False)]


def test_a_soak_may_take_its_minutes_longer():
    assert Options(limit_s=100).time_s == 100
    assert Options(limit_s=100, minutes=2).time_s == 220


def test_the_verdict_is_said_in_a_sentence_with_its_counts_or_its_reason():
    proved = Report(
        drill="flaky",
        seed=1,
        verdict=Verdict.PROVED,
        workflows=2,
        keys=1_234,
        delivered_more_than_once=5,
    )
    assert "1\u202f234 activities" in words.sentence(proved, "nothing bit")
    dull = Report(drill="flaky", seed=1, verdict=Verdict.INCONCLUSIVE)
    assert words.sentence(dull, "nothing bit") == "This run proves nothing: nothing bit."
    bad = Report(drill="flaky", seed=1, verdict=Verdict.VIOLATED, violations=("a", "b"))
    assert words.sentence(bad, "nothing bit") == "2 things are not as promised."


def test_rows_leave_out_what_a_drill_has_nothing_of():
    report = Report(
        drill="powerloss", seed=1, verdict=Verdict.PROVED, figures={"states opened": 4_096}
    )
    assert words.rows(report) == [
        ("states opened", "4\u202f096"),
        ("took", "0 ms"),
        ("seed", "1"),
        ("verdict", "proved"),
    ]


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (12_500, "12.5 s"), (3_700_000, "61 m 40 s")],
)
def test_lengths_are_said_in_the_unit_that_fits(length_ms, text):
    assert words.length(length_ms) == text


def audited(*what, found=None, **counts):
    fields = dict.fromkeys(
        ("commits", "records", "epochs", "base_n", "last_n", "workflows", "open_workflows"), 0
    )
    fields |= dict.fromkeys(
        ("activities", "attempts", "dead_letters", "events_compared", "deliveries", "effects"), 0
    )
    return AuditReport(
        violations=what,
        found={it.invariant: 1 for it in what} if found is None else found,
        operations=Operations(ok=1, unknown=2),
        not_checked=(),
        **{**fields, **counts},
    )


def test_what_the_auditor_found_counts_over_all_stores_and_is_named():
    bad = Violation(15, "w/a", "two leases live")
    reports = [audited(bad, commits=3, records=5), audited(commits=4)]
    assert audits.totals(reports) == Audit(stores=2, commits=7, records=5, violations=1)
    assert audits.violations(reports) == ["invariant 15 at w/a: two leases live"]
    assert audits.operations(reports).unknown == 4


def test_of_many_violations_of_an_invariant_the_first_are_named_and_the_others_counted():
    many = [Violation(15, f"w/{n}", "two leases live") for n in range(50)]
    other = Violation(16, "w/a", "a token twice")
    told = audits.violations([audited(*many, other, found={15: 70, 16: 1})])
    assert len(told) == audits.SHOWN_MAX + 2
    assert told[-2:] == [
        f"invariant 15: {70 - audits.SHOWN_MAX} more violations",
        "invariant 16 at w/a: a token twice",
    ]
