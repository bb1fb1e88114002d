"""First tasks that history sends of what the scheduler has lent it, and what the scheduler then
need not hear at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.lending import Loans, may_wait
from perdure.core import commands as c
from perdure.core.batch import Batch
from perdure.core.ids import Address, Session, seal
from perdure.core.ledger import Ledger
from perdure.core.limits import INLINE_BYTES
from perdure.core.links import Lend, Lent, WorkflowTask, pack_session
from perdure.core.records import ActivityOptions
from perdure.core.start import StartTerms
from perdure.policy import RetryPolicy
from perdure.store.memory import MemoryStore

ONE = Session("node.1", 1)
LENT = Lend(ONE, "worker-1.a", ("default",), ("T",), 2)
STEP = c.ScheduleActivity("a", "t", None, ActivityOptions(RetryPolicy()))
_decode = msgspec.msgpack.Decoder(list[WorkflowTask]).decode


class Around:
    """Loans of a history that judges and commits what a test asks."""

    def __init__(self) -> None:
        self.frames: list[tuple[bytes, bytes, bytes]] = []
        self.is_reachable = True
        self.loans = Loans(self.transmit)
        self.writer = MemoryStore().writer()
        opened = self.writer.open_epoch("history.1", 0, "boot", 0)
        self.key = opened.key
        self.ledger = Ledger(
            self.writer,
            epoch=opened.epoch,
            n=opened.n,
            last_hash=opened.last_hash,
            key=opened.key,
            draw=lambda: 0.5,
        )

    def transmit(self, address: bytes, head: bytes, body: bytes) -> bool:
        self.frames.append((address, head, body))
        return self.is_reachable

    def commit(self, *commands: Any) -> Batch:
        batch = self.ledger.judge(commands, 5)
        assert not any(isinstance(answer, c.Refusal) for answer in batch.answers)
        assert batch.change is not None
        self.writer.commit(batch.change)
        self.ledger.committed(batch)
        return batch

    def start(self, *ids: str, queue: str = "default", size: int = 1) -> Batch:
        payload = b"[" + b"1" * size + b"]"
        return self.commit(*[c.StartWorkflow(id_, "T", queue, payload, None, b"") for id_ in ids])

    def waits(self, batch: Batch, lent: list[Lent] | None = None) -> bool:
        return may_wait(batch, self.ledger, lent or [])


@pytest.fixture
def around() -> Around:
    return Around()


def test_a_first_task_is_sent_whole_with_a_permit(around):
    around.loans.hear(LENT)
    batch = around.start("w")
    assert around.loans.send_first_tasks(batch) == [Lent(ONE, 1, 2, ("w",))]
    [(address, head, body)] = around.frames
    [task] = _decode(body)
    assert (address, head) == (b"worker-1.a", pack_session(ONE))
    assert (task.workflow_id, task.consumed, task.last_event_id, task.n) == ("w", 0, 1, batch.n)
    assert task.permits == 1
    assert len(task.events) == 1


def test_no_more_is_sent_than_was_lent(around):
    around.loans.hear(LENT)
    [told] = around.loans.send_first_tasks(around.start("a", "b", "c"))
    assert told.workflow_ids == ("a", "b")
    assert around.loans.send_first_tasks(around.start("d")) == []
    assert not around.loans.is_some_left


@pytest.mark.parametrize("odd", [{"queue": "other"}, {"size": INLINE_BYTES}])
def test_what_was_not_lent_for_or_is_large_is_left_to_the_scheduler(around, odd):
    around.loans.hear(LENT)
    assert around.loans.send_first_tasks(around.start("w", **odd)) == []
    assert around.frames == []


def test_what_can_not_be_reached_is_given_back(around):
    around.loans.hear(LENT)
    around.is_reachable = False
    assert around.loans.send_first_tasks(around.start("w")) == [Lent(ONE, 0, -1)]
    assert around.loans.send_first_tasks(around.start("v")) == []


def test_what_is_taken_back_is_answered_behind_what_was_used(around):
    assert around.loans.hear(LENT) is None
    around.loans.send_first_tasks(around.start("w"))
    assert around.loans.hear(msgspec.structs.replace(LENT, up_to=1, used=1)) == Lent(ONE, 1, 1)
    assert around.loans.send_first_tasks(around.start("v")) == []


def test_who_has_forgotten_how_many_were_used_is_reminded(around):
    around.loans.hear(msgspec.structs.replace(LENT, up_to=9, used=8))
    [told] = around.loans.send_first_tasks(around.start("a", "b"))
    assert told == Lent(ONE, 9, 9, ("a",))


# --- what may wait ----------------------------------------------------------------
def report(hire: bool) -> c.CompleteWorkflowTask:
    wish = c.Hire("w1", ONE, ("a",)) if hire else None
    return c.CompleteWorkflowTask("w", 0, 0, 1, (STEP,), wish)


def test_the_news_of_a_workflow_that_its_worker_does_alone_may_wait(around):
    around.loans.hear(LENT)
    started = around.start("w")
    assert around.waits(started, around.loans.send_first_tasks(started))
    assert around.waits(around.commit(report(hire=True)))
    ends = c.CompleteWorkflowTask("w", 1, 1, 4, (c.CompleteWorkflow(None),))
    token = seal(Address("w", "a", 1, 1), around.key)
    assert around.waits(around.commit(c.CompleteActivity(token, None, 5, ends)))


def test_what_waits_for_a_worker_can_not(around):
    assert not around.waits(around.start("w"))
    assert not around.waits(around.commit(report(hire=False)))
    lease = c.GrantLease("w", "a", 1, 1, 1, "w1", ONE)
    assert not around.waits(around.commit(lease))
    token = seal(Address("w", "a", 1, 1), around.key)
    assert not around.waits(around.commit(c.CompleteActivity(token, None)))


def test_a_timer_can_not_wait(around):
    around.start("w")
    assert not around.waits(
        around.commit(c.CompleteWorkflowTask("w", 0, 0, 1, (c.StartTimer(1, 10),)))
    )


def test_a_workflow_that_starts_later_is_left_to_the_scheduler(around):
    around.loans.hear(LENT)
    terms = StartTerms(delay_ms=1_000)
    batch = around.commit(c.StartWorkflow("w", "T", "default", None, None, b"", terms))
    assert around.loans.send_first_tasks(batch) == []
    assert not around.waits(batch)
