"""Workflows as state machines: all commands of a flow as a function of the events it has seen."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.sim.plan import Flow
from chaos.sim.plan import Step as Planned
from perdure.core.commands import CompleteWorkflow, ScheduleActivity, StartTimer, Step
from perdure.core.records import (
    ActivityOptions,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    Record,
    TimerFired,
)
from perdure.policy import RetryPolicy


def schedule(step: Planned) -> ScheduleActivity:
    """The command that schedules a step."""
    options = ActivityOptions(
        RetryPolicy(step.initial_ms, 2.0, 50 * step.initial_ms, step.attempts),
        step.queue,
        step.start_to_close_ms,
        step.heartbeat_ms,
        step.schedule_to_start_ms,
        step.schedule_to_close_ms,
        step.priority,
    )
    return ScheduleActivity(step.id, step.kind, None, options)


def commands_of(
    flow: Flow, planned: list[ScheduleActivity], events: Iterable[Record]
) -> list[Step]:
    """Every command from the first on; `planned` are those that schedule the flow's steps."""
    if flow.shape in ("fan", "race"):
        done = sum(isinstance(it, ActivityTaskCompleted | ActivityTaskFailed) for it in events)
        issued: list[Step] = [*planned]
        if done == len(planned):
            issued.append(CompleteWorkflow(None))
        return issued
    at = 0
    issued = [planned[0]]
    for event in events:
        if isinstance(event, ActivityTaskCompleted | ActivityTaskFailed):
            if flow.nap_ms:
                issued.append(StartTimer(at + 1, flow.nap_ms))
                continue
        elif not isinstance(event, TimerFired):
            continue
        at += 1
        issued.append(planned[at] if at < len(planned) else CompleteWorkflow(None))
    return issued
