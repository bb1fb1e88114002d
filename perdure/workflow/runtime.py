"""What a running workflow function talks to."""

from __future__ import annotations

import asyncio
import random as _random
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from perdure import activity
from perdure.errors import FailedPrecondition

if TYPE_CHECKING:
    from perdure.workflow.activities import ActivityHandle


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """Who this workflow is, and when history took its start."""

    workflow_id: str
    workflow_type: str
    task_queue: str
    started_ms: int


class Runtime(Protocol):
    """What a workflow function runs on; perdure.worker.replay has it."""

    @property
    def info(self) -> Info:
        """Who the workflow is."""

    @property
    def now_ms(self) -> int:
        """The time of the event that is being worked off."""

    @property
    def random(self) -> _random.Random:
        """The generator of workflow.random()."""

    @property
    def random_ids(self) -> _random.Random:
        """The generator behind workflow.uuid4()."""

    def start_activity(
        self,
        target: activity.Definition | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        activity_id: str | None,
        options: activity.Options | None,
    ) -> ActivityHandle[Any]:
        """Schedule an activity."""

    def cancel_activity(self, handle: ActivityHandle[Any]) -> None:
        """The workflow no longer waits for this activity."""


def runtime(what: str) -> Runtime:
    """The runtime of the workflow that runs on this thread; FailedPrecondition names `what`."""
    found: Runtime | None = getattr(asyncio._get_running_loop(), "perdure_runtime", None)
    if found is not None:
        return found
    raise FailedPrecondition(f"workflow.{what}() can only be called inside a running workflow")
