"""What `perdure schedule` says beside what it does."""

from __future__ import annotations

import contextlib

import pytest

from perdure import workflow
from perdure.cli import schedule
from perdure.cli.main import run
from perdure.testing import LocalEngine, ManualClock


@workflow.define
async def report() -> None:
    await workflow.sleep_ms(1_000)


@pytest.mark.parametrize(("options", "started"), [([], 1), (["--overlap", "allow-all"], 3)])
def test_backfill_says_that_the_policy_skip_leaves_out_all_but_one(
    options, started, monkeypatch, capsys
):
    engine = LocalEngine([report], clock=ManualClock(86_400_000))

    @contextlib.contextmanager
    def connected(*_):
        yield engine.client

    monkeypatch.setattr(schedule, "connected", connected)
    engine.client.create_schedule("hourly", "report", cron="0 * * * *")
    span = ["--from", "1970-01-01T01:00:00Z", "--until", "1970-01-01T03:00:00Z"]
    assert run(["schedule", "backfill", "hourly", *span, *options]) == 0
    out, err = capsys.readouterr()
    assert out == "backfilled: hourly\n"
    assert ("at most one begins; --overlap buffer-all runs each" in err) == (started == 1)
    assert engine.client.describe_schedule("hourly").started == started
