"""The auditor's own arithmetic of a restart's grace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.auditor import audit_data_dir, retries
from perdure import local, workflow
from perdure.testing import LocalEngine, ManualClock
from tests.chaos.auditor.conftest import StoreOnDisk

# Granted at 1 000 for 500 ms, in the epoch before the one that began at 2 000.
LEASE = ["w1", None, 1_000, 1_500, 1_500, None, 7, 0]
FAILURE = {"type": "StartToCloseTimeout", "message": "no report within 500 ms"}


@pytest.mark.parametrize("stall_ms", [0, 300])
def test_a_restart_gives_the_length_of_the_lease_anew_and_a_stall_before_it_adds_nothing(stall_ms):
    activity: Any = SimpleNamespace(lease=LEASE, options=[0, 0, 500, 0], close_ms=None)
    assert retries.early_ms(activity, FAILURE, 2_500, (2_000, 10_000), stall_ms) == 0
    assert retries.early_ms(activity, FAILURE, 2_499, (2_000, 10_000), stall_ms) == 1


def test_a_grace_that_is_shorter_than_the_lease_is_what_a_restart_gives():
    activity: Any = SimpleNamespace(lease=LEASE, options=[0, 0, 500, 0], close_ms=None)
    assert retries.early_ms(activity, FAILURE, 2_200, (2_000, 200), 0) == 0
    assert retries.early_ms(activity, FAILURE, 2_199, (2_000, 200), 0) == 1


@pytest.mark.parametrize(("grace_ms", "lasts_ms"), [(0, 0), (700, 700), (60_000, 5_000)])
def test_the_log_says_what_grace_was_set(tmp_path, monkeypatch, grace_ms, lasts_ms):
    store = StoreOnDisk(tmp_path)
    monkeypatch.setattr(local, "MemoryStore", lambda: store)
    engine = LocalEngine([held], clock=ManualClock(0), recovery_grace_ms=grace_ms)
    engine.client.start_workflow(held, workflow_id="w")
    engine.run_workflow_tasks()
    engine.poll_activity_task()
    engine.clock.advance_ms(100_000)
    engine.restart()
    engine.clock.advance_ms(lasts_ms)
    assert engine.describe_workflow("w").pending_activities[0].state == "Retrying"
    assert store.current is not None
    store.current.close()
    assert audit_data_dir(tmp_path).violations == ()


@workflow.define
async def held():
    await workflow.execute_activity("step", activity_id="a", heartbeat_ms=5_000)
