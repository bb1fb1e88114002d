"""What makes history fail is answered and kept, changes nothing, and hurts nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.core import commands as c
from perdure.core import ledger as ledger_module
from perdure.core import records as r
from perdure.core.batch import Unfit
from perdure.core.ids import Address
from perdure.core.records import decode_body
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Contradiction
from tests.contract.conftest import SqliteStore
from tests.core.ledger_rig import Rig


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


# --- a command that makes the core raise -------------------------------------
class Bug(Exception):
    pass


def break_decide(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[Any], bool]) -> None:
    real = ledger_module.decide

    def decide(execution: Any, command: Any, facts: Any) -> Any:
        if is_bad(command):
            raise Bug("in decide")
        return real(execution, command, facts)

    monkeypatch.setattr(ledger_module, "decide", decide)


def break_evolve(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[Any], bool]) -> None:
    """The fold raises behind each bad record, which by then has changed half of the state."""
    real = ledger_module.evolve

    def evolve(execution: Any, record: Any, n: int = 0) -> Any:
        real(execution, record, n)
        if is_bad(record):
            raise Bug("in evolve")
        return execution

    monkeypatch.setattr(ledger_module, "evolve", evolve)


def test_a_command_that_makes_decide_raise_is_internal_and_the_others_go_through(rig, monkeypatch):
    break_decide(monkeypatch, lambda command: getattr(command, "workflow_id", "") == "bad")
    batch = rig.judge(rig.start("w1"), rig.start("bad"), rig.start("w2"))
    assert [code(answer) for answer in batch.answers] == ["", "INTERNAL", ""]
    (aside,) = batch.aside
    assert aside.command.workflow_id == "bad"
    assert "in decide" in aside.error
    rig.commit(batch)
    rig.open()
    known = [rig.ledger.execution(one) is not None for one in ("w1", "bad", "w2")]
    assert known == [True, False, True]


def test_a_command_that_makes_the_fold_raise_changes_nothing(rig, monkeypatch):
    rig.schedule("a")
    before = rig.writer.load("w")
    with monkeypatch.context() as broken:
        break_evolve(broken, lambda record: isinstance(record, r.LeaseGranted))
        batch = rig.judge(rig.grant_of("a"), rig.start("w2"))
        assert [code(answer) for answer in batch.answers] == ["INTERNAL", ""]
        assert "in evolve" in batch.aside[0].error
        rig.commit(batch)
    assert rig.execution() == before
    assert rig.activity().lease is None
    assert rig.writer.load("w") == before
    assert [group.workflow_id for group in decode_body(batch.change.body).groups] == ["w2"]
    # And it is not poisoned: once the bug is gone the same command goes through.
    assert rig.ask(rig.grant_of("a")) == c.Done()


def test_a_fold_that_raises_leaves_what_the_batch_did_before_to_that_workflow(rig, monkeypatch):
    rig.schedule("a")
    with monkeypatch.context() as broken:
        break_evolve(broken, lambda record: isinstance(record, r.HeartbeatRecorded))
        grant = rig.grant_of("a")
        address = Address("w", "a", 1, 1)
        beat = c.RecordHeartbeat(rig.token(address), 1, b"mx", True)
        done = c.CompleteActivity(rig.token(address), b"mr")
        answers = rig.ask(grant, beat, done)
    assert [code(answer) for answer in answers] == ["", "INTERNAL", ""]
    assert rig.execution() == rig.writer.load("w")
    assert [type(record) for record in rig.records()] == [r.LeaseGranted, r.ActivityTaskCompleted]


def test_a_start_whose_fold_raises_leaves_no_workflow(rig, monkeypatch):
    def begin(workflow_id: str, started: Any) -> Any:
        raise Bug("in begin")

    with monkeypatch.context() as broken:
        broken.setattr(ledger_module, "begin", begin)
        batch = rig.judge(rig.start())
    assert code(batch.answers[0]) == "INTERNAL"
    assert batch.change is None
    rig.commit(batch)
    assert rig.ledger.execution("w") is None
    assert rig.ask(rig.start()) == c.Started()


def test_the_count_of_waiting_tasks_is_not_moved_by_what_raises(rig, monkeypatch):
    rig.schedule("a")
    before = rig.ledger.ready
    with monkeypatch.context() as broken:
        break_evolve(broken, lambda record: isinstance(record, r.LeaseGranted))
        rig.ask(rig.grant_of("a"))
    assert rig.ledger.ready == before


def test_what_is_set_aside_names_its_workflow_also_where_only_a_token_does(rig, monkeypatch):
    rig.schedule("a")
    rig.grant("a")
    break_decide(monkeypatch, lambda command: not isinstance(command, c.StartWorkflow))
    address = Address("w", "a", 1, 1)
    done, end = c.CompleteActivity(rig.token(address), None), c.EndLease(address, "worker_died")
    batch = rig.judge(done, end, c.FireTimer("w", 1))
    assert [aside.workflow_id for aside in batch.aside] == ["w", "w", "w"]


# --- a store that fails ---------------------------------------------------------
def test_a_store_that_can_not_be_read_is_no_fault_of_a_command(rig, monkeypatch):
    rig.schedule("a")
    rig.open()

    def load(workflow_id: str) -> Any:
        raise OSError("the disk")

    monkeypatch.setattr(rig.writer, "load", load)
    with pytest.raises(OSError, match="the disk"):
        rig.judge(rig.start("w"))


@pytest.mark.parametrize("problem", [msgspec.DecodeError("a row"), UnicodeError("an id")])
def test_a_row_that_makes_no_sense_costs_only_the_commands_about_it(rig, monkeypatch, problem):
    real = rig.writer.load

    def load(workflow_id: str) -> Any:
        if workflow_id == "damaged":
            raise problem
        return real(workflow_id)

    monkeypatch.setattr(rig.writer, "load", load)
    batch = rig.judge(rig.start("damaged"), rig.start("w"))
    assert [code(answer) for answer in batch.answers] == ["INTERNAL", ""]


def test_a_batch_that_can_not_be_encoded_is_unfit_and_can_be_forgotten(rig):
    rig.schedule("a")
    ready = rig.ledger.ready
    no_text = msgspec.structs.replace(rig.grant_of("a"), worker_id="\ud800")
    with pytest.raises(Unfit):
        rig.judge(rig.start("v"), no_text)
    rig.writer.abandon()
    rig.ledger.forget(rig.writer.ready_count())
    assert rig.ledger.ready == ready
    assert rig.ledger.execution("v") is None
    assert rig.ask(rig.start("v")) == c.Started()


def test_what_the_store_can_not_take_is_answered_like_what_raises(rig):
    def contradict() -> None:
        raise Contradiction("in a row")

    try:
        contradict()
    except Contradiction:
        batch = rig.ledger.set_aside(rig.start("w"))
    assert (code(batch.answers[0]), batch.change) == ("INTERNAL", None)
    assert "Contradiction: in a row" in batch.aside[0].error
