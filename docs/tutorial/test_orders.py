"""What the order does, without a node and without waiting."""

import time

import orders
import pytest

from perdure import errors
from perdure.effects import SqliteEffects
from perdure.testing import LocalEngine, ManualClock


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setattr(orders, "world", SqliteEffects(tmp_path / "world.db"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # The bank is quick today.
    activities = [orders.reserve, orders.charge, orders.ship, orders.release, orders.refund]
    return LocalEngine([orders.order], activities, ManualClock(0))


def start(engine, address="Elm Street"):
    return engine.client.start_workflow(
        orders.order, "o-1", "lamp", 1999, address, workflow_id="order-1"
    )


def test_an_approved_order_is_shipped(engine):
    handle = start(engine)
    engine.run_until_idle(skip_time=False)
    assert handle.query("state") == "waiting for approval"
    handle.signal("approve", True)
    engine.run_until_idle()
    assert handle.result() == "shipped o-1 to Elm Street"


def test_an_order_without_an_answer_is_taken_back_after_a_day(engine):
    handle = start(engine)
    engine.run_until_idle()  # The clock jumps over the day.
    assert engine.clock.now_ms >= 86_400_000
    with pytest.raises(errors.WorkflowFailed, match="nobody said anything"):
        handle.result()
    assert list(orders.world.applied()) == [
        f"order-1/{what}" for what in ("charge", "refund", "release", "reserve")
    ]


def test_an_order_that_can_not_be_shipped_is_taken_back(engine):
    handle = start(engine, address="")
    handle.signal("approve", True)
    engine.run_until_idle()
    with pytest.raises(errors.WorkflowFailed) as problem:
        handle.result()
    assert problem.value.failure.cause.type == "NoAddress"


def test_a_restart_in_the_middle_repeats_nothing(engine):
    handle = start(engine)
    engine.run_until_idle(skip_time=False)
    engine.restart()  # The workflow is replayed from its history.
    handle.signal("approve", True)
    engine.run_until_idle()
    assert handle.result() == "shipped o-1 to Elm Street"
    assert orders.world.applied() == {
        "order-1/reserve": 1,
        "order-1/charge": 1,
        "order-1/ship": 1,
    }
