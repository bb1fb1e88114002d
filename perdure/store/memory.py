"""The store of tests and of LocalEngine: the embedded one's promises while the process lives.

What goes in and comes out is encoded in between, so that nobody can change a stored object, or
see one change.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from perdure.core.chain import GENESIS
from perdure.core.change import Change
from perdure.core.gates import Gate
from perdure.core.limits import ASIDES_MAX, GRACE_MS
from perdure.core.records import Record, decode_event
from perdure.core.schedule_state import Schedule
from perdure.core.state import ActivityState, Execution
from perdure.store import leaps, rules
from perdure.store.memory_changes import Stored, apply, check
from perdure.store.memory_reader import MemoryReader
from perdure.store.protocol import (
    AsideRow,
    CommitRow,
    Contradiction,
    Opened,
    StoreError,
)
from perdure.store.retention import TIDY_COMMITS, TIDY_WORKFLOWS, TIMES_ADDED, Retention

Tell = Callable[[int, bytes], None]


class MemoryStore:
    """What outlives the writers and readers made from it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.asides: dict[bytes, AsideRow] = {}
        self.gates: dict[tuple[str, str], Gate] = {}
        self.key = os.urandom(rules.KEY_BYTES)
        self.epoch = 0
        self.began_ms = 0
        self.boot: rules.Boot | None = None
        self.leaps: leaps.Leaps = ()
        self.base: tuple[int, bytes] = (0, GENESIS)  # The log begins after this commit.
        self.log: list[CommitRow] = []  # Commit n stands at n - 1 - base.
        self.executions: dict[str, Stored] = {}  # In the order of their starts.
        self.kept_schedules: dict[str, bytes] = {}
        # In the order of their ends, which is that of time. One that a reset has opened again is
        # left where it stands, and passed over.
        self.closed: deque[tuple[int, Stored]] = deque()

    def repeat(self, entry: CommitRow | Change, boot: rules.Boot | None) -> None:
        """Keep what another store has kept: the row of an epoch with its boot, or a change.

        Repeated in their order they make a store as it was at any of its commits.
        """
        with self.lock:
            if isinstance(entry, CommitRow):
                self.log.append(entry)
                self.epoch, self.began_ms, self.boot = entry.epoch, entry.at_ms, boot
            else:
                self.keep(entry)

    def keep(self, change: Change) -> int:
        """Take a change over that fits; how many workflows end with it."""
        self.log.append(apply(self.executions, change))
        self.gates |= {(gate.kind, gate.name): gate for gate in change.gates}
        for one in change.schedules:
            self.kept_schedules[one.schedule_id] = msgspec.msgpack.encode(one)
        both = (*change.started, *change.touched)
        ended = [it for it in both if it.closed_ms is not None]
        self.closed += [(it.closed_ms or 0, self.executions[it.workflow_id]) for it in ended]
        return len(ended)

    def writer(self, tell: Tell = lambda n, link: None) -> MemoryWriter:
        """A writer; it owns the store from its epoch on. `tell` is as for SqliteWriter."""
        return MemoryWriter(self, tell)

    def reader(self) -> MemoryReader:
        """A reader. Raises StoreError before the first epoch."""
        with self.lock:
            if not self.log:
                raise StoreError("there is no store yet; open an epoch first")
        return MemoryReader(self)

    def newest(self) -> rules.Newest:
        """The end of the log."""
        if not self.log:
            return rules.Newest(self.epoch, self.base[0], 0, self.base[1])
        last = self.log[-1]
        return rules.Newest(self.epoch, last.n, last.at_ms, last.hash, last.stall_ms)

    def event(self, workflow_id: str, event_id: int | None) -> bytes | None:
        """The encoded event record at this id."""
        stored = self.executions.get(workflow_id)
        event = None if stored is None or event_id is None else stored.events.get(event_id)
        return None if event is None else event.body

    def remove(self, keep_ms: int, now_ms: int, limit: int) -> int:
        """Leave tombstones of what closed `keep_ms` ago, the oldest first; how many."""
        count = 0
        while count < limit and self.closed and self._is_over(self.closed[0][0], keep_ms, now_ms):
            closed_ms, stored = self.closed.popleft()
            if not stored.is_open and stored.closed_ms == closed_ms:
                stored.bury()
                count += 1
        return count

    def prune(self, keep_ms: int, now_ms: int, limit: int) -> int:
        """Take commits of `keep_ms` ago from the front, but for the newest; how many."""
        count, most = 0, min(limit, len(self.log) - 1)
        while count < most and self._is_over(self.log[count].at_ms, keep_ms, now_ms):
            count += 1
        if count:
            self.base = (self.log[count - 1].n, self.log[count - 1].hash)
            del self.log[:count]
        return count

    def _is_over(self, from_ms: int, keep_ms: int, now_ms: int) -> bool:
        return leaps.due_ms(self.leaps, from_ms, keep_ms) <= now_ms

    def load(self, workflow_id: str) -> Execution | None:
        """The execution with what is open in it; None: never started."""
        stored = self.executions.get(workflow_id)
        return None if stored is None else stored.whole()

    def schedule(self, schedule_id: str) -> Schedule | None:
        """The schedule, deleted or not; None where there never was one."""
        raw = self.kept_schedules.get(schedule_id)
        return None if raw is None else msgspec.msgpack.decode(raw, type=Schedule)


class MemoryWriter:
    """See perdure.store.protocol.Writer."""

    def __init__(self, store: MemoryStore, tell: Tell) -> None:
        self._store = store
        self._tell = tell
        self._epoch = 0
        self._is_over = False
        self._retention = Retention()

    def open_epoch(
        self,
        incarnation: str,
        wall_ms: int,
        boot_id: str,
        boot_ms: int,
        grace_ms: int = GRACE_MS,
    ) -> Opened:
        """Take the store over: commit the next epoch."""
        if self._epoch or self._is_over:
            raise StoreError("this writer has had its epoch; make another writer")
        store = self._store
        with store.lock:
            newest = store.newest()
            base_ms = rules.base_ms(newest, store.boot, wall_ms, boot_id, boot_ms)
            now_ms, same = base_ms + boot_ms, rules.is_same_boot(store.boot, boot_id)
            store.leaps = leaps.grown(store.leaps, newest.at_ms, now_ms, is_same_boot=same)
            row = rules.epoch_commit(newest, now_ms, incarnation, grace_ms)
            store.log.append(row)
            store.epoch = self._epoch = row.epoch
            store.boot, store.began_ms = rules.Boot(boot_id, base_ms), row.at_ms
        self._tell(row.n, row.hash)
        return Opened(row.epoch, row.n, row.hash, base_ms, store.key, row.stall_ms)

    def reserve(self, reserve_bytes: int) -> None:
        """Nothing: there is room."""

    def is_short(self) -> bool:
        """Never."""
        return False

    def make_durable(self, wall_ms: int, boot_id: str, boot_ms: int) -> Opened:
        """What is there, with the epoch that is over."""
        store = self._store
        with store.lock:
            newest = store.newest()
            base_ms = rules.base_ms(newest, store.boot, wall_ms, boot_id, boot_ms)
        return Opened(newest.epoch, newest.n, newest.hash, base_ms, store.key, newest.stall_ms)

    def begin(self) -> None:
        """There is nothing to open."""

    def abandon(self) -> None:
        """There is nothing to close."""

    def commit(self, change: Change) -> None:
        """Keep `change`. Raises EpochLost or StoreError: then nothing of it, nor anything later."""
        store = self._owned()
        try:
            with store.lock:
                rules.check_link(change, self._epoch, store.newest())
                ended = self._put(change)
                self._tidy(change.at_ms, TIMES_ADDED * ended, TIMES_ADDED)
        except Contradiction:
            raise
        except BaseException:
            self._is_over = True
            raise
        self._tell(change.n, change.hash)

    def _put(self, change: Change) -> int:
        try:
            check(self._store.executions, change)
            return self._store.keep(change)
        except Exception as cause:
            text = f"commit {change.n} contradicts the store: {cause}"
            raise Contradiction(text) from cause

    def set_aside(self, rows: Sequence[AsideRow]) -> None:
        """Keep these, at most ASIDES_MAX in all: what is kept already counts once more."""
        store = self._owned()
        with store.lock:
            rules.check_owner(self._epoch, store.newest())
            for row in rows:
                known = store.asides.pop(row.digest, row)
                times = row.times if known is row else known.times + 1
                if len(store.asides) < ASIDES_MAX:
                    kept = msgspec.structs.replace(row, times=times, first_ms=known.first_ms)
                    store.asides[row.digest] = kept

    def retain(self, retention: Retention) -> None:
        """Keep closed workflows and old commits so long; without it, for ever."""
        self._owned()
        self._retention = retention

    def tidy(self, now_ms: int) -> bool:
        """Take away a part of what is over its time; whether there was any."""
        store = self._owned()
        with store.lock:
            rules.check_owner(self._epoch, store.newest())
            return self._tidy(now_ms, TIDY_WORKFLOWS, TIDY_COMMITS) > 0

    def _tidy(self, now_ms: int, workflows: int, commits: int) -> int:
        count, keeps = 0, self._retention
        if keeps.retention_ms is not None and workflows:
            count += self._store.remove(keeps.retention_ms, now_ms, workflows)
        if keeps.audit_ms is not None:
            count += self._store.prune(keeps.audit_ms, now_ms, commits)
        return count

    def maybe_checkpoint(self, *, idle: bool = False) -> None:
        """Nothing: there is no log to copy back."""

    def load(self, workflow_id: str) -> Execution | None:
        """The execution with all its open activities and timers; None: never started."""
        store = self._owned()
        with store.lock:
            return store.load(workflow_id)

    def schedule(self, schedule_id: str) -> Schedule | None:
        """The schedule, deleted or not; None where there never was one."""
        store = self._owned()
        with store.lock:
            return store.schedule(schedule_id)

    def closing_event(self, workflow_id: str, activity_id: str) -> Record | None:
        """The event that closed this activity, decoded, or None."""
        store = self._owned()
        with store.lock:
            stored = store.executions.get(workflow_id)
            event_id = None if stored is None else stored.closing.get(activity_id)
            raw = store.event(workflow_id, event_id)
        return None if raw is None else decode_event(raw)

    def requested_event(self, workflow_id: str, request_id: str) -> Record | None:
        """The event that an operator's command with this request id made, decoded, or None."""
        store = self._owned()
        with store.lock:
            stored = store.executions.get(workflow_id)
            event_id = None if stored is None else stored.requested.get(request_id)
            raw = store.event(workflow_id, event_id)
        return None if raw is None else decode_event(raw)

    def history(self, workflow_id: str, after: int = 0) -> list[Record]:
        """All stored events of this execution behind event `after`, in order."""
        store = self._owned()
        with store.lock:
            stored = store.executions.get(workflow_id)
            found = {} if stored is None else stored.events
            wanted = sorted(event_id for event_id in found if event_id > after)
            return [decode_event(found[event_id].body) for event_id in wanted]

    def history_bytes(self, workflow_id: str) -> int:
        """How many bytes the stored events of this execution have."""
        store = self._owned()
        with store.lock:
            stored = store.executions.get(workflow_id)
            return 0 if stored is None else sum(len(one.body) for one in stored.events.values())

    def newest_run(self, workflow_id: str) -> int:
        """How many runs the workflow of this id has had; 0: it was never started."""
        store = self._owned()
        with store.lock:
            return rules.newest_run(store.executions.__contains__, workflow_id)

    def gates(self) -> list[Gate]:
        """Every gate that was ever set, by kind and name."""
        store = self._owned()
        with store.lock:
            return [store.gates[key] for key in sorted(store.gates)]

    def event(self, workflow_id: str, event_id: int) -> bytes | None:
        """The encoded event record at this id."""
        store = self._owned()
        with store.lock:
            return store.event(workflow_id, event_id)

    def ready_count(self) -> int:
        """How many activities and workflow tasks wait for a worker, after a backoff or at once."""
        store = self._owned()
        with store.lock:
            found = [stored.whole() for stored in store.executions.values() if stored.is_open]
        activities = [activity for execution in found for activity in execution.activities.values()]
        waiting = (ActivityState.SCHEDULED, ActivityState.RETRYING)
        return sum(activity.state in waiting for activity in activities) + sum(
            execution.is_waiting for execution in found
        )

    def close(self) -> None:
        """Write nothing more. Idempotent."""
        self._is_over = True

    def _owned(self) -> MemoryStore:
        if self._is_over or not self._epoch:
            raise StoreError("this writer has no epoch, or has failed; make another, open an epoch")
        return self._store
