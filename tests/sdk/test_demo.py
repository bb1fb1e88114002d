from __future__ import annotations

import apsw
import pytest

from perdure import demo
from perdure.errors import WorkflowFailed
from perdure.testing import LocalEngine, ManualClock


@pytest.fixture
def engine():
    return LocalEngine(
        workflows=[demo.flaky_demo],
        activities=[demo.flaky_step],
        clock=ManualClock(0),
        seed=1,
    )


def rows(path, query):
    with apsw.Connection(str(path)) as connection:
        return connection.execute(query).fetchall()


def test_every_step_is_applied_once_however_often_it_fails(engine, tmp_path):
    path = tmp_path / "effects.db"
    handle = engine.client.start_workflow(
        "FlakyDemo", workflow_id="w", fail_rate=0.7, activities=5, work_ms=0, ledger=str(path)
    )
    engine.run_until_idle(skip_time=True)
    keys = [f"w/step-{step}" for step in range(1, 6)]
    applied = rows(path, "SELECT key, receipt FROM demo_effects ORDER BY number")
    assert [key for key, _ in applied] == keys
    assert handle.result() == [receipt for _, receipt in applied]
    [(runs,)] = rows(path, "SELECT count(*) FROM demo_runs")
    assert runs > 5


def test_a_low_max_attempts_lets_a_step_end_as_a_dead_letter(engine, tmp_path):
    engine.client.start_workflow(
        "FlakyDemo",
        workflow_id="w",
        fail_rate=1,
        activities=1,
        work_ms=0,
        max_attempts=2,
        ledger=str(tmp_path / "effects.db"),
    )
    engine.run_until_idle(skip_time=True)
    [letter] = engine.list_dead_letters()
    assert (letter.activity_id, letter.attempts, letter.last_failure.type) == ("step-1", 2, "Flaky")


def test_a_rate_that_is_no_share_fails_the_workflow(engine):
    handle = engine.client.start_workflow("FlakyDemo", workflow_id="w", fail_rate=2)
    engine.run_until_idle(skip_time=True)
    with pytest.raises(WorkflowFailed, match="fail_rate"):
        handle.result()


def test_chance_is_the_same_for_the_same_attempt_and_fair_over_many():
    draws = [demo.chance(7, f"w/{number}", 1) for number in range(20_000)]
    assert draws == [demo.chance(7, f"w/{number}", 1) for number in range(20_000)]
    assert demo.chance(8, "w/1", 1) != demo.chance(7, "w/1", 1) != demo.chance(7, "w/1", 2)
    # The standard deviation of the share below one half is 0.0035.
    assert abs(sum(draw < 0.5 for draw in draws) / len(draws) - 0.5) < 0.015
    assert all(0 <= draw < 1 for draw in draws)


def test_the_ledger_is_where_it_is_said_to_be(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERDURE_LEDGER", raising=False)
    assert demo.ledger_path() == str(tmp_path / ".perdure" / "effects.db")
    monkeypatch.setenv("PERDURE_LEDGER", "/elsewhere/ledger.db")
    assert demo.ledger_path() == "/elsewhere/ledger.db"
    assert demo.ledger_path("mine.db") == str(tmp_path / "mine.db")
