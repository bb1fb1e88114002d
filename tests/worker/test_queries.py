"""A worker's answers to queries, against a node that is only sockets."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from perdure import values, workflow
from perdure.core import links
from perdure.core.records import (
    MarkerRecorded,
    SignalReceived,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    WorkflowStarted,
    encode_event,
)
from perdure.worker import queries, replays
from perdure.worker.stage import Stage

release = threading.Event()
replayed: list[str] = []
drawn: list[int] = []


class Stop(BaseException):
    """What nobody expects."""


@workflow.define
async def counts(word: str) -> int:
    replayed.append(word)
    count = 0

    @workflow.signal
    def add(n: int) -> None:
        nonlocal count
        count += n

    @workflow.query
    def at() -> int:
        return count

    @workflow.query
    def spins() -> None:
        while not release.is_set():
            pass

    @workflow.query
    def exits() -> None:
        raise SystemExit(3)

    @workflow.query
    def is_cancelled() -> None:
        raise asyncio.CancelledError

    @workflow.query
    def stops() -> None:
        raise Stop

    @workflow.query
    def starts() -> None:
        workflow.sleep_ms(5).send(None)

    await workflow.sleep_ms(1_000)
    await workflow.sleep_ms(1_000)
    return count


@workflow.define
async def draws() -> None:
    value = workflow.side_effect(lambda: drawn.append(1) or len(drawn))

    @workflow.query
    def seen() -> int:
        return value

    await workflow.sleep_ms(10)


@pytest.fixture(autouse=True)
def _fresh():
    replayed.clear()
    drawn.clear()
    release.clear()
    yield
    release.set()


def events_of(*signals: int):
    started = WorkflowStarted(1, 5, "counts", "default", values.encode(["x"]), None, b"")
    events = [started, TimerStarted(2, 5, 1, 1_005)]
    for n in signals:
        events.append(SignalReceived(len(events) + 1, 6, "add", values.encode([n]), None))
    return events


def query_of(n, last_event_id, name="at", workflow_type="counts", **fields):
    settled = {"input": None, "consumed": 1, **fields}
    return links.Query(
        n,
        "w",
        workflow_type,
        name,
        settled["input"],
        settled["consumed"],
        last_event_id,
    )


def ask(node, page, n, events, after=0, **fields):
    """The answer to a query for which the worker is given these events, from `after` on."""
    node.say(query_of(n, events[-1].event_id, **fields))
    fetch = node.next(links.Fetch)
    assert (fetch.workflow_id, fetch.after) == ("w", after)
    node.say(page(fetch.n, *[it for it in events if it.event_id > after], complete=True))
    return node.next(links.QueryAnswer)


def test_a_query_is_answered_from_what_history_has(node, page):
    node.worker(workflows=[counts])
    answer = ask(node, page, 7, events_of(1, 2))
    assert (answer.n, values.decode(answer.result), answer.code) == (7, 3, "")


def test_the_next_query_is_fed_only_what_came_since(node, page):
    node.worker(workflows=[counts])
    ask(node, page, 1, events_of(1))
    again = query_of(2, 3)
    node.say(again)
    assert values.decode(node.next(links.QueryAnswer).result) == 1
    assert values.decode(ask(node, page, 3, events_of(1, 4), after=3).result) == 5
    assert replayed == ["x"]


def test_a_long_history_is_fetched_page_by_page(node, page):
    node.worker(workflows=[counts])
    events = events_of(1, 2, 3)
    node.say(query_of(1, 5))
    node.say(page(node.next(links.Fetch).n, *events[:3], complete=False))
    fetch = node.next(links.Fetch)
    assert fetch.after == 3
    node.say(page(fetch.n, *events[3:], complete=True))
    assert values.decode(node.next(links.QueryAnswer).result) == 6


def test_a_copy_runs_no_side_effect_that_is_not_recorded(node, page):
    """Its value would be another one."""
    node.worker(workflows=[draws])
    started = WorkflowStarted(1, 5, "draws", "default", None, None, b"")
    ahead = ask(node, page, 1, [started], name="seen", workflow_type="draws", consumed=0)
    assert (ahead.code, "ask again" in ahead.message) == ("UNAVAILABLE", True)
    assert drawn == []
    history = [
        started,
        MarkerRecorded(2, 5, "side_effect", "1", values.encode(70)),
        TimerStarted(3, 5, 1, 15),
    ]
    later = ask(node, page, 2, history, name="seen", workflow_type="draws")
    assert values.decode(later.result) == 70


def test_a_copy_that_is_ahead_of_history_is_let_go_of(node, page):
    """History may take another course there."""
    node.worker(workflows=[counts])
    for n in (1, 2):  # The second is fed from the beginning again.
        answer = ask(node, page, n, events_of()[:1], consumed=0)
        assert values.decode(answer.result) == 0
    assert replayed == ["x", "x"]


def test_the_end_of_a_workflow_can_be_asked_about(node, page):
    node.worker(workflows=[counts])
    events = [
        *events_of(5),
        TimerFired(4, 1_005, 1),
        TimerStarted(5, 1_005, 2, 2_005),
        TimerFired(6, 2_005, 2),
    ]
    assert values.decode(ask(node, page, 1, events).result) == 5


def test_a_query_that_there_is_not_says_so_and_costs_no_replay_of_the_next(node, page):
    node.worker(workflows=[counts])
    answer = ask(node, page, 1, events_of(1), name="nothing")
    assert answer.code == "NOT_FOUND"
    assert "at" in answer.message


def test_a_query_that_would_schedule_something_is_refused_and_the_next_is_answered(node, page):
    node.worker(workflows=[counts])
    assert ask(node, page, 1, events_of(1), name="starts").code == "FAILED_PRECONDITION"
    assert values.decode(ask(node, page, 2, events_of(1)).result) == 1


def test_code_that_does_not_agree_with_history_says_so(node, page):
    node.worker(workflows=[counts])
    wrong = [events_of()[0], TimerCancelled(2, 5, 1, False)]
    answer = ask(node, page, 1, wrong)
    assert answer.code == "FAILED_PRECONDITION"
    assert "does not agree" in answer.message


def test_a_type_that_the_worker_has_not_is_said(node):
    node.worker(workflows=[counts])
    node.say(query_of(1, 1, workflow_type="absent"))
    answer = node.next(links.QueryAnswer)
    assert (answer.code, "absent" in answer.message) == ("FAILED_PRECONDITION", True)


def test_a_query_that_never_returns_is_ended_and_the_next_is_answered(node, page, monkeypatch):
    monkeypatch.setattr(replays, "BLOCKED_MS", 200)
    monkeypatch.setattr(replays, "LOOK_MS", 50)
    node.worker(workflows=[counts])
    answer = ask(node, page, 1, events_of(1), name="spins")
    assert answer.code == "FAILED_PRECONDITION"
    assert "did not give its loop a turn" in answer.message
    assert values.decode(ask(node, page, 2, events_of(1)).result) == 1


def test_the_watch_sees_that_a_long_history_gets_on(monkeypatch):
    monkeypatch.setattr(queries, "CHUNK", 2)
    stage = Stage({})
    query = queries._Query(query_of(1, 6), workflow.definition_of(counts), lambda *_: None)
    query.events = [msgspec.Raw(encode_event(event)) for event in events_of(1, 2, 3, 4)]
    turns = stage.turns
    stage.run(query)
    assert (values.decode(query.answer.result), stage.turns - turns) == (10, 1 + 3)


@pytest.mark.parametrize(
    ("name", "said", "kept"),
    [("exits", "SystemExit: 3", 3), ("is_cancelled", "CancelledError", 3), ("stops", "Stop()", 0)],
)
def test_a_query_that_would_end_its_worker_is_refused_and_the_next_is_answered(
    node, page, name, said, kept
):
    node.worker(workflows=[counts])
    answer = ask(node, page, 1, events_of(4), name=name)
    assert (answer.code, said in answer.message) == ("FAILED_PRECONDITION", True)
    assert values.decode(ask(node, page, 2, events_of(4, 1), after=kept).result) == 5


def test_only_so_many_copies_are_kept(node, page, monkeypatch):
    monkeypatch.setattr(queries, "COPIES_MAX", 1)
    node.worker(workflows=[counts])
    ask(node, page, 1, events_of(1))
    node.say(links.Query(2, "other", "counts", "at", None, 1, 2))
    fetch = node.next(links.Fetch)
    node.say(page(fetch.n, *events_of(), complete=True))
    node.next(links.QueryAnswer)
    node.say(query_of(3, 3))
    assert node.next(links.Fetch).after == 0
