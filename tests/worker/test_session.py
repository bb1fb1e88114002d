"""Heartbeats of a worker's activities, and its orderly end, against a node of sockets only."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure import activity, values
from perdure.core import links
from perdure.core.commands import (
    CompleteActivity,
    Deadline,
    Done,
    FailActivity,
    Refusal,
    ReleaseActivity,
)

PATIENCE_S = 30
STALE = Refusal("FAILED_PRECONDITION", "stale token")
later: dict[str, threading.Event] = {}


@pytest.fixture(autouse=True)
def events():
    later.clear()
    for name in ("begun", "release", "cancelled"):
        later[name] = threading.Event()
    yield
    later["release"].set()


@activity.define
def double(x: int) -> int:
    return 2 * x


@activity.define
def wait() -> str:
    later["begun"].set()
    assert later["release"].wait(PATIENCE_S)
    return "waited"


@activity.define
def count_down() -> None:
    for left in (4, 3, 2, 1):
        activity.record_heartbeat(left)
    raise ValueError("after the last")


# --- heartbeats ----------------------------------------------------------------------
@pytest.mark.parametrize("heartbeat_ms", [0, 60_000])
def test_a_failure_carries_the_newest_details(node, task, heartbeat_ms):
    node.worker(activities=[double, wait, count_down])
    node.say(task("t1", "count_down", heartbeat_ms=heartbeat_ms, beat=9))
    command = node.command(FailActivity, Done())
    assert command.details == values.encode(1)
    beats = [m for m in node.all if isinstance(m, links.Heartbeat)]
    assert len(beats) <= 1, "at most one in the interval"
    newest = beats[0] if beats else None
    if newest is not None and newest.details == command.details:
        assert command.beat == newest.beat == 10
    else:
        assert command.beat == 10 + len(beats)


@activity.define
def beats_on() -> None:
    later["begun"].set()
    while not later["release"].wait(0.01):
        activity.record_heartbeat({"row": 1})


def test_the_first_heartbeat_leaves_at_once_and_the_next_when_the_interval_is_over(node, task):
    node.worker(activities=[beats_on])
    node.say(task("t1", "beats_on", heartbeat_ms=500, lease_ms=500))
    first = node.next(links.Heartbeat)
    node.say(links.Answer(first.n, 60, Deadline(0)))
    second = node.next(links.Heartbeat)
    assert (first.token, first.beat, first.details) == ("t1", 1, values.encode({"row": 1}))
    assert (second.beat, second.has_details) == (2, True)
    node.say(links.Answer(second.n, 61, Deadline(0)))
    third = node.next(links.Heartbeat)
    node.say(links.Answer(third.n, 62, Deadline(0)))
    later["release"].set()
    # Three intervals of 400 ms: without the answers its lease of 500 ms would be lost.
    assert node.command(CompleteActivity, Done()).token == "t1"


def test_a_stale_heartbeat_cancels_the_attempt(node, task):
    node.worker(activities=[cancelled_by_heartbeat])
    node.say(task("t1", "cancelled_by_heartbeat", heartbeat_ms=60_000))
    beat = node.next(links.Heartbeat)
    node.say(links.Answer(beat.n, 60, STALE))
    assert later["cancelled"].wait(PATIENCE_S)
    node.sync(lambda sync: sync.tokens == ())
    assert node.commands(FailActivity) == []


@activity.define
def cancelled_by_heartbeat() -> None:
    try:
        while not later["release"].wait(0.001):
            activity.record_heartbeat()
    except activity.Cancelled:
        later["cancelled"].set()
        raise


@activity.define
async def waits_with_heartbeat() -> None:
    activity.record_heartbeat()
    await asyncio.sleep(PATIENCE_S)


def test_a_cancellation_that_is_waited_for_is_reported(node, task):
    node.worker(activities=[waits_with_heartbeat])
    node.say(task("t1", "waits_with_heartbeat"))
    beat = node.next(links.Heartbeat)
    node.say(links.Answer(beat.n, 60, Deadline(0, cancel_requested=True)))
    assert node.command(FailActivity, Done()).failure.type == "Cancelled"


# --- the end -------------------------------------------------------------------------
def test_an_orderly_end_lets_work_finish_within_its_grace(node, task):
    node.worker(activities=[double, wait, count_down], slots=1)
    node.say(task("t1", "wait"), task("t2", "double", 1))
    assert later["begun"].wait(PATIENCE_S)
    thread = node.stop(5_000)
    assert node.sync(lambda sync: sync.draining)
    assert node.command(ReleaseActivity, Done()) == ReleaseActivity("t2", "shutdown")
    node.say(task("t3", "double", 1))
    assert node.command(ReleaseActivity, Done()) == ReleaseActivity("t3", "shutdown")
    later["release"].set()
    assert node.command(CompleteActivity, Done()).token == "t1"
    node.next(links.WorkerBye)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_what_does_not_finish_in_its_grace_is_handed_back_with_its_newest_details(node, task):
    node.worker(activities=[holds])
    node.say(task("t1", "holds"))
    beat = node.next(links.Heartbeat)
    node.say(links.Answer(beat.n, 60, Deadline(0)))
    assert later["begun"].wait(PATIENCE_S)
    thread = node.stop(50)
    command = node.command(ReleaseActivity, Done())
    assert command == ReleaseActivity("t1", "shutdown", values.encode("second"), 2)
    assert later["cancelled"].wait(PATIENCE_S), "async code is told"
    node.next(links.WorkerBye)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@activity.define
async def holds() -> None:
    activity.record_heartbeat("first")
    await asyncio.sleep(0.05)
    activity.record_heartbeat("second")
    later["begun"].set()
    try:
        await asyncio.sleep(PATIENCE_S)
    finally:
        later["cancelled"].set()


def test_the_end_does_not_wait_for_ever_for_a_node_that_is_gone(node, task):
    node.worker(activities=[double, wait, count_down])
    node.say(task("t1", "wait"))
    assert later["begun"].wait(PATIENCE_S)
    node.end()
    thread = node.stop(50)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
