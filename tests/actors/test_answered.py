"""What clients asked, come again: the same answer, and nothing is done a second time."""

from __future__ import annotations

import msgspec
import pytest

from actors.answered import Answered
from chaos.sim import run
from chaos.sim.plan import Flow, NetFault, Plan, Talk
from chaos.sim.talkers import Talker
from perdure.core.commands import Done, PauseWorkflow, Refusal
from perdure.core.links import Answer, Ask
from perdure.wire import SignalWorkflow

COMMAND = PauseWorkflow("w", True, "")


class Desk:
    """What it has said, and to whom."""

    def __init__(self, **options) -> None:
        self.said: list[tuple[str, int, object]] = []
        self.answered = Answered(self._say, **options)

    def _say(self, to: str, message: Answer, head: bytes) -> None:
        self.said.append((to, message.n, message.answer))

    def is_new(self, n: int, sender: str = "gateway.a") -> bool:
        return self.answered.is_new(sender, Ask(n, COMMAND))

    def say(self, n: int, answer: object, head: bytes = b"") -> None:
        self.answered.say("gateway.a", Answer(n, 4, answer), head)


def test_a_command_that_comes_again_is_answered_as_the_first_time():
    desk = Desk()
    assert desk.is_new(7)
    assert not desk.is_new(7)
    assert desk.said == []  # It is being judged.
    refusal = Refusal("NOT_FOUND", "there is no workflow")
    desk.say(7, refusal)
    assert not desk.is_new(7)
    assert desk.said == [("gateway.a", 7, refusal)] * 2


def test_another_gateways_command_and_a_workers_of_the_same_number_are_others():
    desk = Desk()
    assert desk.is_new(7)
    desk.say(7, Done())
    assert desk.is_new(7, sender="gateway.b")
    desk.say(7, Refusal("X", ""), head=b"worker")
    desk.said.clear()
    assert not desk.is_new(7)
    assert desk.said == [("gateway.a", 7, Done())]


def test_only_the_newest_are_kept():
    desk = Desk(most=2)
    for n in (1, 2, 3):
        desk.is_new(n)
        desk.say(n, Done())
    assert [desk.is_new(n) for n in (3, 2, 1)] == [False, False, True]


@pytest.fixture
def no_request_ids(monkeypatch) -> None:
    """A program in another language that gives its signals no request ids."""
    soon = Talker.soon

    def bare(self, delay_ms, args, *rest):
        if isinstance(args, SignalWorkflow):
            args = msgspec.structs.replace(args, request_id=None)
        soon(self, delay_ms, args, *rest)

    monkeypatch.setattr(Talker, "soon", bare)


def test_what_a_gateway_says_twice_to_history_happens_once(no_request_ids):
    twice = tuple(NetFault("gateway", "history", nth, "twice", 3) for nth in range(1, 60))
    flow = Flow(id="w", talk=Talk(signals=4, gap_ms=5))
    plan = Plan(seed=1, flows=(flow,), net=twice)
    result = run.run_plan(plan)
    assert result.violations == ()
    assert result.fired["twice"] > 4
    assert result.goals["a signal was received"] == 4
