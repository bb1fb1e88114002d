"""How a commit is called in a schedule, and whose it is."""

from __future__ import annotations

from perdure.core.commands import (
    AnyCommand,
    CompleteActivity,
    CompleteWorkflow,
    CompleteWorkflowTask,
    DetachLease,
    EndLease,
    FailActivity,
    FailWorkflow,
    FailWorkflowTask,
    FireTimer,
    GrantLease,
    RecordHeartbeat,
    RedriveDeadLetter,
    ScheduleActivity,
    StartTimer,
    StartWorkflow,
)
from perdure.core.commands import (
    Step as WorkflowStep,
)
from perdure.verifying.world import StepKind, Who, shown_activity

Named = tuple[str, StepKind, Who]


def described(command: AnyCommand, running: Who) -> Named:
    """(what is committed, of which kind it is, whose it is). `running`: the attempt that runs."""
    match command:
        case StartWorkflow():
            return "the workflow's start", StepKind.COMMIT, Who()
        case CompleteWorkflowTask(steps=steps):
            return _workflow_task(steps), StepKind.COMMIT, Who()
        case FailWorkflowTask(reason=reason):
            return f"the workflow task's failure ({reason})", StepKind.COMMIT, Who()
        case FireTimer():
            return "a timer's end", StepKind.COMMIT, Who()
        case GrantLease(activity_id=id_, attempt=attempt):
            return f"the lease of {id_}, attempt {attempt},", StepKind.COMMIT, Who(id_)
        case CompleteActivity():
            return f"the report of {running} (done)", StepKind.ENDS, running
        case FailActivity(failure=failure):
            return f"the report of {running} ({failure.type})", StepKind.ENDS, running
        case DetachLease():
            return f"that {running} is left open", StepKind.ENDS, running
        case RecordHeartbeat():
            return f"a heartbeat of {running},", StepKind.COMMIT, running
        case EndLease(address=address, reason=reason):
            id_ = address.activity_id
            return f"the end of the lease of {id_} ({reason})", StepKind.COMMIT, Who(id_)
        case RedriveDeadLetter(activity_id=id_):
            return f"the redrive of {id_}", StepKind.COMMIT, Who(id_)
        case _:
            return type(command).__name__, StepKind.COMMIT, running


def _workflow_task(steps: tuple[WorkflowStep, ...]) -> str:
    wishes = [wish for step in steps if (wish := _wish(step))]
    return f"the workflow task ({', '.join(wishes) or 'nothing new'})"


def _wish(step: WorkflowStep) -> str:
    match step:
        case ScheduleActivity(activity_id=id_, activity_type=type_):
            return f"run {shown_activity(type_, id_)}"
        case StartTimer(duration_ms=duration_ms):
            return f"sleep {duration_ms} ms"
        case CompleteWorkflow():
            return "end"
        case FailWorkflow(failure=failure):
            return f"fail: {failure.type}"
        case _:
            return type(step).__name__
