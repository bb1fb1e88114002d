"""Who waits for an update is told, once, whichever run it was for and however that ends."""

from __future__ import annotations

from actors.history_updates import UpdateWatches
from perdure.core.batch import Batch
from perdure.core.change import Change, StoredEvent
from perdure.core.commands import Refusal, Updated
from perdure.core.facts import scoped
from perdure.core.ids import execution_id
from perdure.core.links import Answer, Watch
from perdure.core.records import (
    UpdateEnded,
    UpdateReceived,
    WorkflowCompleted,
    encode_event,
)
from perdure.core.state import Execution, Status
from perdure.core.update_answers import Places

GATEWAY = "gateway.aa"
RECEIVED = UpdateReceived(2, 5, "pay", None, "u")
ENDED = UpdateEnded(3, 6, "u", b"m\x07", None, False)


class Rig:
    def __init__(self, run: int = 1) -> None:
        self.said: list[Answer] = []
        self.run = run
        self.records: dict[tuple[str, str], object] = {}
        self.status: dict[str, Status] = {}
        places = Places(
            lambda workflow_id: execution_id(workflow_id, self.run),
            self._execution,
            lambda execution, request: self.records.get((execution, request)),
        )
        self.watches = UpdateWatches(lambda sender, message: self.said.append(message), places)

    def _execution(self, workflow_id: str) -> Execution:
        status = self.status.get(workflow_id, Status.RUNNING)
        return Execution(workflow_id, "T", "default", 0, None, b"", status=status)

    def has(self, run: int, *records) -> None:
        for record in records:
            name = record.update_id if isinstance(record, UpdateReceived) else record.request_id
            self.records[execution_id("w", run), scoped(type(record), name)] = record

    def watch(self, n: int = 1) -> None:
        self.watches.put(GATEWAY, Watch(n, "w", "u"), 40)

    def commit(self, *events, closings=(), run=1) -> None:
        one = execution_id("w", run)
        stored = [
            StoredEvent(one, it.event_id, it.at_ms, type(it).__name__, encode_event(it))
            for it in events
        ]
        change = Change(41, 1, 6, b"", b"", b"", events=stored)
        done = {one: closings[-1]} if closings else {}
        self.watches.committed(Batch(41, change, [], done, []))

    @property
    def answers(self) -> list[tuple[int, object]]:
        return [(answer.n, answer.answer) for answer in self.said]


def test_an_update_that_is_done_is_answered_at_once():
    rig = Rig()
    rig.has(1, RECEIVED, ENDED)
    rig.watch()
    assert rig.answers == [(1, Updated(b"m\x07", None))]


def test_one_that_is_open_is_answered_by_the_commit_that_ends_it_and_only_once():
    rig = Rig()
    rig.has(1, RECEIVED)
    rig.watch(1)
    rig.watch(1)
    rig.watch(2)
    assert rig.answers == []
    rig.commit(ENDED)
    rig.commit(ENDED)
    assert rig.answers == [(1, Updated(b"m\x07", None)), (2, Updated(b"m\x07", None))]


def test_one_whose_run_ends_without_an_answer_has_failed():
    rig = Rig()
    rig.has(1, RECEIVED)
    rig.watch(1)
    rig.status["w"] = Status.COMPLETED
    rig.commit(closings=[WorkflowCompleted(4, 7, None)])
    rig.watch(2)
    assert [answer.failure.type for _, answer in rig.answers] == ["WorkflowEnded"] * 2


def test_the_answer_in_the_commit_that_ends_the_run_counts():
    rig = Rig()
    rig.has(1, RECEIVED)
    rig.watch()
    rig.commit(ENDED, closings=[WorkflowCompleted(4, 7, None)])
    assert rig.answers == [(1, Updated(b"m\x07", None))]


def test_an_update_of_an_earlier_run_is_found():
    rig = Rig(run=5)
    rig.has(2, RECEIVED, ENDED)
    rig.watch()
    assert rig.answers == [(1, Updated(b"m\x07", None))]


def test_one_that_nobody_asked_for_is_not_found():
    rig = Rig()
    rig.watch()
    [(_, refusal)] = rig.answers
    assert isinstance(refusal, Refusal)
    assert refusal.code == "NOT_FOUND"


def test_who_no_longer_waits_is_not_told():
    rig = Rig()
    rig.has(1, RECEIVED)
    rig.watch(1)
    assert rig.watches.unwatch(GATEWAY, 1)
    assert not rig.watches.unwatch(GATEWAY, 1)
    rig.commit(ENDED)
    assert rig.answers == []
    rig.watch(2)
    rig.watches.clear()
    rig.commit(ENDED)
    assert rig.answers == []
