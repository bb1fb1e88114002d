from __future__ import annotations

import json

import pytest

from chaos.drills.flaky_plan import Options, plan
from chaos.report import EXIT_CODES, Report, Spread, Verdict, spread, write


def test_a_seed_repeats_its_plan_and_another_does_not():
    assert plan(Options(seed=5)) == plan(Options(seed=5))
    assert plan(Options(seed=5)) != plan(Options(seed=6))


@pytest.mark.parametrize("kills", [1, 2, 7, 8])
def test_a_plan_has_every_kill_half_of_them_in_the_gap_and_all_before_the_work_is_done(kills):
    options = Options(seed=3, kills=kills, server_restarts=2)
    blows = plan(options)
    kinds = [blow.kind for blow in blows]
    assert len(kinds) == kills + 2
    assert kinds.count("node") == 2
    assert kinds.count("gap") * 2 >= kills
    at = [blow.at_effects for blow in blows]
    assert at == sorted(at)
    assert at[-1] <= 0.75 * options.workflows * options.activities


def test_a_spread_is_the_median_and_the_maximum():
    assert spread([30, 10, 20]) == Spread(20, 30)
    assert spread([]) == Spread(None, None)


def test_exit_codes_are_those_of_the_contract():
    assert {str(verdict): code for verdict, code in EXIT_CODES.items()} == {
        "proved": 0,
        "violated": 1,
        "inconclusive": 3,
    }


def test_a_report_is_written_with_its_evidence(tmp_path):
    report = Report(
        drill="flaky",
        seed=7,
        verdict=Verdict.PROVED,
        workflows=1,
        completed=1,
        keys=1,
        applied_once=1,
        delivered_more_than_once=1,
        lost=0,
        doubled=0,
        kills=1,
        server_restarts=0,
        stale_refused=1,
        recovery_ms=Spread(5, 5),
        violations=(),
        redelivered_by_kills=1,
        took_ms=100,
    )
    path = write(report, tmp_path / "reports", {"kills": []})
    written = json.loads(path.read_text())
    assert written["report"]["verdict"] == "proved"
    assert written["evidence"] == {"kills": []}
