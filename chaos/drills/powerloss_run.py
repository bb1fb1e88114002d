"""The run whose disk the drill `powerloss` takes apart: the engine in one process, on the real
store, with a log so small that checkpoints and new beginnings of it happen all the time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import apsw
import msgspec

from chaos.faults.recording_vfs import WITNESS, Begun, Durable, Op, RecordingVFS, Witnessed
from perdure import activity, workflow
from perdure.core.change import Change
from perdure.local import Core
from perdure.local_client import LocalClient
from perdure.policy import RetryPolicy
from perdure.store.memory import MemoryStore
from perdure.store.retention import Retention
from perdure.store.sqlite import SqliteReader, SqliteWriter
from perdure.testing import ManualClock

VFS = "perdure-recording"
START_MS = 1_000_000
ROUNDS_MAX = 1_000
# From 1 KiB on the log refers to what stands in the events; the larger one takes several pages.
SMALL, LARGE = "x" * 1_500, "y" * 20_000
RETRY = RetryPolicy(initial_ms=10, backoff=1.0, max_interval_ms=10, max_attempts=2)
RETENTION = Retention(retention_ms=200, audit_ms=300)


class SmallWriter(SqliteWriter):
    """The store's writer, with sizes that are reached within a few commits."""

    checkpoint_idle_pages = 10
    checkpoint_pages = 24
    truncate_pages = 80
    log_bytes = 65_536


class Recorded(msgspec.Struct, frozen=True):
    """What was asked of the disk, and the hash of every commit that was ever begun, by number."""

    ops: tuple[Op, ...]
    hashes: dict[int, bytes]
    newest: int


class _Writer(SmallWriter):
    """Says what it is about to commit, and looks after the log as history does."""

    def __init__(self, data_dir: Path, ops: list[Op], dice: random.Random) -> None:
        self._ops = ops
        self._dice = dice
        self._dir = data_dir
        super().__init__(data_dir, self._durable, vfs=VFS)

    def commit(self, change: Change) -> None:
        """As SqliteWriter.commit."""
        self._ops.append(Begun(change.n, change.hash))
        super().commit(change)
        self.maybe_checkpoint(idle=self._dice.random() < 0.3)

    def leave_log(self) -> None:
        """Have `close` leave the log as a SIGKILL would."""
        if self._connection is not None:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def _durable(self, n: int, link: bytes) -> None:
        # The witness is no file of SQLite's: it is read after each write of it.
        self._ops.append(Witnessed((self._dir / WITNESS).read_bytes()))
        self._ops.append(Durable(n, link))


class _Store:
    """Gives the engine a writer and a reader of one directory, as MemoryStore does."""

    def __init__(self, data_dir: Path, ops: list[Op], dice: random.Random) -> None:
        self._data_dir = data_dir
        self._ops = ops
        self._dice = dice
        self._writer: _Writer | None = None
        self._reader: SqliteReader | None = None

    def writer(self) -> _Writer:
        """Another writer; the one before ends, in order or as if it were killed."""
        self.close(killed=self._dice.random() < 0.5)
        self._writer = _Writer(self._data_dir, self._ops, self._dice)
        return self._writer

    def reader(self) -> SqliteReader:
        """A reader of what the present writer has opened."""
        self._reader = SqliteReader(self._data_dir)
        return self._reader

    def close(self, *, killed: bool) -> None:
        """Lets go of the files. `killed`: without a last checkpoint."""
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None:
            if killed:
                self._writer.leave_log()
            self._writer.close()


@activity.define(retry=RETRY)
def work(filler: str) -> str:
    """Fails at its first attempt, and gives back what it was given."""
    if activity.attempt() == 1:
        raise activity.Error("Stumbled", "once")
    activity.record_heartbeat({"filler": filler})
    return filler


@activity.define(retry=RETRY)
def doomed() -> str:
    """Fails until it is redriven."""
    if activity.info().generation == 1:
        raise activity.Error("Doomed", "until somebody looks")
    return "late"


@workflow.define(name="Loss")
async def loss(filler: str) -> int:
    """Two pieces of work at once, a timer, a dead letter; the length of what came back."""
    first, second = await asyncio.gather(
        workflow.execute_activity(work, filler, activity_id="one"),
        workflow.execute_activity(work, "", activity_id="two"),
    )
    await workflow.sleep_ms(20)
    last = await workflow.execute_activity(doomed, activity_id="doomed")
    return len(first + second + last)


def record(data_dir: Path, seed: int, workflows: int) -> Recorded:
    """Runs `workflows` of them to their end in an empty directory, with a restart after each
    second one.
    """
    dice = random.Random(seed)
    ops: list[Op] = []
    clock = ManualClock(START_MS)
    with _recording(ops) as vfs:
        store = _Store(data_dir, ops, dice)
        core = Core(
            [loss],
            [work, doomed],
            now_ms=lambda: clock.now_ms,
            jitter=None,
            draw=dice.random,
            dlq_after_attempts=2,
            retention=RETENTION,
            store=cast(MemoryStore, store),
        )
        client = LocalClient(core)
        for number in range(workflows):
            workflow_id = f"loss-{number}"
            filler = dice.choice(["", SMALL, LARGE])
            client.start_workflow("Loss", filler, workflow_id=workflow_id, request_id="r")
            _until_idle(core, clock)
            client.redrive_dead_letter(workflow_id, "doomed", request_id="r")
            _until_idle(core, clock)
            client.result(workflow_id)
            if number % 2:
                core.restart()
        store.close(killed=False)
        found = vfs.ops
    hashes = {op.n: op.hash for op in found if isinstance(op, Begun | Durable)}
    return Recorded(tuple(found), hashes, max(hashes))


def _until_idle(core: Core, clock: ManualClock) -> None:
    for _ in range(ROUNDS_MAX):
        if core.run_workflow_tasks() or core.run_activities():
            continue
        due_ms = core.next_skip_ms()
        if due_ms is None:
            return
        clock.advance_ms(max(0, due_ms - clock.now_ms))
    raise RuntimeError(f"not idle after {ROUNDS_MAX} rounds")


@contextmanager
def _recording(ops: list[Op]) -> Iterator[RecordingVFS]:
    vfs = RecordingVFS(VFS, ops)
    try:
        yield vfs
    finally:
        vfs.unregister()
