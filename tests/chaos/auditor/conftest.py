"""Real stores for the auditor: runs of LocalEngine on the embedded store, by name."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from chaos.auditor.log import link
from perdure import activity, local, workflow
from perdure.activity import Error
from perdure.effects import SqliteEffects
from perdure.policy import RetryPolicy
from perdure.store.sqlite import SqliteReader, SqliteWriter
from perdure.testing import LocalEngine

POLICY = RetryPolicy(initial_ms=100, backoff=2.0, max_interval_ms=1_000, max_attempts=3)
BIG = "x" * 3_000


class StoreOnDisk:
    """Stands where LocalEngine makes its store in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.current: SqliteWriter | None = None

    def writer(self) -> SqliteWriter:
        if self.current is not None:
            self.current.close()
        self.current = SqliteWriter(self.directory)
        return self.current

    def reader(self) -> SqliteReader:
        return SqliteReader(self.directory)


class World:
    """An engine on a disk, with a receiver of effects."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.ledger = directory / "effects.db"
        self.sink = SqliteEffects(self.ledger)
        self.sink.applied()  # Makes the file.
        self.moods: dict[str, list[str]] = {}
        self.store = StoreOnDisk(self.data)
        monkeypatch.setattr(local, "MemoryStore", lambda: self.store)
        self.engine = LocalEngine(
            [_steps, _waits],
            [self._step(), self._bare()],
            jitter=lambda bound, u: bound * u,
            seed=1,
        )

    def _step(self) -> Callable[..., Any]:
        @activity.define(name="step", retry=POLICY, heartbeat_ms=5_000)
        def step(name: str, size: int) -> str:
            key, attempt = activity.idempotency_key(), activity.attempt()
            activity.record_heartbeat({"at": attempt})
            moods = self.moods.get(name, [])
            mood = moods.pop(0) if moods else "ok"
            if mood == "before":
                raise Error("Flaky", "before its effect", retry_after_ms=attempt * 10)
            result = self.sink.apply_once(
                key,
                lambda: f"{name} by {attempt}",
                attempt=attempt,
                token=activity.task_token(),
                fence=activity.fence(),
                payload=name,
            )
            if mood == "after":
                raise ValueError("after its effect")
            if mood == "never":
                raise activity.NonRetryable("Never", "no use")
            return str(result) + "." * size

        return step

    def _bare(self) -> Callable[..., Any]:
        @activity.define(name="bare")
        def bare() -> None:
            return None

        return bare

    def start(self, *names: str, workflow_id: str, size: int = 0, pause_ms: int = 0) -> None:
        self.engine.client.start_workflow(
            "steps",
            list(names),
            size,
            pause_ms,
            workflow_id=workflow_id,
            request_id=f"request-{workflow_id}",
        )

    def close(self) -> None:
        self.sink.close()
        if self.store.current is not None:
            self.store.current.close()


@workflow.define(name="steps")
async def _steps(names: list[str], size: int, pause_ms: int) -> list[str]:
    results = []
    for name in names:
        try:
            results.append(
                await workflow.execute_activity("step", name, size, activity_id=name, retry=POLICY)
            )
        except Error as problem:
            results.append(problem.type)
        if pause_ms:
            await asyncio.sleep(pause_ms / 1000)
    return results


@workflow.define(name="waits")
async def _waits(queue: str, limit_ms: int) -> str:
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await workflow.execute_activity(
                "step",
                "polled",
                0,
                activity_id="polled",
                task_queue=queue,
                retry=POLICY,
                heartbeat_ms=5_000,
            )
    except TimeoutError:
        return "gave up"


@pytest.fixture
def world(tmp_path, monkeypatch) -> Iterator[World]:
    made = World(tmp_path, monkeypatch)
    yield made
    made.close()


class Damage:
    """A copy of a store, to be edited with plain SQL."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.db = apsw.Connection(str(data / "perdure.db"))
        self.db.execute("PRAGMA foreign_keys = OFF")

    def sql(self, statement: str, *values: Any) -> list[Any]:
        found: list[Any] = self.db.execute(statement, values).fetchall()
        return found

    def edit_log(self, change: Callable[[list[Any]], list[Any] | None]) -> None:
        """Give every commit's body to `change` and write the log anew as an engine would have.

        What `change` returns None for is dropped. The numbers stay dense, and the hashes right.
        """
        rows = self.sql("SELECT n, previous_hash, body FROM commits ORDER BY n")
        previous = rows[0][1]
        self.sql("DELETE FROM commits")
        n = rows[0][0]
        for _, _, raw in rows:
            body = change(msgspec.msgpack.decode(raw))
            if body is None:
                continue
            body[0] = n
            raw = msgspec.msgpack.encode(body)
            hashed = link(previous, raw)
            self.sql(
                "INSERT INTO commits (n, epoch, at_ms, previous_hash, hash, body)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                n,
                body[1],
                body[2],
                previous,
                hashed,
                raw,
            )
            previous, n = hashed, n + 1

    def close(self) -> None:
        self.db.close()


@pytest.fixture
def damaged(tmp_path) -> Iterator[Callable[[Path], Damage]]:
    """Makes a copy of a store to be damaged."""
    copies: list[Damage] = []

    def copy(data: Path) -> Damage:
        to = tmp_path / f"copy-{len(copies)}"
        shutil.copytree(data, to)
        copies.append(Damage(to))
        return copies[-1]

    yield copy
    for one in copies:
        one.close()
