"""A reset, as the ledger decides it and stores keep it; projections learn it from the record."""

from __future__ import annotations

import msgspec
import pytest

from chaos.auditor import Auditor
from chaos.auditor.memory import ReaderTables
from perdure.core import commands as c
from perdure.core import records as r
from perdure.core import resetting
from perdure.core.lease_table import LeaseTable
from perdure.core.records import decode_body
from perdure.core.state import Status
from perdure.core.task_queues import TaskQueues
from perdure.store.memory import MemoryStore
from tests.contract.conftest import SqliteStore
from tests.core.ledger_rig import BOOM, Rig


@pytest.fixture(params=["memory", "sqlite"])
def rig(request, tmp_path) -> Rig:
    rig = Rig(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "data"))
    yield rig
    assert violations(rig) == []
    rig.writer.close()


def violations(rig: Rig) -> list[tuple[int, str]]:
    reader, auditor = rig.store.reader(), Auditor()
    for row in reader.commits(0, 1_000):
        auditor.feed(row)
    found = auditor.finish(ReaderTables(reader)).violations
    return [(one.invariant, one.what) for one in found]


def done(rig: Rig, activity_id: str = "a", result: bytes = b"mr"):
    return rig.ask(c.CompleteActivity(rig.token(rig.grant(activity_id)), result))


def back(to_event: int, **fields) -> c.ResetWorkflow:
    return c.ResetWorkflow("w", to_event, "why", **fields)


def test_an_activity_that_was_closed_can_be_scheduled_and_closed_again(rig) -> None:
    rig.schedule("a")
    done(rig)
    answer = rig.ask(back(1))
    assert (answer.event_id, answer.effects_count) == (5, 1)
    rig.open()  # A history that knows nothing but what is stored.
    rig.schedule("a")
    assert (rig.activity().generation, rig.activity().grant) == (2, 1)
    done(rig, result=b"mr2")
    closing = rig.writer.closing_event("w", "a")
    assert (closing.result, closing.generation, closing.grant) == (b"mr2", 2, 2)


def test_what_is_open_is_closed_for_all_projections_and_what_was_open_is_new(rig) -> None:
    rig.schedule("a")
    rig.ask(c.SignalWorkflow("w", "s", None))
    rig.ask(rig.step(c.StartTimer(1, 1_000)))
    stale = rig.token(rig.grant("a"))
    queues, leases = TaskQueues(), LeaseTable(rig.key, lambda *_: None, lambda *_: None)
    for row in rig.store.reader().commits(0, 100):
        feed(row.body, queues, leases)
    assert len(leases) == 1
    rig.ask(back(2))
    feed(rig.batches[-1].change.body, queues, leases)
    assert len(leases) == 0
    assert [key for key in queues.activities] == [("default", "t")]
    assert list(queues.workflows) == [("default", "T")]
    assert not queues.works["w"].timers
    assert rig.store.reader().execution("w").timers == {}
    assert rig.ask(c.CompleteActivity(stale, b"mx")).code == "FAILED_PRECONDITION"
    done(rig)


def feed(body: bytes, queues: TaskQueues, leases: LeaseTable) -> None:
    commit = decode_body(body)
    for group in commit.groups:
        for record in group.records:
            leases.apply(group.workflow_id, commit.at_ms, record)
        queues.apply(group.workflow_id, commit.at_ms, group.records, commit.n)


@pytest.mark.parametrize("ended", [c.CompleteWorkflow(b"m1"), c.FailWorkflow(BOOM)])
@pytest.mark.parametrize("reopened", [False, True])
def test_one_that_has_ended_is_open_again_for_whoever_follows_the_log(rig, ended, reopened) -> None:
    rig.schedule("a")
    done(rig)
    rig.ask(rig.step(ended))
    queues, leases = TaskQueues(), LeaseTable(rig.key, lambda *_: None, lambda *_: None)
    for row in rig.store.reader().commits(0, 100):
        feed(row.body, queues, leases)
    assert not queues.works
    if reopened:
        rig.open()
    rig.ask(back(2))
    feed(rig.batches[-1].change.body, queues, leases)
    assert rig.execution().status is Status.RUNNING
    assert list(queues.activities) == [("default", "t")]
    loaded = rig.store.reader().execution("w")
    assert loaded == rig.execution() == queues.works["w"].execution
    assert [one.workflow_id for one in rig.store.reader().open_state()[1]] == ["w"]
    done(rig)
    rig.ask(rig.step(ended))
    assert rig.store.reader().execution("w").status is not Status.RUNNING


def test_a_reset_in_the_batch_of_what_it_takes_back(rig) -> None:
    rig.schedule("a")
    token = rig.token(rig.grant("a"))
    rig.ask(
        c.CompleteActivity(token, b"mr"),
        c.CompleteWorkflowTask("w", 1, 1, 4, (c.CompleteWorkflow(b"m1"),)),
        back(1),
    )
    assert rig.execution().status is Status.RUNNING
    rig.schedule("a")
    done(rig, result=b"mr2")
    assert rig.writer.closing_event("w", "a").result == b"mr2"


def test_updates_that_wait_and_came_later_are_told_that_they_are_lost(rig) -> None:
    rig.ask(rig.start())
    rig.ask(rig.step(c.StartTimer(1, 1)))
    rig.ask(c.UpdateWorkflow("w", "u", None, "u1"))
    rig.ask(back(1))
    ended = next(one for one in rig.records() if isinstance(one, r.UpdateEnded))
    assert (ended.request_id, ended.failure.type) == ("u1", resetting.RESET)
    assert not rig.execution().more.updates


def test_attributes_and_requests_to_cancel_are_as_they_were(rig) -> None:
    rig.ask(rig.start())
    rig.ask(rig.step(c.SetSearchAttributes((("a", 1), ("b", 2)))))
    rig.ask(c.CancelWorkflow("w", "no"))
    rig.ask(rig.step(c.SetSearchAttributes((("a", None), ("b", 3)))))
    rig.ask(back(2))
    more = rig.execution().more
    assert (more.attributes, more.cancel_requested) == ({"a": 1, "b": 2}, False)


def test_a_point_where_an_update_was_half_done_is_none(rig) -> None:
    rig.ask(rig.start())
    rig.ask(rig.step())
    rig.ask(c.UpdateWorkflow("w", "u", None, "u1"))
    rig.ask(rig.step(c.EndUpdate("u1", None, None)))
    answer = rig.ask(back(2))
    assert answer.message == (
        "to_event: event 2 is none to go back to: update 'u1' had come by then, and was answered"
        " later; the nearest it can go back to: 1 and 3"
    )


def test_a_point_in_the_midst_of_one_task_is_none(rig) -> None:
    rig.ask(rig.start())
    rig.ask(rig.step(c.StartTimer(1, 1), c.StartTimer(2, 1), c.StartTimer(3, 1)))
    answer = rig.ask(back(3))
    assert "in the midst of what one workflow task did" in answer.message
    assert answer.message.endswith("the nearest it can go back to: 1 and 4")


def test_one_that_continued_as_new_is_not_reset(rig) -> None:
    rig.ask(rig.start())
    rig.ask(rig.step(c.ContinueAsNew("T", "default", None)))
    assert rig.execution("w\x1f2").is_open
    # The newest run is meant: of that one there is nothing behind its first event yet.
    assert rig.ask(back(7)).code == "INVALID_ARGUMENT"


def test_the_fence_of_what_was_given_up_goes_far_on(rig) -> None:
    rig.schedule("a")
    rig.grant("a")
    rig.ask(c.SignalWorkflow("w", "s", None))
    rig.ask(rig.step(c.CancelActivity("a")))
    rig.ask(back(2))
    assert rig.activity().grant == resetting.GRANTS_SKIPPED
    done(rig)


def test_the_fence_of_what_was_granted_since_a_reset_and_given_up_goes_far_on_too(rig) -> None:
    rig.schedule("a")
    rig.grant("a")
    rig.ask(back(2))
    rig.grant("a")
    rig.ask(c.SignalWorkflow("w", "s", None))
    rig.ask(rig.step(c.CancelActivity("a")))
    rig.ask(back(2))
    assert rig.activity().grant > resetting.GRANTS_SKIPPED
    done(rig)


def test_the_auditor_sees_a_reset_that_would_grant_a_token_twice() -> None:
    rig = Rig()
    rig.schedule("a")
    rig.grant("a")
    wrong = resetting.fences
    try:
        resetting.fences = lambda execution, events: {"a": (1, 0)}
        rig.ask(back(2))
    finally:
        resetting.fences = wrong
    assert [number for number, _ in violations(rig)] == [16]


def test_the_state_in_the_record_is_what_the_fold_makes_of_it() -> None:
    rig = Rig()
    rig.schedule("a")
    rig.ask(back(1))
    record = rig.records()[-1]
    assert resetting.restored(record) == rig.execution()
    assert msgspec.msgpack.decode(record.state)["status"] == "Running"
