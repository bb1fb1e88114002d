"""How long a journey of the drill `boundaries` waits for its work."""

from __future__ import annotations

import pytest

from chaos.drills.boundaries_client import NeverDone
from chaos.drills.boundaries_plan import Journey, Leg
from chaos.drills.boundaries_visit import Visit
from perdure.crash_points import CrashPoint as P
from perdure.errors import Unavailable

LEGS = tuple(Leg("root", point) for point in (P.SUPERVISOR_DEATH_SEEN, P.SUPERVISOR_STOP_BEGUN))


class Away(Visit):
    """Its node is never there."""

    def _come_up(self) -> None:
        """It does not."""


@pytest.fixture
def visit(tmp_path, monkeypatch):
    monkeypatch.setattr("chaos.drills.boundaries_visit.WORK_S", 0.0)
    made = Away(Journey("away", LEGS), tmp_path)
    yield made
    made.close()


def test_each_death_that_was_meant_to_be_gives_the_work_its_time_again(visit, tmp_path):
    deaths = iter(range(1, len(LEGS) + 1))

    def work():
        number = next(deaths, None)
        if number is None:
            return "done"
        (tmp_path / f"once.{number}").touch()
        raise Unavailable("dead")

    assert visit._insist(work, "it") == "done"


def test_work_that_nobody_dies_for_has_its_time_once(visit):
    def work():
        raise Unavailable("away")

    with pytest.raises(NeverDone, match="it did not end within 0 s: away"):
        visit._insist(work, "it")
