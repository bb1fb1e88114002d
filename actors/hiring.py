"""Leases that a worker asks for in the report that schedules the activities: history's side.

It saves the way over the scheduler: a proposal, a commit, and three hops. The scheduler has kept
the slots free, or they were freed by the same report.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.core.commands import (
    AnyCommand,
    Command,
    CompleteActivity,
    CompleteWorkflowTask,
    Hire,
)
from perdure.core.ids import Address, seal
from perdure.core.ledger import Ledger
from perdure.core.links import ActivityTask, Ask, pack_session
from perdure.core.open_work import task_of
from perdure.values import is_reference

# What may bring such a wish with it.
HIRING: frozenset[type[Command]] = frozenset({CompleteWorkflowTask, CompleteActivity})


def checked(ask: Ask, head: bytes) -> Ask:
    """The ask, without what it wishes for a session that is not its sender's (any more)."""
    found = _wish(ask.command)
    if found is None or pack_session(found[1].session) == head:
        return ask
    command = ask.command
    if isinstance(command, CompleteActivity) and command.following is not None:
        following = msgspec.structs.replace(command.following, hire=None)
        return Ask(ask.n, msgspec.structs.replace(command, following=following))
    return Ask(ask.n, msgspec.structs.replace(command, hire=None))


def tasks(command: AnyCommand, ledger: Ledger, now_ms: int) -> Iterator[ActivityTask]:
    """The tasks of the leases that `command` asked for and that live, once they are durable.

    The same for a report that is repeated. What gets lost, the scheduler sends again, as with all
    leases.
    """
    found = _wish(command)
    execution = None if found is None else ledger.execution(found[0])
    if found is None or execution is None:
        return
    workflow_id, hire = found
    for activity_id in hire.activity_ids:
        activity = execution.activities.get(activity_id)
        if activity is None or activity.lease is None or activity.grant != 1:
            continue
        if activity.lease.session != hire.session:
            continue
        if activity.input is not None and is_reference(activity.input):
            continue  # Not in memory; the scheduler's way fetches it.
        token = seal(Address(workflow_id, activity_id, activity.generation, 1), ledger.key)
        task = task_of(execution, activity, token, now_ms)
        if task is not None:
            yield task


def _wish(command: AnyCommand) -> tuple[str, Hire] | None:
    """The workflow whose report asks for leases, and what it asks for."""
    task = command.following if type(command) is CompleteActivity else command
    if type(task) is not CompleteWorkflowTask or task.hire is None:
        return None
    return task.workflow_id, task.hire
