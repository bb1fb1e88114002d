"""The scheduler's mind: deadlines and sessions."""

from __future__ import annotations

import msgspec

from perdure.core import commands as c
from perdure.core.ids import Session

NODE = "node.1"
ONE, TWO = Session(NODE, 1), Session(NODE, 2)
GATEWAY = "gateway.1"


def test_timers_fire_at_their_time(history, scheduler):
    history.start()
    history.step("w", c.StartTimer(1, 500))
    assert scheduler.mind.next_ms() == 1_500
    scheduler.at(1_499)
    assert scheduler.asked == []
    scheduler.at(1_500)
    assert scheduler.asked == [c.FireTimer("w", 1)]


def test_a_proposal_that_history_could_not_judge_is_made_again(history, scheduler):
    history.start()
    history.step("w", c.StartTimer(1, 500))
    history.now_ms = 1_500
    scheduler.step(answers=False)
    [command] = scheduler.proposed
    scheduler.proposed.clear()
    scheduler.mind.answered(command, c.Refusal("UNAVAILABLE", "unknown"), 1_500)
    scheduler.at(2_499)
    assert scheduler.asked == []
    scheduler.at(2_500)
    assert scheduler.asked == [command]


def test_a_late_sync_of_a_dead_session_brings_nobody_back(history, scheduler):
    scheduler.hello(ONE)
    scheduler.sets()
    scheduler.sync(ONE)
    history.schedule()
    scheduler.step()
    assert scheduler.asked == []


def test_a_set_that_does_not_reach_a_session_says_nothing_about_it(history, scheduler):
    scheduler.sync(TWO)
    scheduler.sets(1, highest=1)
    history.schedule()
    scheduler.step()
    assert len(scheduler.tasks(session=TWO)) == 1


def test_tasks_can_be_encoded_as_they_are(history, scheduler):
    scheduler.hello()
    history.start("v")
    history.schedule()
    scheduler.step()
    for _, message in scheduler.sent:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
