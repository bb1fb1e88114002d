"""Progress: a heartbeat that describe and the command line draw."""

from __future__ import annotations

import pytest

from perdure import RetryPolicy, activity, values, workflow
from perdure.cli import wf_views
from perdure.errors import InvalidArgument
from perdure.progress import Progress, view
from perdure.testing import LocalEngine, ManualClock

found: list[activity.Progress | None] = []


@activity.define(retry=RetryPolicy(initial_ms=1_000))
def copies() -> str:
    found.append(activity.heartbeat_details(activity.Progress))
    if activity.attempt() == 1:
        activity.progress(3, 12, "chapter 3", details={"row": 300})
        raise activity.Error("Busy")
    return "copied"


@workflow.define
async def copying() -> str:
    return await workflow.execute_activity(copies, activity_id="a")


def test_describe_shows_it_and_the_next_attempt_goes_on_from_its_checkpoint():
    found.clear()
    engine = LocalEngine(workflows=[copying], activities=[copies], clock=ManualClock(0))
    engine.client.start_workflow(copying, workflow_id="w")
    engine.run_workflow_tasks()
    engine.run_activities()
    pending = engine.describe_workflow("w").pending_activities[0]
    assert pending.progress == {"done": 3, "total": 12, "fraction": 0.25, "note": "chapter 3"}
    shown = wf_views.pending_notes([dict(pending)], 0)
    assert shown[1] == "a: [#######-----------------------] 25 % 3 of 12 chapter 3"
    engine.run_until_idle()
    assert found == [
        None,
        Progress(done=3, total=12, note="chapter 3", details={"row": 300}),
    ]
    assert list(range(found[1].done, found[1].total)) == list(range(3, 12))  # Still whole numbers.


@pytest.mark.parametrize(
    ("details", "fraction", "drawn"),
    [
        (Progress.of(5, None, "rows", None), None, "5 done rows"),
        (Progress.of(1_500.5, 1_000, "", None), 1.0, f"[{'#' * 30}] 100 % 1,500.50 of 1,000"),
        (Progress.of(0, 0, "", None), 1.0, f"[{'#' * 30}] 100 % 0 of 0"),
        (
            Progress.of(12_345_678, 20_000_000, "", None),
            12_345_678 / 20_000_000,
            f"[{'#' * 18}{'-' * 12}] 61 % 12,345,678 of 20,000,000",
        ),
        (Progress.of(0, 3, "", None), 0.0, f"[{'-' * 30}] 0 % 0 of 3"),
    ],
)
def test_what_is_drawn(details, fraction, drawn):
    seen = view(values.to_builtins(values.encode(details)))
    assert seen["fraction"] == fraction
    assert wf_views.bar(seen) == drawn


@pytest.mark.parametrize(
    "details", [None, 5, "half", {}, {"done": 1}, {"kind": "perdure.progress"}]
)
def test_other_details_are_no_progress(details):
    assert view(details) is None


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("done", -1),
        ("done", float("nan")),
        ("done", True),
        ("done", "1"),
        ("total", -1),
        ("note", 3),
    ],
)
def test_what_is_no_count_or_no_text_is_refused_naming_the_field(field, wrong):
    with pytest.raises(InvalidArgument) as caught:
        Progress.of(**{"done": 1, "total": 2, "note": "", "details": None, field: wrong})
    assert caught.value.field == field
