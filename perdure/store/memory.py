"""The store of tests and of LocalEngine: the embedded one's promises while the process lives.

What goes in and comes out is encoded in between, so that nobody can change a stored object, or
see one change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from perdure.core.chain import GENESIS
from perdure.core.change import Change, StoredEvent
from perdure.core.records import Record, decode_event
from perdure.core.state import Activity, ActivityState, Execution
from perdure.store import rules
from perdure.store.protocol import (
    CommitRow,
    Opened,
    StoreError,
    WorkflowFilter,
)

Tell = Callable[[int, bytes], None]

_encode = msgspec.msgpack.Encoder().encode
_decode_activity = msgspec.msgpack.Decoder(Activity).decode
_decode_execution = msgspec.msgpack.Decoder(Execution).decode


def _encode_bare(execution: Execution) -> bytes:
    return _encode(msgspec.structs.replace(execution, activities={}, timers={}))


class _Stored:
    """One execution with all that belongs to it."""

    def __init__(self, seq: int, execution: Execution) -> None:
        self.seq = seq
        self.put(execution, _encode_bare(execution))
        self.activities: dict[str, bytes] = {}
        self.timers: dict[int, int] = {}
        self.events: dict[int, StoredEvent] = {}
        self.closing: dict[str, int] = {}
        self.requested: dict[str, int] = {}

    def put(self, execution: Execution, raw: bytes) -> None:
        """Take over what `raw` is the encoding of."""
        self.is_open = execution.is_open
        self.raw = raw

    def bare(self) -> Execution:
        """The execution without what is open in it."""
        return _decode_execution(self.raw)

    def whole(self) -> Execution:
        """The execution with what is open in it, while it is open."""
        execution = self.bare()
        if self.is_open:
            for activity_id, raw in self.activities.items():
                execution.activities[activity_id] = _decode_activity(raw)
            execution.timers.update(self.timers)
        return execution


class MemoryStore:
    """What outlives the writers and readers made from it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.key = os.urandom(rules.KEY_BYTES)
        self.epoch = 0
        self.boot: rules.Boot | None = None
        self.log: list[CommitRow] = []  # Commit n stands at n - 1.
        self.executions: dict[str, _Stored] = {}  # In the order of their starts.

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
            return rules.Newest(self.epoch, 0, 0, GENESIS)
        last = self.log[-1]
        return rules.Newest(self.epoch, last.n, last.at_ms, last.hash, last.stall_ms)

    def event(self, workflow_id: str, event_id: int | None) -> bytes | None:
        """The encoded event record at this id."""
        stored = self.executions.get(workflow_id)
        event = None if stored is None or event_id is None else stored.events.get(event_id)
        return None if event is None else event.body

    def load(self, workflow_id: str) -> Execution | None:
        """The execution with what is open in it; None: never started."""
        stored = self.executions.get(workflow_id)
        return None if stored is None else stored.whole()


class MemoryWriter:
    """See perdure.store.protocol.Writer."""

    def __init__(self, store: MemoryStore, tell: Tell) -> None:
        self._store = store
        self._tell = tell
        self._epoch = 0
        self._is_over = False

    def open_epoch(self, incarnation: str, wall_ms: int, boot_id: str, boot_ms: int) -> Opened:
        """Take the store over: commit the next epoch."""
        if self._epoch or self._is_over:
            raise StoreError("this writer has had its epoch; make another writer")
        store = self._store
        with store.lock:
            newest = store.newest()
            base_ms = rules.base_ms(newest, store.boot, wall_ms, boot_id, boot_ms)
            row = rules.epoch_commit(newest, base_ms + boot_ms, incarnation)
            store.log.append(row)
            store.epoch = self._epoch = row.epoch
            store.boot = rules.Boot(boot_id, base_ms)
        self._tell(row.n, row.hash)
        return Opened(row.epoch, row.n, row.hash, base_ms, store.key, row.stall_ms)

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
                _check(store, change)
                _apply(store, change)
        except BaseException:
            self._is_over = True
            raise
        self._tell(change.n, change.hash)

    def maybe_checkpoint(self, *, idle: bool = False) -> None:
        """Nothing: there is no log to copy back."""

    def load(self, workflow_id: str) -> Execution | None:
        """The execution with all its open activities and timers; None: never started."""
        store = self._owned()
        with store.lock:
            return store.load(workflow_id)

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
            execution.task_ready for execution in found
        )

    def close(self) -> None:
        """Write nothing more. Idempotent."""
        self._is_over = True

    def _owned(self) -> MemoryStore:
        if self._is_over or not self._epoch:
            raise StoreError("this writer has no epoch, or has failed; make another, open an epoch")
        return self._store


class MemoryReader:
    """See perdure.store.protocol.Reader."""

    def __init__(self, store: MemoryStore) -> None:
        self._store: MemoryStore | None = store

    def key(self) -> bytes:
        """The key of the store's tokens."""
        return self._read().key

    def newest(self) -> int:
        """The newest commit's number."""
        store = self._read()
        with store.lock:
            return store.newest().n

    def open_state(self) -> tuple[int, list[Execution]]:
        """(n, every open execution with its open activities and timers) as of commit n."""
        store = self._read()
        with store.lock:
            found = [stored.whole() for stored in store.executions.values() if stored.is_open]
            return store.newest().n, found

    def commits(self, after: int, limit: int) -> list[CommitRow]:
        """Commit rows after `after`, in order."""
        store = self._read()
        with store.lock:
            return store.log[max(after, 0) :][:limit]

    def execution(self, workflow_id: str) -> Execution | None:
        """The execution with all its open activities and timers; None: never started."""
        store = self._read()
        with store.lock:
            return store.load(workflow_id)

    def events(self, workflow_id: str, after: int, limit: int, bytes_max: int) -> list[bytes]:
        """Encoded events after `after`, in order: at most `limit` and `bytes_max`, but one."""
        store = self._read()
        found: list[bytes] = []
        size = 0
        with store.lock:
            stored = store.executions.get(workflow_id)
            events = {} if stored is None else stored.events
            for event_id in sorted(one for one in events if one > after)[:limit]:
                size += len(events[event_id].body)
                if found and size > bytes_max:
                    break
                found.append(events[event_id].body)
        return found

    def event(self, workflow_id: str, event_id: int) -> bytes | None:
        """The encoded event record at exactly this id."""
        store = self._read()
        with store.lock:
            return store.event(workflow_id, event_id)

    def details(self, workflow_id: str, activity_id: str) -> bytes | None:
        """The heartbeat details payload of an open activity."""
        store = self._read()
        with store.lock:
            stored = store.executions.get(workflow_id)
            raw = None if stored is None else stored.activities.get(activity_id)
        return None if raw is None else _decode_activity(raw).details

    def list_workflows(
        self, where: WorkflowFilter, limit: int, page: str | None
    ) -> tuple[list[Execution], str | None]:
        """As SqliteReader.list_workflows, from the newest start to the oldest."""
        before = None if page is None else rules.page_start(page)
        store = self._read()
        found: list[Execution] = []
        last_seq = 0
        with store.lock:
            for stored in reversed(store.executions.values()):
                if before is not None and stored.seq >= before:
                    continue
                execution = stored.whole()
                if not _matches(execution, where):
                    continue
                if len(found) == limit:
                    return found, rules.page_token(last_seq)
                found.append(stored.bare())
                last_seq = stored.seq
        return found, None

    def dead_letters(self) -> Iterator[tuple[str, str, Activity]]:
        """(workflow_id, workflow_type, activity) of every dead letter, oldest workflow first."""
        _, executions = self.open_state()
        for execution in executions:
            for activity_id in sorted(execution.activities):
                activity = execution.activities[activity_id]
                if activity.state is ActivityState.DEAD_LETTERED:
                    yield execution.workflow_id, execution.workflow_type, activity

    def close(self) -> None:
        """Read nothing more. Idempotent."""
        self._store = None

    def _read(self) -> MemoryStore:
        if self._store is None:
            raise StoreError("this reader is closed; make another")
        return self._store


def _matches(execution: Execution, where: WorkflowFilter) -> bool:
    of_activity = (where.pending_state, where.failure_type, where.activity_type)
    return (
        where.workflow_type in (None, execution.workflow_type)
        and where.status in (None, execution.status)
        and (where.older_than_ms is None or execution.started_ms < where.older_than_ms)
        and (
            of_activity == (None, None, None)
            or any(_is_of(one, where) for one in execution.activities.values())
        )
    )


def _is_of(activity: Activity, where: WorkflowFilter) -> bool:
    failure = activity.last_failure
    return (
        where.pending_state in (None, activity.state)
        and where.activity_type in (None, activity.activity_type)
        and (
            where.failure_type is None
            or (failure is not None and failure.type == where.failure_type)
        )
    )


# --- a commit: looked through first, so that what fails leaves nothing -------
def _check(store: MemoryStore, change: Change) -> None:
    """Raise StoreError where `change` contradicts the store, as the embedded store's keys would."""
    known = store.executions
    new = [one.workflow_id for one in change.started]
    _all_new(change, "execution", new, known)
    named = {
        *(one.workflow_id for one in change.touched),
        *(one.workflow_id for one in change.events),
        *(workflow_id for workflow_id, _ in change.activities),
        *(workflow_id for workflow_id, _ in change.activities_closed),
        *(workflow_id for workflow_id, _, _ in change.timers),
        *(workflow_id for workflow_id, _ in change.timers_closed),
    }
    for workflow_id in named - set(new) - known.keys():
        raise StoreError(f"workflow {workflow_id} was never started")
    for one in change.touched:
        stored = known.get(one.workflow_id)
        if stored is not None and one.is_open and not stored.is_open:
            raise StoreError("an execution that is closed already cannot go on")
    ids = [(one.workflow_id, one.event_id) for one in change.events]
    closes = [(one.workflow_id, one.closes) for one in change.events if one.closes is not None]
    timers = [(workflow_id, timer_id) for workflow_id, timer_id, _ in change.timers]
    _all_new(change, "event", ids, _pairs(known, ids, "events"))
    _all_new(change, "closing", closes, _pairs(known, closes, "closing"))
    _all_new(change, "timer", timers, _pairs(known, timers, "timers"))


def _all_new(change: Change, what: str, keys: list[Any], taken: Iterable[Any]) -> None:
    unique = set(keys)
    if len(unique) < len(keys) or not unique.isdisjoint(taken):
        raise StoreError(f"commit {change.n} contradicts the store: {what} not unique")


def _pairs(
    known: dict[str, _Stored], keys: Iterable[tuple[str, Any]], name: str
) -> set[tuple[str, Any]]:
    """Those of `keys` that stand in the store."""
    return {
        (workflow_id, key)
        for workflow_id, key in keys
        if workflow_id in known and key in getattr(known[workflow_id], name)
    }


def _apply(store: MemoryStore, change: Change) -> None:
    """All of `change`, in the embedded store's order. What can fail, encoding, comes first."""
    started = [_Stored(0, one) for one in change.started]
    touched = [(one, _encode_bare(one)) for one in change.touched]
    activities = [(id_, one.activity_id, _encode(one)) for id_, one in change.activities]
    known = store.executions
    newest_seq = next(reversed(known.values())).seq if known else 0
    for seq, (stored, execution) in enumerate(
        zip(started, change.started, strict=True), start=newest_seq + 1
    ):
        stored.seq = seq
        known[execution.workflow_id] = stored
    for event in change.events:
        stored = known[event.workflow_id]
        stored.events[event.event_id] = event
        if event.closes is not None:
            stored.closing[event.closes] = event.event_id
        if event.request_id is not None:
            stored.requested.setdefault(event.request_id, event.event_id)
    for workflow_id, activity_id, raw in activities:
        known[workflow_id].activities[activity_id] = raw
    for workflow_id, activity_id in change.activities_closed:
        known[workflow_id].activities.pop(activity_id, None)
    for workflow_id, timer_id, due_ms in change.timers:
        known[workflow_id].timers[timer_id] = due_ms
    for workflow_id, timer_id in change.timers_closed:
        known[workflow_id].timers.pop(timer_id, None)
    for execution, raw in touched:
        known[execution.workflow_id].put(execution, raw)
    store.log.append(
        CommitRow(
            change.n,
            change.epoch,
            change.at_ms,
            change.previous_hash,
            change.hash,
            change.body,
            change.stall_ms,
        )
    )
