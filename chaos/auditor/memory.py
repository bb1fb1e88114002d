"""Any store that has a Reader, as the auditor reads tables: for engines in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from chaos.auditor.source import (
    ActivityRow,
    EpochRow,
    EventRow,
    ExecutionRow,
    GateRow,
    ScheduleRow,
    TimerRow,
    TombstoneRow,
)
from perdure.core.state import Execution
from perdure.store.protocol import Reader, WorkflowFilter

PAGE = 500
PAGE_BYTES = 16 * 1024 * 1024

_encode = msgspec.msgpack.Encoder().encode
_PLAIN = tuple(name for name in ExecutionRow._fields if name not in ("task_failure", "more"))
_decode = msgspec.msgpack.Decoder().decode


class ReaderTables:
    """What a Reader shows, as of the moment of the first question; nobody may write meanwhile."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._all: list[Execution] | None = None

    def _executions(self) -> list[Execution]:
        if self._all is None:
            whole = {one.workflow_id: one for one in self._reader.open_state()[1]}
            listed = self._listed(WorkflowFilter())
            self._all = [whole.get(one.workflow_id, one) for one in listed]
        return self._all

    def _listed(self, where: WorkflowFilter) -> Iterator[Execution]:
        page: str | None = None
        while True:
            some, page = self._reader.list_workflows(where, PAGE, page)
            yield from some
            if page is None:
                return

    def epochs(self) -> Iterator[EpochRow]:
        """None: a Reader does not show them."""
        return iter(())

    def executions(self) -> Iterator[ExecutionRow]:
        """Every execution."""
        for one in self._executions():
            failure = one.task_failure
            encoded = None if failure is None else _encode(failure)
            more = None if one.more is None else _encode(one.more)
            fields = {name: getattr(one, name) for name in _PLAIN}
            yield ExecutionRow(**fields, task_failure=encoded, more=more)

    def events(self) -> Iterator[EventRow]:
        """Every event; the columns are those of its record, for a Reader shows no others."""
        for one in self._executions():
            after = 0
            while True:
                bodies = self._reader.events(one.workflow_id, after, PAGE, PAGE_BYTES)
                if not bodies:
                    break
                for body in bodies:
                    row = _event(one.workflow_id, body)
                    yield row
                    after = row.event_id

    def activities(self) -> Iterator[ActivityRow]:
        """Every open activity."""
        for one in self._executions():
            for activity in one.activities.values():
                newest = activity.failures_newest
                yield ActivityRow(
                    one.workflow_id,
                    activity.activity_id,
                    activity.state.value,
                    activity.activity_type,
                    newest[-1].failure.type if newest else None,
                    activity.attempt,
                    _encode(activity),
                )

    def timers(self) -> Iterator[TimerRow]:
        """Every running timer."""
        for one in self._executions():
            for timer_id, due_ms in one.timers.items():
                yield TimerRow(one.workflow_id, timer_id, due_ms)

    def gates(self) -> Iterator[GateRow]:
        """Every gate."""
        for one in self._reader.gates():
            yield GateRow(one.kind, one.name, one.paused, one.since_ms, one.reason)

    def schedules(self, known: Iterable[str]) -> Iterator[ScheduleRow]:
        """Every schedule that is known, or not deleted."""
        present = [one.schedule_id for one in self._reader.schedules("", -1)]
        for schedule_id in dict.fromkeys([*known, *present]):
            one = self._reader.schedule(schedule_id)
            if one is not None:
                yield ScheduleRow(schedule_id, one.deleted, _encode(one))

    def tombstones(self) -> Iterator[TombstoneRow]:
        """Every tombstone."""
        for one in self._listed(WorkflowFilter(status="Removed")):
            yield TombstoneRow(one.workflow_id, one.digest, one.closed_ms or 0)


def _event(workflow_id: str, body: bytes) -> EventRow:
    from chaos.auditor.names import KINDS, REQUEST_AT

    record = _decode(body)
    kind = KINDS[record[0]]
    closes = record[3] if kind.name in ("ActivityTaskCompleted", "ActivityTaskFailed") else None
    at = REQUEST_AT.get(kind.name, 0)
    request_id = record[at] if 0 < at < len(record) else None
    if request_id is not None:
        request_id = f"{kind.name}/{request_id}"
    return EventRow(workflow_id, record[1], record[2], kind.name, body, closes, request_id)
