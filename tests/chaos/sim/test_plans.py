"""Every plan that once failed is run again: what was found stays fixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.sim import run
from chaos.sim.plan import read

PLANS = sorted((Path(__file__).resolve().parents[2] / "plans").glob("*.json"))


def test_there_are_plans():
    assert PLANS


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_that_once_failed_fails_no_more(path):
    plan = read(path)
    assert plan.note, "a plan says what it found"
    assert run.run_plan(plan).violations == ()
