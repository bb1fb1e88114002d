"""The ledger: batches, repeats over restarts, and what a commit writes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import ledger as ledger_module
from perdure.core import records as r
from perdure.core.chain import next_hash
from perdure.core.ids import Address, seal
from perdure.core.records import ActivityOptions, decode_body, decode_event
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.store.memory import MemoryStore
from perdure.values import is_reference, refer
from tests.contract.conftest import SqliteStore
from tests.core.ledger_rig import BOOM, LOCAL, Rig

ONCE = RetryPolicy(max_attempts=1)
LARGE = b"m" + b"x" * 2_000


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "data")


@pytest.fixture
def rig(store: Any) -> Any:
    rig = Rig(store)
    yield rig
    rig.writer.close()


def code(answer: object) -> str:
    return answer.code if isinstance(answer, c.Refusal) else ""


# --- batches -----------------------------------------------------------------
def test_what_a_commit_touches_stands_in_the_order_of_its_touching_whatever_the_names(rig):
    ids = [f"a{7 * n % 23}" for n in range(23)]
    steps = [c.ScheduleActivity(it, "t", None, ActivityOptions(ONCE)) for it in ids]
    timers = [c.StartTimer(n, 1_000) for n in range(1, 23)]
    rig.ask(rig.start())
    batch = rig.ledger.judge([c.CompleteWorkflowTask("w", 0, 0, 1, (*steps, *timers))], rig.now_ms)
    assert [activity.activity_id for _, activity in batch.change.activities] == ids
    assert [timer_id for _, timer_id, _ in batch.change.timers] == list(range(1, 23))


def test_later_commands_of_a_batch_see_the_earlier_ones(rig):
    options = ActivityOptions(RetryPolicy(max_attempts=4))
    schedule = c.ScheduleActivity("a", "t", None, options)
    token = rig.token(Address("w", "a", 1, 1))
    answers = rig.ask(
        rig.start(),
        rig.start(),
        c.CompleteWorkflowTask("w", 0, 0, 1, (schedule, c.StartTimer(1, 0))),
        c.GrantLease("w", "a", 1, 1, 1, "w1", LOCAL),
        c.GrantLease("w", "a", 1, 1, 1, "w2", LOCAL),
        c.FireTimer("w", 1),
        c.FireTimer("w", 1),
        c.RecordHeartbeat(token, 1, b"md", True),
        c.CompleteActivity(token, b"mr"),
        c.CompleteActivity(token, b"mr"),
        c.CompleteActivity(token, b"mother"),
    )
    assert [code(answer) for answer in answers] == [
        "",
        "ALREADY_EXISTS",
        "",
        "",
        "FAILED_PRECONDITION",
        "",
        "NOT_FOUND",
        "",
        "",
        "",
        "FAILED_PRECONDITION",
    ]
    assert len(rig.batches) == 1
    events = [decode_event(event.body) for event in rig.batches[0].change.events]
    assert [event.event_id for event in events] == [1, 2, 3, 4, 6]
    rig.open()
    assert rig.execution().last_event_id == 6


def test_a_batch_that_changes_nothing_makes_no_commit(rig):
    rig.ask(rig.start())
    n = rig.ledger.n
    batch = rig.judge(rig.start(), c.FireTimer("w", 9), c.CompleteActivity("nonsense", None))
    assert batch.change is None
    assert batch.n == n
    rig.commit(batch)
    assert rig.ledger.n == n


def test_commits_are_dense_and_chained_over_restarts(rig, store):
    for number in range(6):
        rig.ask(rig.start(f"w{number}"), rig.start(f"v{number}"))
        if number % 2:
            rig.open()
    rows = store.reader().commits(0, 100)
    assert [row.n for row in rows] == list(range(1, len(rows) + 1))
    for before, row in itertools.pairwise(rows):
        assert row.previous_hash == before.hash
        assert row.hash == next_hash(before.hash, row.body)
        assert (decode_body(row.body).n, decode_body(row.body).epoch) == (row.n, row.epoch)


# --- repeats -----------------------------------------------------------------
def test_a_repeat_is_recognised_before_its_commit_after_it_and_after_a_restart(rig):
    start = rig.start("w", "r")
    other = c.StartWorkflow("w", "T", "default", b"mi", "r", b"another digest")
    assert rig.ask(start, start, other)[:2] == [c.Started(), c.Started()]
    assert code(rig.batches[-1].answers[2]) == "FAILED_PRECONDITION"
    for _ in range(2):
        assert rig.ask(start) == c.Started()
        assert rig.records() == []
        assert code(rig.ask(other)) == "FAILED_PRECONDITION"
        assert code(rig.ask(rig.start("w", "other"))) == "ALREADY_EXISTS"
        rig.open()


def test_a_repeated_completion_is_recognised_wherever_it_comes(rig):
    rig.schedule()
    done = c.CompleteActivity(rig.token(rig.grant()), b"mr")
    assert rig.ask(done, done) == [c.Done(), c.Done()]
    assert rig.ask(done) == c.Done()
    rig.open()
    assert rig.ask(done) == c.Done()
    rig.ask(rig.step(c.CompleteWorkflow(None)))
    assert rig.ask(done) == c.Done()
    rig.open()
    assert rig.ask(done) == c.Done()
    assert rig.records() == []


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_repeated_failure_is_recognised_wherever_it_comes(rig, attempts):
    rig.schedule(retry=RetryPolicy(max_attempts=attempts))
    failed = c.FailActivity(rig.token(rig.grant()), Failure("Boom", details={"a": (1, 2)}))
    state = c.Done("DeadLettered" if attempts == 1 else "Retrying")
    assert rig.ask(failed, failed) == [state, state]
    rig.open()
    assert rig.ask(failed) == state
    assert rig.activity().failures_count == 1


def test_a_repeated_failure_that_closed_the_activity_is_recognised(rig):
    rig.schedule()
    failed = c.FailActivity(rig.token(rig.grant()), Failure("Bad", non_retryable=True))
    assert rig.ask(failed, failed) == [c.Done("Dropped"), c.Done("Dropped")]
    rig.open()
    assert rig.ask(failed) == c.Done("Dropped")


@pytest.mark.parametrize("kind", ["redrive", "fail", "complete"])
def test_a_repeated_decision_of_an_operator_is_recognised_wherever_it_comes(rig, kind):
    rig.schedule(retry=ONCE)
    rig.grant()
    rig.ask(c.FailActivity(rig.token(), BOOM))
    command: Any = {
        "redrive": c.RedriveDeadLetter("w", "a", "r1"),
        "fail": c.FailDeadLetter("w", "a", "r1"),
        "complete": c.CompleteDeadLetter("w", "a", b"mr", "r1"),
    }[kind]
    assert rig.ask(command, command) == [c.Done(), c.Done()]
    assert rig.ask(command) == c.Done()
    rig.open()
    assert rig.ask(command) == c.Done()
    assert rig.records() == []
    if kind != "redrive":
        rig.ask(rig.step(c.CompleteWorkflow(None)))
        rig.open()
        assert rig.ask(command) == c.Done()


# --- tokens ------------------------------------------------------------------
@pytest.mark.parametrize("token", ["", "nonsense", "é", "AAAA" * 20])
def test_a_forged_token_is_refused_and_changes_nothing(rig, token):
    rig.schedule()
    rig.grant()
    commands = (
        c.CompleteActivity(token, None),
        c.FailActivity(token, BOOM),
        c.RecordHeartbeat(token, 0, None, False),
        c.ReleaseActivity(token, "shutdown"),
    )
    assert {code(answer) for answer in rig.ask(*commands)} == {"FAILED_PRECONDITION"}
    assert rig.records() == []


def test_a_live_address_sealed_with_another_key_is_refused(rig):
    rig.schedule()
    forged = seal(rig.grant(), b"o" * 32)
    assert code(rig.ask(c.CompleteActivity(forged, None))) == "FAILED_PRECONDITION"
    assert rig.activity().lease is not None


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "a#2", "ü/日", "'; DROP TABLE x; --"])
def test_ids_of_any_text_are_told_apart(rig, name):
    rig.ask(rig.start(name), rig.start(name + "/"), rig.start("/" + name))
    step = c.ScheduleActivity(name, "t", None, ActivityOptions(RetryPolicy()))
    rig.ask(rig.step(step, workflow_id=name))
    rig.ask(c.GrantLease(name, name, 1, 1, 1, "w1", None))
    token = rig.token(Address(name, name, 1, 1))
    rig.open()
    assert rig.ask(c.CompleteActivity(token, b"mr")) == c.Done()
    assert code(rig.ask(c.CompleteActivity(rig.token(Address(name + "/", name, 1, 1)), b""))) != ""
    assert rig.writer.closing_event(name, name).result == b"mr"


# --- the bound on new work ---------------------------------------------------
def test_too_many_waiting_tasks_refuse_new_workflows_but_never_a_report():
    rig = Rig(ready_max=3)
    rig.schedule("a")
    for number in range(3):
        assert rig.ask(rig.start(f"w{number}", "r")) == c.Started()
    assert rig.ledger.ready == 4
    assert code(rig.ask(rig.start("one more"))) == "RESOURCE_EXHAUSTED"
    assert rig.ledger.execution("one more") is None
    # What was accepted before is answered as before.
    assert rig.ask(rig.start("w1", "r")) == c.Started()
    assert code(rig.ask(rig.start("w1", "q"))) == "ALREADY_EXISTS"
    token = rig.token(rig.grant())
    assert rig.ask(c.RecordHeartbeat(token, 0, None, False)) == c.Deadline(600_000)
    assert rig.ask(c.FailActivity(token, BOOM)) == c.Done("Retrying")
    rig.now_ms = 1_000
    assert rig.ask(c.CompleteActivity(rig.token(rig.grant()), b"mr")) == c.Done()
    assert rig.ask(rig.step(c.CompleteWorkflow(None))) == c.Done()
    assert rig.ledger.ready == 3
    assert rig.ask(rig.start("one more")) == c.Started()


def test_the_count_of_waiting_tasks_is_what_the_store_counts(rig):
    rig.schedule("a")
    seen = []
    for command in (
        lambda: rig.start("w2"),
        lambda: rig.grant_of("a"),
        lambda: c.FailActivity(rig.token(), BOOM),
        lambda: rig.start("w3"),
        lambda: rig.step(c.CompleteWorkflow(None), workflow_id="w3"),
    ):
        rig.ask(command())
        assert rig.ledger.ready == rig.writer.ready_count()
        seen.append(rig.ledger.ready)
    assert seen == [2, 1, 2, 3, 2]


# --- payloads ----------------------------------------------------------------
def test_a_large_payload_is_a_reference_in_the_log_and_whole_in_the_event(rig, store):
    rig.schedule(input=LARGE)
    (scheduled,) = [one for one in rig.records() if isinstance(one, r.ActivityTaskScheduled)]
    assert scheduled.input == refer(LARGE)
    assert is_reference(scheduled.input)
    address = rig.grant()
    rig.ask(c.RecordHeartbeat(rig.token(), 1, LARGE, True))
    (beat,) = rig.records()
    assert is_reference(beat.details)
    rig.ask(c.CompleteActivity(rig.token(address), LARGE))
    (done,) = rig.records()
    assert is_reference(done.result)
    reader = store.reader()
    assert decode_event(reader.event("w", 2)).input == LARGE
    assert decode_event(reader.event("w", 4)).result == LARGE
    assert all(len(row.body) < 1_000 for row in reader.commits(0, 100))


def test_a_payload_of_1_kib_stands_in_the_log(rig):
    payload = b"m" + b"x" * 1_023
    rig.schedule(input=payload)
    assert rig.records()[-1].input == payload
    rig.grant()
    rig.ask(c.CompleteActivity(rig.token(), payload + b"x"))
    assert is_reference(rig.records()[-1].result)


def test_large_details_are_whole_where_the_next_attempt_looks_for_them(rig, store):
    rig.schedule()
    rig.grant()
    rig.ask(c.FailActivity(rig.token(), BOOM, LARGE, 1))
    assert store.reader().details("w", "a") == LARGE
    rig.open()
    assert rig.activity().details == LARGE


# --- closing -----------------------------------------------------------------
@pytest.mark.parametrize("how", ["complete", "fail"])
def test_closing_a_workflow_leaves_none_of_its_rows_open(rig, store, how):
    options = ActivityOptions(ONCE)
    steps = [c.ScheduleActivity(name, "t", None, options) for name in ("s", "l", "d")]
    rig.ask(rig.start())
    rig.ask(rig.step(*steps, c.StartTimer(1, 5), c.StartTimer(2, 10**9)))
    dead = rig.token(rig.grant("d"))
    rig.ask(c.FailActivity(dead, BOOM))
    live = rig.token(rig.grant("l"))
    rig.now_ms = 5
    rig.ask(c.FireTimer("w", 1))
    last = c.CompleteWorkflow(b"mr") if how == "complete" else c.FailWorkflow(BOOM)
    late = c.ScheduleActivity("late", "t", None, options)
    batch = rig.judge(rig.step(late, c.StartTimer(3, 5), last))
    assert list(batch.closings) == ["w"]
    gone = {("w", name) for name in ("s", "l", "d", "late")}
    assert set(batch.change.activities_closed) == gone
    assert set(batch.change.timers_closed) == {("w", 2), ("w", 3)}
    rig.commit(batch)
    reader = store.reader()
    assert reader.open_state()[1] == []
    assert list(reader.dead_letters()) == []
    assert rig.writer.ready_count() == rig.ledger.ready == 0
    closed = reader.execution("w")
    assert (closed.activities, closed.timers, closed.closed_ms) == ({}, {}, 5)
    rig.open()
    assert code(rig.ask(c.CompleteActivity(live, b"mr"))) == "FAILED_PRECONDITION"
    assert code(rig.ask(c.RedriveDeadLetter("w", "d"))) == "NOT_FOUND"
    assert code(rig.ask(c.FireTimer("w", 2))) == "NOT_FOUND"
    assert rig.records() == []


def test_a_workflow_that_starts_and_ends_in_one_batch_is_stored_whole(rig, store):
    options = ActivityOptions(ONCE)
    steps = (
        c.ScheduleActivity("a", "t", None, options),
        c.StartTimer(1, 5),
        c.CompleteWorkflow(b"mr"),
    )
    rig.ask(rig.start(), c.CompleteWorkflowTask("w", 0, 0, 1, steps))
    assert store.reader().open_state()[1] == []
    assert store.reader().execution("w").last_event_id == 4


# --- memory ------------------------------------------------------------------
def test_executions_that_were_put_out_of_memory_come_back_from_the_store(rig, monkeypatch):
    monkeypatch.setattr(ledger_module, "EXECUTIONS_KEPT", 2)
    rig.schedule()
    token = rig.token(rig.grant())
    for number in range(5):
        rig.ask(rig.start(f"w{number}"))
    assert rig.ask(c.CompleteActivity(token, b"mr")) == c.Done()
