"""What reads the memory store: see perdure.store.memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perdure.core.gates import Gate
from perdure.core.schedule_state import Schedule
from perdure.core.state import Activity, ActivityState, Execution
from perdure.store import memory_filters, rules
from perdure.store.memory_changes import decode_activity
from perdure.store.protocol import AsideRow, CommitRow, StoreError, WorkflowFilter

if TYPE_CHECKING:
    from perdure.store.memory import MemoryStore


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

    def began_ms(self) -> int:
        """When the present epoch began."""
        return self._read().began_ms

    def base(self) -> tuple[int, bytes]:
        """(n, hash) of the commit that the log begins after."""
        return self._read().base

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
            return store.log[max(after - store.base[0], 0) :][:limit]

    def execution(self, workflow_id: str) -> Execution | None:
        """The execution with all its open activities and timers; None: never started."""
        store = self._read()
        with store.lock:
            return store.load(workflow_id)

    def newest_run(self, workflow_id: str) -> int:
        """How many runs the workflow of this id has had; 0: it was never started."""
        store = self._read()
        with store.lock:
            return rules.newest_run(store.executions.__contains__, workflow_id)

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
        return None if raw is None else decode_activity(raw).details

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
                if not memory_filters.fits(execution, where):
                    continue
                if len(found) == limit:
                    return found, rules.page_token(last_seq)
                execution.timers.clear()
                found.append(execution)
                last_seq = stored.seq
        return found, None

    def failure_types(self, limit: int) -> list[str]:
        """The types of the last failures of open activities, by name."""
        _, executions = self.open_state()
        failures = [one.last_failure for it in executions for one in it.activities.values()]
        return sorted({one.type for one in failures if one is not None})[:limit]

    def gates(self) -> list[Gate]:
        """Every gate that was ever set, by kind and name."""
        store = self._read()
        with store.lock:
            return [store.gates[key] for key in sorted(store.gates)]

    def asides(self) -> list[AsideRow]:
        """What was set aside, the newest last."""
        store = self._read()
        with store.lock:
            return list(store.asides.values())

    def schedule(self, schedule_id: str) -> Schedule | None:
        """The schedule, deleted or not; None where there never was one."""
        store = self._read()
        with store.lock:
            return store.schedule(schedule_id)

    def schedules(self, after: str, limit: int) -> list[Schedule]:
        """Those with an id above `after`, by id, without deleted ones; a limit of -1 means all."""
        store = self._read()
        with store.lock:
            ids = [one for one in sorted(store.kept_schedules) if one > after]
            all_ = [store.schedule(one) for one in ids]
        found = [one for one in all_ if one is not None and not one.deleted]
        return found if limit < 0 else found[:limit]

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
