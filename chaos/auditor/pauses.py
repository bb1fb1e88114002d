"""What operators hold back: while a workflow, a queue or an activity type is paused, nothing of it
is leased. And what they have tried at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.auditor import names
from chaos.auditor.state import RETRYING, SCHEDULED, Activity, Workflow

Record = list[Any]
GATE_SET = names.TAGS["GateSet"]
GATE_KINDS = ("queue", "activity_type")


class Gates:
    """The gates that the log has set: (kind, name) -> (paused, since, reason)."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], tuple[bool, int, str]] = {}

    def take(self, records: list[Record], *, before: bool) -> list[str]:
        """What a commit sets. A gate that it opens is open for all of it, `before` its other
        records; one that it closes only from its end on, where the last word about each counts.
        What makes no sense is told.
        """
        wrong = []
        for record in records:
            if type(record) is not list or len(record) != 7 or record[0] != GATE_SET:
                wrong.append("a record of no workflow sets no gate")
                continue
            _, at_ms, kind, name, paused, reason, _ = record
            if kind not in GATE_KINDS or type(name) is not str or type(paused) is not bool:
                wrong.append(f"a gate of {kind!r} named {name!r} makes no sense")
            elif not before or not paused:
                self.known[kind, name] = (paused, at_ms, reason)
        return wrong

    def paused(self, queue: str, activity_type: str) -> str:
        """What holds activities of this kind back, or an empty text."""
        for kind, name in (("queue", queue), ("activity_type", activity_type)):
            if self.known.get((kind, name), (False,))[0]:
                return f"{kind} {name}"
        return ""


def check_grant(fold: Any, workflow: Workflow, activity: Activity) -> None:
    """A lease is granted: nothing may hold it back."""
    if workflow.paused:
        fold.wrong(workflow, 28, activity.activity_id, "leased while its workflow is paused")
        return
    gates: Gates = fold.gates
    by = gates.paused(activity.options[1], activity.activity_type) if gates.known else ""
    if by:
        fold.wrong(workflow, 28, activity.activity_id, f"leased while {by} is paused")


def _paused(fold: Any, workflow: Workflow, record: Record) -> None:
    workflow.paused = bool(record[2])


def _retried(fold: Any, workflow: Workflow, record: Record) -> None:
    _, at_ms, activity_id, _ = record[:4]
    if not activity_id:
        workflow.task_due_ms = min(workflow.task_due_ms, at_ms)
        return
    activity = workflow.activities.get(activity_id)
    if activity is None:
        if not workflow.is_partial:
            fold.wrong(workflow, 36, activity_id, "RetriedNow of an activity that is not open")
    elif activity.state not in (SCHEDULED, RETRYING):
        fold.wrong(workflow, 36, activity_id, f"RetriedNow of what is {activity.state}")
    else:
        activity.due_ms = min(activity.due_ms, at_ms)


def _gate(fold: Any, workflow: Workflow, record: Record) -> None:
    fold.wrong(workflow, 13, "", "a gate is set in the name of a workflow")


PAUSE_RULES: dict[int, Callable[[Any, Workflow, Record], None]] = {
    names.TAGS["WorkflowPaused"]: _paused,
    names.TAGS["RetriedNow"]: _retried,
    GATE_SET: _gate,
}
