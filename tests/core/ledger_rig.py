"""A ledger on a real store, judged and committed batch by batch, under a clock of the test's."""

from __future__ import annotations

import random
from typing import Any

from perdure.core import commands as c
from perdure.core.batch import Batch
from perdure.core.ids import Address, Session, seal
from perdure.core.ledger import Ledger
from perdure.core.records import ActivityOptions, Record, decode_body
from perdure.core.state import Activity, Execution
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.store.memory import MemoryStore

LOCAL = Session("node.1", 1)
BOOM = Failure("Boom", "it broke")


class Rig:
    """One store and the ledger that owns it now. No jitter unless a test asks for it."""

    def __init__(self, store: Any = None, **options: Any) -> None:
        self.store = MemoryStore() if store is None else store
        self.options = {"jitter": lambda delay_ms, u: delay_ms, **options}
        self.now_ms = 0
        self.starts = 0
        self.batches: list[Batch] = []
        self.open()

    def open(self) -> None:
        """A new ledger on the same store, which knows nothing but what is stored."""
        if self.starts:
            self.writer.close()
        self.starts += 1
        self.writer = self.store.writer()
        name = f"history.{self.starts}"
        opened = self.opened = self.writer.open_epoch(name, self.now_ms, "boot", self.now_ms)
        self.key = opened.key
        self.ledger = Ledger(
            self.writer,
            epoch=opened.epoch,
            n=opened.n,
            last_hash=opened.last_hash,
            key=opened.key,
            draw=random.Random(0).random,
            ready=self.writer.ready_count(),
            began_ms=self.now_ms,
            stall_ms=opened.stall_ms,
            **self.options,
        )

    # --- commands ---------------------------------------------------------------
    def judge(self, *commands: c.AnyCommand) -> Batch:
        batch = self.ledger.judge(commands, self.now_ms)
        self.batches.append(batch)
        return batch

    def commit(self, batch: Batch) -> list[c.AnyAnswer]:
        if batch.change is not None:
            self.writer.commit(batch.change)
        self.ledger.committed(batch)
        return batch.answers

    def ask(self, *commands: c.AnyCommand) -> Any:
        """The answers; of a single command its own."""
        answers = self.commit(self.judge(*commands))
        return answers[0] if len(answers) == 1 else answers

    def records(self) -> list[Record]:
        """Of the newest commit, as the log has them."""
        change = self.batches[-1].change
        if change is None:
            return []
        return [one for group in decode_body(change.body).groups for one in group.records]

    # --- what tests do often ----------------------------------------------------
    def start(self, workflow_id: str = "w", request_id: str | None = None) -> c.StartWorkflow:
        return c.StartWorkflow(workflow_id, "T", "default", b"mi", request_id, b"digest")

    def step(self, *steps: c.Step, workflow_id: str = "w") -> c.CompleteWorkflowTask:
        execution = self.execution(workflow_id)
        cursor = (execution.consumed, execution.commands, execution.last_event_id)
        return c.CompleteWorkflowTask(workflow_id, *cursor, steps)

    def schedule(self, activity_id: str = "a", input: bytes | None = None, **fields: Any) -> Any:
        """Have workflow "w", started if need be, schedule an activity."""
        if self.ledger.execution("w") is None:
            self.ask(self.start())
        retry = fields.pop("retry", RetryPolicy(max_attempts=4))
        options = ActivityOptions(retry, **fields)
        return self.ask(self.step(c.ScheduleActivity(activity_id, "t", input, options)))

    def grant_of(self, activity_id: str = "a", session: Session | None = LOCAL) -> c.GrantLease:
        held = self.activity(activity_id)
        name = ("w", activity_id, held.generation, held.grant + 1, held.attempt)
        return c.GrantLease(*name, "w1", session)

    def grant(self, activity_id: str = "a", session: Session | None = LOCAL) -> Address:
        answer = self.ask(self.grant_of(activity_id, session))
        assert answer == c.Done(), answer
        return self.address(activity_id)

    def address(self, activity_id: str = "a") -> Address:
        held = self.activity(activity_id)
        return Address("w", activity_id, held.generation, held.grant)

    def token(self, address: Address | None = None) -> str:
        return seal(address or self.address(), self.key)

    def end(self, reason: str, **news: Any) -> Any:
        return self.ask(c.EndLease(self.address(), reason, **news))

    def execution(self, workflow_id: str = "w") -> Execution:
        found = self.ledger.execution(workflow_id)
        assert found is not None
        return found

    def activity(self, activity_id: str = "a") -> Activity:
        return self.execution().activities[activity_id]
