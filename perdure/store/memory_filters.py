"""What a list of workflows in memory is narrowed to."""

from __future__ import annotations

from perdure.core.state import Activity, Execution, Status
from perdure.store import rules
from perdure.store.protocol import WorkflowFilter


def fits(execution: Execution, where: WorkflowFilter) -> bool:
    """Whether a list that is narrowed to `where` has this execution."""
    of_activity = (where.pending_state, where.failure_type, where.activity_type, where.attempts)
    return (
        where.workflow_type in (None, execution.workflow_type)
        and (where.status or execution.status) == execution.status
        and (where.status is not None or execution.status is not Status.REMOVED)
        and (where.older_than_ms is None or execution.started_ms < where.older_than_ms)
        and (where.younger_than_ms is None or execution.started_ms >= where.younger_than_ms)
        and rules.more_fits(execution.more, where)
        and (where.judge is None or (execution.is_open and where.judge(execution)))
        and (
            of_activity == (None, None, None, None)
            or any(_is_of(one, where) for one in execution.activities.values())
        )
    )


def _is_of(activity: Activity, where: WorkflowFilter) -> bool:
    failure = activity.last_failure
    return (
        where.pending_state in (None, activity.state)
        and (where.attempts is None or activity.attempt >= where.attempts)
        and where.activity_type in (None, activity.activity_type)
        and (
            where.failure_type is None
            or (failure is not None and failure.type == where.failure_type)
        )
    )
