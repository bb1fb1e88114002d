"""Warnings about names that no worker knows."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import errors, wire
from perdure.cli import unserved

WORKER = {"queues": ["default"], "activity_types": ["charge"], "workflow_types": ["order"]}


class Door:
    """Answers what a client asks about workers."""

    timeout_ms = 5

    def __init__(self, *workers: dict[str, Any], problem: Exception | None = None) -> None:
        self._answer = problem or {"workers": list(workers)}

    def call_many(self, calls: Any, _: int | None = None) -> list[Any]:
        assert isinstance(calls[0], wire.WorkerTypes)
        return [self._answer]


@pytest.fixture(autouse=True)
def no_wait(monkeypatch):
    monkeypatch.setattr(unserved, "WORKERS_PAUSE_S", 0)


def test_a_name_that_some_worker_offers_is_none_to_warn_of():
    assert unserved.name(Door(WORKER), "queues", "default") is None
    assert unserved.name(Door(WORKER), "activity_types", "charge") is None
    assert unserved.workflow(Door(WORKER), "it", "order", "default") is None


def test_a_name_that_nobody_offers_is_told_with_what_there_is_the_nearest_first():
    other = {**WORKER, "activity_types": ["aaa", "charge"]}
    assert unserved.name(Door(other), "activity_types", "chrge") == (
        "no worker has activity type 'chrge'; workers have: charge (nearest), aaa"
    )
    assert unserved.name(Door(WORKER), "queues", "mail") == (
        "no worker serves queue 'mail'; workers have: default"
    )
    assert unserved.name(Door(), "queues", "mail") == (
        "no worker serves queue 'mail': none is connected"
    )
    assert unserved.workflow(Door(WORKER), "each run", "ordr", "default") == (
        "each run waits for a worker that has workflow 'ordr' on queue 'default';"
        " workers have: order (nearest)"
    )


def test_where_it_can_not_be_said_nothing_is():
    away = Door(problem=errors.Unavailable("no"))
    assert unserved.name(away, "queues", "mail") is None
    assert unserved.workflow(away, "it", "ordr", "default") is None
