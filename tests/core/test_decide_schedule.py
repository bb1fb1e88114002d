"""Schedules by their core: what is due is run once, and what overlaps is treated as was asked."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.commands import Done, Refusal, StartWorkflow
from perdure.core.decide_schedule import decide_schedule, fires_at_ms
from perdure.core.interactions import CancelWorkflow, ChildEnded, TerminateWorkflow
from perdure.core.schedule_commands import (
    BackfillSchedule,
    DeleteSchedule,
    FireSchedule,
    PauseSchedule,
    PutSchedule,
    TriggerSchedule,
)
from perdure.core.schedule_state import Overlap, Schedule, Spec, fold, schedule_group

GROUP = schedule_group("nightly")
MINUTE_MS = 60_000


class Bench:
    """One schedule, and what it asked for."""

    def __init__(self, **spec: Any) -> None:
        self.now_ms = 0
        self.schedule: Schedule | None = None
        self.then: list[Any] = []
        self.answers: list[Any] = []
        given = {"workflow_type": "Report", "task_queue": "default", "input": None}
        self.spec = Spec(**{**given, "every_ms": MINUTE_MS, **spec})

    def create(self) -> Bench:
        self.ask(PutSchedule(GROUP, self.spec, False, "", "r-create"))
        return self

    def ask(self, command: Any) -> Any:
        decision = decide_schedule(self.schedule, command, self.now_ms)
        for record in decision.records:
            self.schedule = fold(self.schedule, GROUP, record)
        self.then += [follow_on.command for follow_on in decision.then]
        self.answers.append(decision.answer)
        return decision.answer

    def fire(self, at_ms: int) -> Any:
        self.now_ms = at_ms
        assert self.schedule is not None
        return self.ask(FireSchedule(GROUP, self.schedule.next_ms))

    def end(self, status: str = "Completed") -> None:
        assert self.schedule is not None
        self.ask(ChildEnded(GROUP, next(iter(self.schedule.running)), status, None, None))

    @property
    def starts(self) -> list[str]:
        return [each.workflow_id for each in self.then if isinstance(each, StartWorkflow)]


def test_each_run_has_an_id_of_its_own_that_says_when_it_was_due():
    bench = Bench(overlap=Overlap.ALLOW_ALL).create()
    bench.fire(MINUTE_MS)
    bench.fire(2 * MINUTE_MS + 5)
    assert bench.starts == ["nightly-19700101T000100Z-1", "nightly-19700101T000200Z-2"]
    assert bench.schedule.next_ms == 3 * MINUTE_MS


def test_a_run_fired_twice_or_too_early_is_refused():
    bench = Bench().create()
    assert isinstance(bench.fire(MINUTE_MS - 1), Refusal)
    bench.fire(MINUTE_MS)
    assert isinstance(bench.ask(FireSchedule(GROUP, MINUTE_MS)), Refusal)
    assert len(bench.starts) == 1


@pytest.mark.parametrize(
    ("overlap", "starts", "buffered", "skipped"),
    [
        (Overlap.SKIP, 1, 0, 2),
        (Overlap.BUFFER_ONE, 1, 1, 1),
        (Overlap.BUFFER_ALL, 1, 2, 0),
        (Overlap.CANCEL_OTHER, 1, 1, 1),
        (Overlap.TERMINATE_OTHER, 3, 0, 0),
        (Overlap.ALLOW_ALL, 3, 0, 0),
    ],
)
def test_what_is_due_while_another_goes_on_is_treated_as_was_asked(
    overlap, starts, buffered, skipped
):
    bench = Bench(overlap=overlap).create()
    for n in (1, 2, 3):
        bench.fire(n * MINUTE_MS)
    assert len(bench.starts) == starts
    assert len(bench.schedule.buffered) == buffered
    assert bench.schedule.skipped == skipped
    ended = {Overlap.CANCEL_OTHER: CancelWorkflow, Overlap.TERMINATE_OTHER: TerminateWorkflow}
    asked = [each for each in bench.then if not isinstance(each, StartWorkflow)]
    assert bool(asked) == (overlap in ended)
    assert all(isinstance(each, ended[overlap]) for each in asked)


def test_what_waited_begins_when_the_one_before_has_ended_one_after_the_other():
    bench = Bench(overlap=Overlap.BUFFER_ALL).create()
    for n in (1, 2, 3):
        bench.fire(n * MINUTE_MS)
    bench.end()
    assert len(bench.starts) == 2
    bench.end()
    bench.end()
    assert len(bench.starts) == 3
    assert bench.schedule.running == {}
    assert bench.schedule.buffered == []


@pytest.mark.parametrize(("catch_up", "starts", "missed"), [(0, 0, 10), (1, 1, 9), (3, 3, 7)])
def test_of_what_fell_due_while_no_node_was_up_so_much_is_made_up_for_as_was_asked(
    catch_up, starts, missed
):
    bench = Bench(catch_up=catch_up, overlap=Overlap.ALLOW_ALL).create()
    bench.fire(10 * MINUTE_MS + 30_000)
    assert len(bench.starts) == starts
    assert bench.schedule.missed == missed
    assert bench.schedule.next_ms == 11 * MINUTE_MS
    if starts:
        assert bench.starts[-1].startswith("nightly-19700101T001000Z")


def test_fewer_missed_runs_than_may_be_made_up_for_are_all_made_up_for():
    bench = Bench(catch_up=3, overlap=Overlap.ALLOW_ALL).create()
    bench.fire(2 * MINUTE_MS + 30_000)
    assert len(bench.starts) == 2
    assert bench.schedule.missed == 0


def test_a_run_that_is_only_a_little_late_is_none_that_was_missed():
    bench = Bench(catch_up=0).create()
    bench.fire(MINUTE_MS + 5_000)
    assert len(bench.starts) == 1


def test_a_paused_schedule_is_not_due_and_makes_up_for_nothing_when_it_goes_on():
    bench = Bench().create()
    bench.ask(PauseSchedule(GROUP, True, "holidays", "r-1"))
    assert fires_at_ms(bench.schedule) is None
    assert isinstance(bench.fire(5 * MINUTE_MS), Refusal)
    bench.ask(PauseSchedule(GROUP, True, "", "r-again"))
    assert bench.schedule.reason == "holidays"
    bench.ask(PauseSchedule(GROUP, False, "", "r-2"))
    assert bench.schedule.reason == ""
    assert bench.schedule.next_ms == 6 * MINUTE_MS
    assert bench.starts == []


@pytest.mark.parametrize(("status", "paused"), [("Failed", True), ("Completed", False)])
def test_a_schedule_that_says_so_pauses_when_a_run_of_it_fails(status, paused):
    bench = Bench(pause_on_failure=True).create()
    bench.fire(MINUTE_MS)
    bench.end(status)
    assert bench.schedule.paused is paused
    assert ("ended as Failed" in bench.schedule.reason) is paused


def test_a_trigger_runs_it_now_and_leaves_alone_what_is_due_next():
    bench = Bench().create()
    bench.now_ms = 5_000
    bench.ask(TriggerSchedule(GROUP, "", "r-1"))
    bench.ask(TriggerSchedule(GROUP, "", "r-1"))  # The same request again.
    assert bench.starts == ["nightly-19700101T000005Z-1"]
    assert bench.schedule.next_ms == MINUTE_MS


def test_a_backfill_runs_what_was_due_in_its_span_and_nothing_that_is_yet_to_come():
    bench = Bench().create()
    bench.now_ms = 3 * MINUTE_MS
    bench.ask(BackfillSchedule(GROUP, MINUTE_MS, 9 * MINUTE_MS, Overlap.ALLOW_ALL, "r-1"))
    assert len(bench.starts) == 3
    too_many = BackfillSchedule(GROUP, 0, 2_000 * MINUTE_MS, "", "r-2")
    bench.now_ms = 2_000 * MINUTE_MS
    assert "take a shorter one" in bench.ask(too_many).message


def test_the_jitter_of_a_run_is_the_same_for_everybody_and_ends_before_the_next():
    bench = Bench(jitter_ms=10 * MINUTE_MS).create()
    shares = set()
    for n in range(1, 30):
        at_ms = fires_at_ms(bench.schedule)
        assert at_ms == fires_at_ms(bench.schedule)
        assert n * MINUTE_MS <= at_ms < (n + 1) * MINUTE_MS
        shares.add(at_ms % MINUTE_MS)
        bench.fire(at_ms)
    assert len(shares) > 20
    assert bench.schedule.missed == 0


def test_a_schedule_exists_once_is_replaced_only_on_demand_and_its_id_is_free_after_its_end():
    bench = Bench().create()
    again = PutSchedule(GROUP, bench.spec, False, "", "r-create")
    assert bench.ask(again) == Done()
    assert bench.ask(PutSchedule(GROUP, bench.spec, False, "", "r-2")).code == "ALREADY_EXISTS"
    hourly = Bench(every_ms=3_600_000).spec
    assert bench.ask(PutSchedule(GROUP, hourly, False, "", "r-3", replace=True)) == Done()
    assert bench.schedule.next_ms == 3_600_000
    bench.ask(DeleteSchedule(GROUP, "r-4"))
    assert bench.ask(TriggerSchedule(GROUP, "", "r-5")).code == "NOT_FOUND"
    assert bench.ask(DeleteSchedule(GROUP, "r-4")) == Done()
    assert bench.ask(PutSchedule(GROUP, bench.spec, False, "", "r-6")) == Done()
    assert bench.schedule.started == 0


def test_a_schedule_that_was_deleted_and_made_again_gives_no_id_a_second_time():
    bench = Bench().create()
    bench.ask(TriggerSchedule(GROUP, "", "r-1"))
    bench.ask(DeleteSchedule(GROUP, "r-2"))
    bench.ask(PutSchedule(GROUP, bench.spec, False, "", "r-3"))
    bench.ask(TriggerSchedule(GROUP, "", "r-4"))
    assert bench.schedule.started == 1
    assert len(set(bench.starts)) == 2


def test_a_start_whose_id_is_taken_does_not_block_the_schedule():
    bench = Bench().create()
    decision = decide_schedule(bench.schedule, FireSchedule(GROUP, MINUTE_MS), MINUTE_MS)
    [follow_on] = decision.then
    start, otherwise = follow_on.command, follow_on.otherwise
    assert isinstance(start, StartWorkflow)
    assert otherwise.status == "Refused"
    bench.fire(MINUTE_MS)
    bench.ask(otherwise)
    bench.fire(2 * MINUTE_MS)
    assert len(bench.starts) == 2
