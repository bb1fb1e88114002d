"""The log of workflow code, which does not say again in a replay what it has said before."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from perdure.workflow.runtime import Runtime


class WorkflowLogger(logging.LoggerAdapter[logging.Logger]):
    """logging's "perdure.workflow", which keeps silent while a workflow is replayed.

    Each line begins with the workflow's id, and its record has `workflow_id` and `run`. A line is
    said again where a workflow task is done again: its worker died before history had its steps.
    """

    def __init__(self) -> None:
        super().__init__(logging.getLogger("perdure.workflow"), {})

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - its name in logging
        """Whether a line of this level is logged now: never in a replay, a query or a check."""
        running = _running()
        return (running is None or not running.is_silent) and super().isEnabledFor(level)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """As Logger.log."""
        if not self.isEnabledFor(level):
            return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # Past this one.
        running = _running()
        if running is None:
            self.logger.log(level, msg, *args, **kwargs)
            return
        info = running.info
        kwargs["extra"] = {
            "workflow_id": info.workflow_id,
            "run": info.run,
            **(kwargs.get("extra") or {}),
        }
        who = info.workflow_id if info.run == 1 else f"{info.workflow_id}#{info.run}"
        if args:  # Then the line is a format.
            who = who.replace("%", "%%")
        self.logger.log(level, f"{who}: {msg}", *args, **kwargs)


def _running() -> Runtime | None:
    found: Runtime | None = getattr(asyncio._get_running_loop(), "perdure_runtime", None)
    return found


logger = WorkflowLogger()
