"""The index of dead letters: what it lists is what waits for an operator."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.dead_letters import DeadLetterFilter, DeadLetters
from perdure.errors import InvalidArgument
from perdure.policy import RetryPolicy

ALL = DeadLetterFilter()


@pytest.fixture
def letters(history):
    letters = DeadLetters()

    def listen(n, at_ms, workflow_id, records):
        if letters.concerns(workflow_id, records):
            letters.refresh(workflow_id, history.stored(workflow_id))

    history.listeners.append(listen)
    return letters


def die(history, workflow_id: str, failure: str = "Oops", type: str = "t") -> None:
    if workflow_id not in history.executions:
        history.schedule(workflow_id, type=type, retry=RetryPolicy(max_attempts=1))
    history.fail(history.grant(workflow_id), failure)


def names(letters, where=ALL, now_ms=10_000, limit=100) -> list[str]:
    found, _ = letters.list(where, now_ms, limit)
    return [entry.workflow_id for entry in found]


def test_an_activity_is_listed_from_its_last_failure_until_it_is_resolved(history, letters):
    history.schedule("w", retry=RetryPolicy(max_attempts=2, initial_ms=1))
    history.fail(history.grant("w"), "First")
    assert names(letters) == []
    history.now_ms += 10
    history.fail(history.grant("w"), "Second")
    [entry], _ = letters.list(ALL, 0, 10)
    assert [it.failure.type for it in entry.activity.failures_newest] == ["First", "Second"]
    assert entry.activity.dead_ms == history.now_ms
    history.ask(c.RedriveDeadLetter("w", "a"))
    assert names(letters) == []


@pytest.mark.parametrize(
    "resolve",
    [
        lambda history: history.ask(c.FailDeadLetter("w", "a")),
        lambda history: history.ask(c.CompleteDeadLetter("w", "a", None)),
        lambda history: history.step("w", c.CancelActivity("a")),
        lambda history: history.step("w", c.CompleteWorkflow(None)),
    ],
    ids=["fail", "complete", "cancel", "the end of its workflow"],
)
def test_every_way_out_takes_it_off_the_list(history, letters, resolve):
    die(history, "w")
    history.start("other")
    assert names(letters) == ["w"]
    resolve(history)
    assert names(letters) == []
    assert len(letters) == 0


def test_the_oldest_comes_first_also_when_one_died_again(history, letters):
    for name in "bac":
        history.now_ms += 1
        die(history, name)
    assert names(letters) == ["b", "a", "c"]
    history.ask(c.RedriveDeadLetter("b", "a"))
    history.now_ms += 1
    die(history, "b")
    assert names(letters) == ["a", "c", "b"]


def test_filters_narrow_the_list(history, letters):
    die(history, "a", "Oops", type="one")
    history.now_ms = 5_000
    die(history, "b", "Other", type="two")
    assert names(letters, DeadLetterFilter(workflow_id="b")) == ["b"]
    assert names(letters, DeadLetterFilter(activity_id="nope")) == []
    assert names(letters, DeadLetterFilter(activity_type="one")) == ["a"]
    assert names(letters, DeadLetterFilter(failure_type="Other")) == ["b"]
    assert names(letters, DeadLetterFilter(older_than_ms=4_999)) == ["a", "b"]
    assert names(letters, DeadLetterFilter(older_than_ms=5_000)) == ["a"]
    assert letters.by_failure_type(ALL, 0) == {"Oops": 1, "Other": 1}


def test_pages_cover_every_entry_once_though_entries_go_meanwhile(history, letters):
    for number in range(7):
        die(history, f"w{number}")
    seen: list[str] = []
    page = None
    while True:
        found, page = letters.list(ALL, 0, 2, page)
        seen += [entry.workflow_id for entry in found]
        if page is None:
            break
        history.ask(c.RedriveDeadLetter(found[-1].workflow_id, "a"))
    assert seen == [f"w{number}" for number in range(7)]


def test_the_last_page_has_no_next(history, letters):
    die(history, "a")
    die(history, "b")
    assert letters.list(ALL, 0, 2)[1] is None
    assert letters.list(ALL, 0, 1)[1] is not None


@pytest.mark.parametrize("page", ["", "nonsense", "é", "AAAA"])
def test_a_page_that_no_list_gave_is_refused(letters, page):
    with pytest.raises(InvalidArgument, match="page"):
        letters.list(ALL, 0, 10, page)


def test_begun_from_the_open_state_it_lists_the_same(history, letters):
    for name in "abc":
        history.now_ms += 1
        die(history, name)
    history.ask(c.FailDeadLetter("b", "a"))
    loaded = DeadLetters()
    loaded.load(history.open_state())
    assert loaded.list(ALL, 0, 10) == letters.list(ALL, 0, 10)
