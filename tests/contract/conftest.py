"""What the exam of stores is written with: stores, the changes of one epoch, things to store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from perdure.core.chain import next_hash
from perdure.core.change import Change, StoredEvent
from perdure.core.ids import Session
from perdure.core.records import (
    ActivityOptions,
    ActivityTaskCompleted,
    CommitBody,
    Event,
    WorkflowStarted,
    encode_body,
    encode_event,
)
from perdure.core.state import (
    Activity,
    ActivityState,
    AttemptFailure,
    Execution,
    LastEnd,
    Lease,
    Status,
)
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Reader, Writer
from perdure.store.sqlite import SqliteReader, SqliteWriter

WALL_MS = 1_700_000_000_000
BOOT_MS = 5_000
OPTIONS = ActivityOptions(RetryPolicy(max_attempts=3, non_retryable=("Bad",)))
FAILURE = Failure("Boom", "it broke", details={"code": 7}, cause=Failure("Inner"))


class Store(Protocol):
    """Anything that makes writers and readers of one store."""

    def writer(self, tell: Callable[[int, bytes], None] = ...) -> Writer: ...
    def reader(self) -> Reader: ...


class SqliteStore:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def writer(self, tell: Callable[[int, bytes], None] = lambda n, link: None) -> Writer:
        return SqliteWriter(self._data_dir, tell)

    def reader(self) -> Reader:
        return SqliteReader(self._data_dir)


class Line:
    """One epoch of a writer, and the changes that follow each other in it."""

    def __init__(
        self, store: Store, name: str = "history.1", wall_ms: int = WALL_MS, **opening: Any
    ) -> None:
        self.writer = store.writer(**{k: opening.pop(k) for k in ("tell",) if k in opening})
        at: dict[str, Any] = {"boot_id": "boot-1", "boot_ms": BOOT_MS, **opening}
        self.opened = self.writer.open_epoch(name, wall_ms, **at)
        self.now_ms = self.opened.base_ms + at["boot_ms"]
        self.n, self.hash = self.opened.n, self.opened.last_hash

    def change(self, **parts: Any) -> Change:
        n, epoch = self.n + 1, self.opened.epoch
        body = encode_body(CommitBody(n, epoch, self.now_ms, ()))
        fields: dict[str, Any] = {
            "n": n,
            "epoch": epoch,
            "at_ms": self.now_ms,
            "previous_hash": self.hash,
            "hash": next_hash(parts.get("previous_hash", self.hash), parts.get("body", body)),
            "body": body,
        }
        return Change(**fields | parts)

    def commit(self, **parts: Any) -> Change:
        change = self.change(**parts)
        self.writer.commit(change)
        self.n, self.hash = change.n, change.hash
        return change


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return SqliteStore(tmp_path / "data") if request.param == "sqlite" else MemoryStore()


def execution(workflow_id: str = "w", **fields: Any) -> Execution:
    given: dict[str, Any] = {"started_ms": WALL_MS, "request_id": None, "digest": b"d" * 16}
    return Execution(workflow_id=workflow_id, workflow_type="T", task_queue="q", **given | fields)


def activity(activity_id: str = "a", **fields: Any) -> Activity:
    given: dict[str, Any] = {"input": b"\x01in", "options": OPTIONS}
    return Activity(
        activity_id, "charge", scheduled_event_id=2, scheduled_ms=WALL_MS, **given | fields
    )


def full_activity() -> Activity:
    """An activity with something in every field."""
    failure = AttemptFailure(1, 1, WALL_MS, "worker-1", FAILURE)
    return activity(
        "full",
        state=ActivityState.LEASED,
        attempt=2,
        grant=2,
        lease=Lease("worker-1", Session("node.1", 3), WALL_MS, WALL_MS + 9, WALL_MS + 10, "p", 4),
        details=b"\x01details",
        beat=4,
        last_heartbeat_ms=WALL_MS + 1,
        failures_first=failure,
        failures_newest=[failure],
        failures_count=1,
        last_end=LastEnd(1, 1, "failed", "Retrying"),
    )


def dead(activity_id: str = "dead", failure: str = "Boom") -> Activity:
    kept = AttemptFailure(1, 3, WALL_MS, "worker-1", Failure(failure))
    return activity(
        activity_id, state=ActivityState.DEAD_LETTERED, failures_newest=[kept], dead_ms=WALL_MS
    )


def stored(event: Event, workflow_id: str = "w", **fields: Any) -> StoredEvent:
    kind = type(event).__name__
    return StoredEvent(
        workflow_id, event.event_id, event.at_ms, kind, encode_event(event), **fields
    )


def started_event(event_id: int = 1, text: bytes = b"") -> WorkflowStarted:
    return WorkflowStarted(event_id, WALL_MS, "T", "q", text, None, b"")


def completed_event(event_id: int = 4) -> ActivityTaskCompleted:
    return ActivityTaskCompleted(event_id, WALL_MS, "a", 1, 1, 1, b"\x01r", WALL_MS, "worker-1")


def closed(one: Execution, status: Status = Status.COMPLETED) -> Execution:
    return msgspec.structs.replace(one, status=status, closed_ms=WALL_MS + 50)
