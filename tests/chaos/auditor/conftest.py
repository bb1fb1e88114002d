"""Real stores for the auditor: runs of LocalEngine on the embedded store, by name."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec
import pytest

from chaos.auditor import AuditReport, History, audit_data_dir
from chaos.auditor.log import link
from chaos.auditor.names import KINDS, TAGS
from chaos.auditor.sqlite import DATABASE
from chaos.client_history import Recorder
from perdure import activity, local, workflow
from perdure.activity import Error
from perdure.core.commands import ReleaseActivity
from perdure.effects import SqliteEffects
from perdure.errors import PerdureError
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
async def _waits(queue: str, limit_ms: int, kind: str = "step") -> str:
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await workflow.execute_activity(
                kind,
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


class Patient(NamedTuple):
    """A store with everything in it, whole, and what was seen from outside."""

    data: Path
    ledger: Path
    history: History


@pytest.fixture(scope="session")
def patient(tmp_path_factory) -> Patient:
    directory = tmp_path_factory.mktemp("patient")
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = World(directory, monkeypatch)
    recorder = Recorder(all_clients=True)
    record(world, recorder)
    live(world)
    (directory / "whole").mkdir()
    with contextlib.closing(apsw.Connection(str(world.data / DATABASE))) as connection:
        connection.execute("VACUUM INTO ?", (str(directory / "whole" / DATABASE),))
    shutil.copy(world.data / "witness", directory / "whole")
    world.close()
    return Patient(directory / "whole", world.ledger, recorder.history())


def record(world: World, recorder: Recorder) -> None:
    """Have every call of the engine's client noted; the clock moves on with each."""
    client: Any = world.engine.client
    call, ticks = client._call, itertools.count(1)

    def noted(args: Any, wait_ms: int = 0) -> Any:
        number = recorder.begin("c1", args, next(ticks))
        try:
            outcome = call(args, wait_ms)
        except PerdureError as error:
            recorder.end(number, error, next(ticks))
            raise
        recorder.end(number, outcome, next(ticks))
        return outcome

    client._call = noted


def live(world: World) -> None:
    """A bit of everything: see the names of the workflows."""
    engine, client, moods = world.engine, world.engine.client, world.moods
    for name, mood in {
        "retried": ["before", "after"],
        "parked": ["before"] * 3,
        "redriven": ["before"] * 3,
        "by-hand": ["after"] * 3,
        "failed": ["before"] * 3,
        "final": ["never"],
    }.items():
        moods[name] = mood
        world.start(name, f"{name}-2", workflow_id=f"w-{name}")
    world.start("plain", "plain-2", workflow_id="w-plain", size=3_000)
    world.start("slow", "slow-2", workflow_id="w-timer", pause_ms=300)
    client.start_workflow(
        "waits", "nobody", 1_000, "absent", workflow_id="w-cancel", request_id="r-cancel"
    )
    engine.run_until_idle()
    with pytest.raises(PerdureError):
        client.start_workflow("waits", "other", 1, workflow_id="w-plain", request_id="r-late")
    client.redrive_dead_letter("w-redriven", "redriven", request_id="r-redrive")
    client.complete_dead_letter("w-by-hand", "by-hand", "done", request_id="r-complete")
    client.fail_dead_letter("w-failed", "failed", request_id="r-fail")
    engine.run_until_idle()
    for name in ("w-beat", "w-held"):
        client.start_workflow("waits", name, 90_000_000, workflow_id=name, request_id=f"r-{name}")
    engine.run_workflow_tasks()
    first = engine.poll_activity_task("w-beat", "hand-1")
    for number in range(2):
        engine.clock.advance_ms(2_000)
        engine.record_heartbeat(first.token, {"at": number})
    engine.restart()
    engine.clock.advance_ms(20_000)
    engine.run_workflow_tasks()
    engine.clock.advance_ms(1_000)
    second = engine.poll_activity_task("w-beat", "hand-2")
    engine._core.ask(ReleaseActivity(second.token, "handed_back"))
    third = engine.poll_activity_task("w-beat", "hand-3")
    engine.complete_activity_task(third.token, "x" * 2_000)
    engine.run_workflow_tasks()
    held = engine.poll_activity_task("w-held", "hand-4")
    engine.record_heartbeat(held.token, {"at": "x" * 2_000})
    client.result("w-plain")


class Damage:
    """A copy of a store, to be edited with plain SQL. The witness goes with its lost commits."""

    def __init__(self, patient: Patient, directory: Path) -> None:
        shutil.copytree(patient.data, directory)
        (directory / "witness").unlink()
        self.patient = patient
        self.data = directory
        self.ledger = directory / "effects.db"
        shutil.copy(patient.ledger, self.ledger)
        self.history = patient.history
        self.db = apsw.Connection(str(directory / DATABASE))
        # No power fails here: the files need no sync.
        self.db.execute("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF")
        self.book = apsw.Connection(str(self.ledger))
        self.book.execute("PRAGMA synchronous = OFF")

    def sql(self, statement: str, *values: Any) -> list[Any]:
        found: list[Any] = self.db.execute(statement, values).fetchall()
        return found

    def in_ledger(self, statement: str, *values: Any) -> list[Any]:
        found: list[Any] = self.book.execute(statement, values).fetchall()
        return found

    def edit_log(self, change: Callable[[list[Any]], list[Any] | None]) -> None:
        """Give every commit's body to `change` and write the log anew as an engine would have.

        What `change` returns None for is dropped. Numbers stay dense, and hashes right.
        """
        rows = self.sql("SELECT n, previous_hash, body FROM commits ORDER BY n")
        n, previous = rows[0][:2]
        self.sql("BEGIN")
        self.sql("DELETE FROM commits")
        for _, _, raw in rows:
            body = change(msgspec.msgpack.decode(raw))
            if body is None:
                continue
            body[0] = n
            encoded = msgspec.msgpack.encode(body)
            hashed = link(previous, encoded)
            self.sql(
                "INSERT INTO commits (n, epoch, at_ms, previous_hash, hash, body)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                *(n, body[1], body[2], previous, hashed, encoded),
            )
            previous, n = hashed, n + 1
        self.sql("COMMIT")

    def edit(
        self,
        workflow_id: str,
        kind: str,
        change: Callable[[list[Any]], list[list[Any]]],
        nth: int = 0,
    ) -> None:
        """Replace the nth record of this kind of the workflow by those that `change` gives.

        Where it gives more events than there were, the ids of all later ones grow.
        """
        tag, seen, shift = TAGS[kind], 0, 0

        def each(body: list[Any]) -> list[Any]:
            nonlocal seen, shift
            for group in body[3]:
                if group[0] != workflow_id:
                    continue
                records = []
                for one in group[1]:
                    moved = shifted(one, shift)
                    if one[0] != tag:
                        records.append(moved)
                        continue
                    seen += 1
                    if seen != nth + 1:
                        records.append(moved)
                        continue
                    instead = change(moved)
                    records += instead
                    if KINDS[tag].is_event:
                        last = [r[1] for r in instead if KINDS[r[0]].is_event][-1:]
                        shift += (last[0] if last else moved[1]) - moved[1]
                group[1] = records
            return body

        self.edit_log(each)
        assert seen > nth, f"there is no such {kind}"

    def audit(self, **options: Any) -> AuditReport:
        return audit_data_dir(self.data, [self.ledger], [self.history], **options)

    def breaks(self, *invariants: int) -> None:
        """Assert that exactly these are found."""
        report = self.audit()
        assert report.invariants == set(invariants), [str(one) for one in report.violations]

    def close(self) -> None:
        self.db.close()
        self.book.close()


def shifted(one: list[Any], by: int) -> list[Any]:
    if KINDS[one[0]].is_event or KINDS[one[0]].name == "WorkflowTaskCompleted":
        return [one[0], one[1] + by, *one[2:]]
    return one


@pytest.fixture
def damage(patient, tmp_path) -> Iterator[Damage]:
    """A copy of the patient, to be damaged."""
    made = Damage(patient, tmp_path / "copy")
    yield made
    made.close()
