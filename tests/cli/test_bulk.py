"""One operation for each of many: counts, rates, what is asked first, and what is said."""

from __future__ import annotations

import json

import pytest
import typer

from perdure import errors, wire
from perdure.cli import bulk, dlq_bulk, filters


class FakeClient:
    """Answers every call; some with an error, by the workflow's id."""

    def __init__(self, **problems) -> None:
        self.problems = problems
        self.asked: list[list[str]] = []

    def call_many(self, calls):
        self.asked.append([call.workflow_id for call in calls])
        return [self.problems.get(call.workflow_id, {}) for call in calls]


def items(*names):
    return [bulk.Item(name, wire.CancelWorkflow(name)) for name in names]


def run(client, names, rate=None, as_json=True):
    bulk.run(client, items(*names), rate=rate, verb="cancel", done_word="asked", as_json=as_json)


def test_what_came_of_each_is_counted(capsys):
    run(FakeClient(b=errors.FailedPrecondition("it is Completed"), c=errors.NotFound("")), "abcd")
    assert json.loads(capsys.readouterr().out) == {
        "matched": 4,
        "done": 2,
        "gone": 2,
        "failed": [],
    }


def test_a_refusal_that_is_no_end_is_named_and_the_exit_code_is_1(capsys):
    with pytest.raises(typer.Exit) as caught:
        run(FakeClient(b=errors.Unavailable("no node")), "abc", as_json=False)
    assert caught.value.exit_code == 1
    out, err = capsys.readouterr()
    assert out == "asked 2 of 3\n"
    assert "b: no node" in err


def test_a_rate_is_kept_over_the_whole_run(monkeypatch):
    now, slept = [0.0], []
    monkeypatch.setattr(bulk.time, "monotonic", lambda: now[0])

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(bulk.time, "sleep", sleep)
    client = FakeClient()
    run(client, [f"w{n}" for n in range(100)], rate=20)
    assert now[0] == pytest.approx((100 - 2) / 20)
    assert max(len(part) for part in client.asked) == 2
    assert sum(len(part) for part in client.asked) == 100


def test_who_stops_it_is_told_how_far_it_was(capsys):
    class Stopped(FakeClient):
        def call_many(self, calls):
            if len(self.asked) == 1:
                raise KeyboardInterrupt
            return super().call_many(calls)

    with pytest.raises(KeyboardInterrupt):
        run(Stopped(), "abcd", rate=20)
    assert capsys.readouterr().err == "stopped: asked at least 2 of 4\n"


def test_nobody_is_asked_where_nobody_sits_and_a_no_does_nothing(monkeypatch):
    bulk.confirmed("cancel workflows:", 5, yes=False)
    monkeypatch.setattr(bulk, "is_terminal", lambda: True)
    bulk.confirmed("cancel workflows:", 5, yes=True)
    bulk.confirmed("cancel workflows:", 0, yes=False)
    asked = []
    monkeypatch.setattr(typer, "confirm", lambda text, err: asked.append(text))
    with pytest.raises(typer.Exit):
        bulk.confirmed("cancel workflows:", 5, yes=False)
    assert asked == ["cancel workflows: 5?"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (None, None),
        (["a=1"], {"a": 1}),
        (["a=x", "b=true", "c=1.5"], {"a": "x", "b": True, "c": 1.5}),
        (["a=[1]"], {"a": "[1]"}),
        (["a=x=y"], {"a": "x=y"}),
        (["a=2026-07-01T12:00:00+02:00"], {"a": "2026-07-01T10:00:00.000Z"}),
        (['a="2026-07-01T12:00:00+02:00"'], {"a": "2026-07-01T12:00:00+02:00"}),
        (["a=2026-07-01T12:00:00"], {"a": "2026-07-01T12:00:00"}),
    ],
)
def test_attributes_are_names_with_json_or_texts(words, expected):
    assert filters.attributes_of(words) == expected


@pytest.mark.parametrize("word", ["a", "=1", ""])
def test_an_attribute_without_a_name_or_value_is_a_usage_error(word):
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        filters.attributes_of([word])


def letter(n, failure_type, activity_type="charge"):
    return {
        "workflow_id": f"w{n}",
        "activity_id": "a",
        "activity_type": activity_type,
        "dead_ms": n,
        "last_failure": {"type": failure_type, "message": f"m{n}"},
    }


def test_dead_letters_are_counted_by_what_they_died_of_most_first():
    found = [letter(1, "Timeout"), letter(2, "Boom"), letter(3, "Boom", "mail"), letter(4, "Boom")]
    boom, timeout = dlq_bulk.groups(found)
    assert (boom["failure_type"], boom["count"], boom["activity_types"]) == (
        "Boom",
        3,
        {"charge": 2, "mail": 1},
    )
    assert (boom["oldest_ms"], boom["newest_ms"]) == (2, 4)
    assert boom["example"] == {"workflow_id": "w4", "activity_id": "a", "message": "m4"}
    assert timeout["count"] == 1


def test_one_matches_and_two_match():
    assert bulk.matching(1, "dead letter") == "1 dead letter matches"
    assert bulk.matching(2, "workflow") == "2 workflows match"
