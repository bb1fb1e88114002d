"""A few of the places that the drill `boundaries` visits, on a real node."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from chaos.drill_kit import Arena, Options
from chaos.drills import boundaries
from chaos.drills.boundaries_plan import Journey, Leg
from chaos.drills.boundaries_visit import Visit
from perdure.crash_points import CrashPoint as P

pytestmark = pytest.mark.process

EVERYBODY = Journey(
    "everybody",
    (
        Leg("history", P.STORE_LOG_SYNCED_NOT_RETURNED, 3),
        Leg("scheduler", P.PROJECTION_GAP_READ),
        Leg("gateway", P.GATEWAY_COMMAND_ASKED_NOT_ANSWERED),
        Leg("lease_keeper", P.LEASE_KEEPER_HEARTBEAT_COMMITTED_NOT_ANSWERED),
        Leg("dlq", P.DLQ_LIST_ASKED_NOT_ANSWERED),
        Leg("worker", P.WORKER_EFFECT_APPLIED_NOT_RETURNED),
        Leg("root", P.SUPERVISOR_DEATH_SEEN),
    ),
)
SUNDRY = Journey(
    "sundry",
    (
        Leg("outbox", P.OUTBOX_ANSWERED_NOT_WRITTEN),
        Leg("history", P.HISTORY_UPDATE_TAKEN_NOT_TOLD),
        Leg("worker", P.WORKER_ATTEMPT_LEFT_NOT_REPORTED),
        Leg("history", P.HISTORY_WORKFLOW_RESET_NOT_TOLD),
    ),
)
THE_CLIENT = Journey("client", (Leg("client", P.CLIENT_SENT_NOT_ANSWERED),))


@pytest.mark.parametrize("journey", [EVERYBODY, SUNDRY, THE_CLIENT], ids=lambda each: each.name)
def test_whoever_dies_the_work_goes_on_and_every_effect_is_applied_once(journey, tmp_path):
    visit = Visit(journey, tmp_path)
    try:
        visit.travel()
    finally:
        visit.close()
    assert visit.violations == []
    assert [death.leg for death in visit.deaths] == list(journey.legs)
    assert visit.counts.applied_once == visit.counts.keys == len(visit.keys) > 0
    assert visit.audit.commits > 0
    log = [json.loads(line) for line in visit.node.log_path.read_text().splitlines()]
    died = [line["point"] for line in log if line["event"] == "crash_point.reached"]
    assert died == [leg.point.name for leg in journey.legs if leg.role != "client"]


def test_a_point_that_nobody_reaches_makes_the_drill_inconclusive(tmp_path, monkeypatch):
    leg = Leg("gateway", P.DLQ_INDEX_CHANGED)  # The gateway never comes there.
    monkeypatch.setattr(boundaries, "journeys", lambda dice: [Journey("far", (leg,))])
    monkeypatch.setattr("chaos.drills.boundaries_visit.ROUNDS", 1)
    arena = Arena(Options(), tmp_path, name="boundaries", live=False)
    assert not boundaries.run(arena)
    assert arena.violations == []
    assert arena.figures["boundaries covered"].startswith("0 of ")
    assert arena.workflows == arena.completed > 0


def test_a_misspelt_point_stops_a_node_with_the_right_name(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "supervisors", "--data", str(tmp_path / "data")],
        env={**os.environ, "PERDURE_CRASH_POINT": "HISTORY_DRAINED_NOT_JUGED"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1
    assert "did you mean HISTORY_DRAINED_NOT_JUDGED" in done.stderr
