"""What is asked of history about a schedule. `workflow_id` is the group: mark and schedule id."""

from __future__ import annotations

from perdure.core.command_base import Command
from perdure.core.schedule_state import Spec


class PutSchedule(Command, frozen=True, tag=40):
    """Sent by the gateway for a client: have this schedule. With `replace` it may exist already,
    without it must not.
    """

    workflow_id: str
    spec: Spec
    paused: bool
    reason: str
    request_id: str
    replace: bool = False


class FireSchedule(Command, frozen=True, tag=41):
    """Scheduler: the time of the run due at `due_ms` has come."""

    workflow_id: str
    due_ms: int


class TriggerSchedule(Command, frozen=True, tag=42):
    """Sent by the gateway for an operator: one run now. No `overlap`: as the schedule says."""

    workflow_id: str
    overlap: str
    request_id: str


class BackfillSchedule(Command, frozen=True, tag=43):
    """Sent by the gateway for an operator: the runs that were due from `first_ms` to `last_ms`."""

    workflow_id: str
    first_ms: int
    last_ms: int
    overlap: str
    request_id: str


class PauseSchedule(Command, frozen=True, tag=44):
    """Sent by the gateway for an operator: hold the schedule back, or let it go."""

    workflow_id: str
    paused: bool
    reason: str
    request_id: str


class DeleteSchedule(Command, frozen=True, tag=45):
    """Sent by the gateway for an operator: the schedule ends; what it started goes on."""

    workflow_id: str
    request_id: str
