"""What is durable in the fast world: the log, and by workflow the records that it states."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.core.chain import GENESIS
from perdure.core.change import Change
from perdure.core.execution import begin, evolve
from perdure.core.facts import scoped
from perdure.core.gates import Gate
from perdure.core.records import (
    EVENT_TYPES,
    ActivityDeadLettered,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    CommitBody,
    Record,
    WorkflowStarted,
    decode_body,
)
from perdure.core.state import Execution
from perdure.core.traits import TRAITS
from perdure.store import rules
from perdure.store.protocol import CommitRow


class FastStore:
    """A log and what it says. What is loaded is folded anew, and belongs to who loads it."""

    def __init__(self) -> None:
        self.log: list[CommitRow] = []
        self.bodies: list[CommitBody] = []
        self.records: dict[str, list[tuple[int, Record]]] = {}
        self.closed: set[str] = set()
        self.dead: set[str] = set()  # Workflows that have had a dead letter.
        self.gates_set: dict[tuple[str, str], Gate] = {}
        self.epoch = 0
        self.newest = 0  # The newest commit's number.

    def open_epoch(self, incarnation: str, now_ms: int) -> CommitRow:
        """The next epoch's first commit."""
        last = self.log[-1] if self.log else None
        end = rules.Newest(
            self.epoch,
            len(self.log),
            last.at_ms if last else 0,
            last.hash if last else GENESIS,
        )
        row = rules.epoch_commit(end, now_ms, incarnation)
        self.epoch = row.epoch
        self._append(row)
        return row

    def commit(self, change: Change) -> CommitRow:
        """Keep `change`."""
        row = CommitRow(
            change.n, change.epoch, change.at_ms, change.previous_hash, change.hash, change.body
        )
        body = self._append(row)
        records, n = self.records, change.n
        self.gates_set |= {(gate.kind, gate.name): gate for gate in change.gates}
        for group in body.groups:
            if not group.workflow_id:
                continue  # Of gates.
            known = records.get(group.workflow_id)
            if known is None:
                known = records[group.workflow_id] = []
            for record in group.records:
                known.append((n, record))
                if type(record) is ActivityDeadLettered:
                    self.dead.add(group.workflow_id)
        for execution in change.touched:
            if not execution.is_open:
                self.closed.add(execution.workflow_id)
        return row

    def _append(self, row: CommitRow) -> CommitBody:
        body = decode_body(row.body)
        self.log.append(row)
        self.bodies.append(body)
        self.newest += 1
        return body

    # --- perdure.core.ledger.Source ---------------------------------------------------
    def load(self, workflow_id: str) -> Execution | None:
        """The execution as of the newest commit, or None."""
        known = self.records.get(workflow_id)
        if known is None:
            return None
        _, first = known[0]
        assert isinstance(first, WorkflowStarted)
        execution = begin(workflow_id, first)
        for n, record in known[1:]:
            evolve(execution, record, n)
        return execution

    def closing_event(self, workflow_id: str, activity_id: str) -> Record | None:
        """The event that closed this activity, or None."""
        for _, record in self.records.get(workflow_id, ()):
            if (
                isinstance(record, ActivityTaskCompleted | ActivityTaskFailed)
                and record.activity_id == activity_id
            ):
                return record
        return None

    def gates(self) -> list[Gate]:
        """Every gate that was ever set."""
        return list(self.gates_set.values())

    def requested_event(self, workflow_id: str, request_id: str) -> Record | None:
        """The event made by the operator's command with this request id, or None."""
        for _, record in self.records.get(workflow_id, ()):
            field = TRAITS[type(record)].request
            made_by = None if field is None else getattr(record, field)
            if made_by is not None and scoped(type(record), made_by) == request_id:
                return record
        return None

    def history(self, workflow_id: str, after: int = 0) -> list[Record]:
        """All stored events of this execution behind event `after`, in order."""
        return [one for one in self.events(workflow_id) if one.event_id > after]  # type: ignore[attr-defined]

    def history_bytes(self, workflow_id: str) -> int:
        """How many bytes the stored events of this execution have."""
        return 0  # Its histories are short.

    def schedule(self, schedule_id: str) -> None:
        """There are none in this world."""

    def newest_run(self, workflow_id: str) -> int:
        """How many runs the workflow of this id has had; 0: it was never started."""
        return rules.newest_run(self.records.__contains__, workflow_id)

    # --- readers --------------------------------------------------------------------------
    def open_state(self) -> list[Execution]:
        """Every open execution."""
        found = (self.load(key) for key in self.records if key not in self.closed)
        return [execution for execution in found if execution is not None]

    def with_dead_letters(self) -> list[Execution]:
        """Every open execution that has, or had, a dead letter."""
        found = (self.load(key) for key in self.records if key in self.dead)
        return [execution for execution in found if execution is not None and execution.is_open]

    def events(self, workflow_id: str) -> Iterator[Record]:
        """The workflow's own history, in order."""
        for _, record in self.records.get(workflow_id, ()):
            if type(record) in EVENT_TYPES:
                yield record
