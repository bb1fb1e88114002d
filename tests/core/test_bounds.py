"""What one workflow may have of anything: refused or parked by the bound's name, never ended."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.bounds import Bounds
from perdure.core.records import ActivityOptions
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import BOOM, Rig

OPTIONS = ActivityOptions(RetryPolicy())


def begun(**bounds: int) -> Rig:
    rig = Rig(bounds=Bounds(**bounds))
    rig.ask(rig.start())
    return rig


def timers(first: int, last: int) -> list[c.StartTimer]:
    return [c.StartTimer(number, 1_000) for number in range(first, last + 1)]


def test_more_activities_at_once_than_allowed_park_the_task() -> None:
    rig = begun(pending_activities=2)
    three = [c.ScheduleActivity(name, "t", None, OPTIONS) for name in "abc"]
    answer = rig.ask(rig.step(*three))
    assert answer.code == "INVALID_ARGUMENT"
    assert answer.message.startswith("limits.pending_activities: one run has at most 2 ")
    assert rig.ask(rig.step(*three[:2])) == c.Done()


def test_a_history_that_is_too_long_parks_the_workflow_and_ends_it_not() -> None:
    rig = begun(history_events_max=5)
    rig.ask(rig.step(*timers(1, 4)))
    rig.now_ms = 1_000
    for number in range(1, 5):
        rig.ask(c.FireTimer("w", number))  # What happens to it is recorded all the same.
    answer = rig.ask(rig.step(*timers(5, 5)))
    assert answer.code == "FAILED_PRECONDITION"
    assert "limits.history_events_max" in answer.message
    (failed,) = rig.records()
    assert isinstance(failed, r.WorkflowTaskFailed)
    assert (failed.reason, failed.failure.type) == ("history_limit", "HistoryLimit")
    assert rig.execution().is_open


@pytest.mark.parametrize(
    "ending",
    [
        c.CompleteWorkflow(None),
        c.FailWorkflow(BOOM),
        c.ContinueAsNew("T", "default", None),
    ],
    ids=lambda one: type(one).__name__,
)
def test_beyond_the_limit_a_workflow_may_still_end(ending: Any) -> None:
    rig = begun(history_events_max=1)
    assert rig.ask(rig.step(*timers(1, 1))).code == "FAILED_PRECONDITION"
    assert rig.ask(rig.step(ending)) == c.Done()


def test_beyond_the_limit_a_workflow_may_read_what_has_come() -> None:
    rig = begun(history_events_max=1)
    assert rig.ask(rig.step()) == c.Done()


@pytest.mark.parametrize("message", [c.SignalWorkflow("w", "s", None), None])
def test_a_history_that_is_full_takes_no_message(message: Any) -> None:
    rig = begun(history_events_max=1)
    answer = rig.ask(message or c.UpdateWorkflow("w", "u", None, "u1"))
    assert answer.code == "RESOURCE_EXHAUSTED"
    assert "limits.history_events_max" in answer.message


@pytest.mark.parametrize("reopened", [False, True])
def test_the_bytes_of_a_history_are_bounded_too_whoever_counted_them(reopened: bool) -> None:
    rig = begun(history_bytes_max=10_000)
    rig.ask(c.SignalWorkflow("w", "s", b"m" + b"x" * 10_000))
    if reopened:
        rig.open()
    answer = rig.ask(rig.step(*timers(1, 1)))
    assert answer.code == "FAILED_PRECONDITION"
    assert "limits.history_bytes_max" in answer.message
    answer = rig.ask(c.SignalWorkflow("w", "s", None))
    assert answer.code == "RESOURCE_EXHAUSTED"


def test_the_operator_is_told_once_when_a_history_grows_long() -> None:
    rig = begun(history_events_warn=4)
    told = []
    for _ in range(5):
        rig.ask(c.SignalWorkflow("w", "s", None))
        told.append(list(rig.batches[-1].long))
    assert told == [[], [], ["w"], [], []]
