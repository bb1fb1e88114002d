"""Where history comes with each commit, and armed also with those that have a certain record."""

from __future__ import annotations

from perdure.core.batch import Batch
from perdure.core.records import (
    ChildWorkflowStarted,
    GateSet,
    LeaseDetached,
    Record,
    SignalSent,
    UpdateEnded,
    UpdateReceived,
    WorkflowContinuedAsNew,
    WorkflowReset,
)
from perdure.core.schedule_state import ScheduleFired
from perdure.crash_points import ARMED, CrashPoint, reached


def judged(batch: Batch) -> None:
    """The batch is decided, and nothing of it is on the disk."""
    reached(CrashPoint.HISTORY_JUDGED_NOT_WRITTEN)
    if not ARMED:
        return
    kinds = _kinds(batch)
    if UpdateReceived in kinds:
        reached(CrashPoint.HISTORY_UPDATE_TAKEN_NOT_WRITTEN)
    if UpdateEnded in kinds:
        reached(CrashPoint.HISTORY_UPDATE_ANSWERED_NOT_WRITTEN)
    if ScheduleFired in kinds:
        reached(CrashPoint.HISTORY_SCHEDULE_FIRED_NOT_WRITTEN)
    if ChildWorkflowStarted in kinds:
        reached(CrashPoint.HISTORY_CHILD_STARTED_NOT_WRITTEN)
    if SignalSent in kinds:
        reached(CrashPoint.HISTORY_SIGNAL_FORWARDED_NOT_WRITTEN)
    if WorkflowContinuedAsNew in kinds:
        reached(CrashPoint.HISTORY_RUN_CONTINUED_NOT_WRITTEN)
    if LeaseDetached in kinds:
        reached(CrashPoint.HISTORY_ATTEMPT_LEFT_NOT_WRITTEN)
    if WorkflowReset in kinds:
        reached(CrashPoint.HISTORY_WORKFLOW_RESET_NOT_WRITTEN)
    if GateSet in kinds:
        reached(CrashPoint.HISTORY_GATE_MOVED_NOT_WRITTEN)


def committed(batch: Batch) -> None:
    """The batch is on the disk, and nobody has heard of it."""
    reached(CrashPoint.HISTORY_COMMITTED_NOT_PUBLISHED)
    if not ARMED:
        return
    kinds = _kinds(batch)
    if UpdateReceived in kinds:
        reached(CrashPoint.HISTORY_UPDATE_TAKEN_NOT_TOLD)
    if UpdateEnded in kinds:
        reached(CrashPoint.HISTORY_UPDATE_ANSWERED_NOT_TOLD)
    if ScheduleFired in kinds:
        reached(CrashPoint.HISTORY_SCHEDULE_FIRED_NOT_TOLD)
    if ChildWorkflowStarted in kinds:
        reached(CrashPoint.HISTORY_CHILD_STARTED_NOT_TOLD)
    if SignalSent in kinds:
        reached(CrashPoint.HISTORY_SIGNAL_FORWARDED_NOT_TOLD)
    if WorkflowContinuedAsNew in kinds:
        reached(CrashPoint.HISTORY_RUN_CONTINUED_NOT_TOLD)
    if LeaseDetached in kinds:
        reached(CrashPoint.HISTORY_ATTEMPT_LEFT_NOT_TOLD)
    if WorkflowReset in kinds:
        reached(CrashPoint.HISTORY_WORKFLOW_RESET_NOT_TOLD)
    if GateSet in kinds:
        reached(CrashPoint.HISTORY_GATE_MOVED_NOT_TOLD)


def _kinds(batch: Batch) -> set[type[Record]]:
    return {type(record) for group in batch.records.values() for record in group}
