"""One attempt of an activity: its context, the call of the user's function, and what came of it.

Whatever leaves a user's function is an outcome, SystemExit and KeyboardInterrupt included: only the
end of the process ends a worker.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from perdure import values
from perdure.activity import ActivityContext, bound
from perdure.core import links
from perdure.core.ids import idempotency_key
from perdure.core.records import Payload
from perdure.failures import CompleteLater, Failure, failure_from_exception
from perdure.registry import ActivityDefinition
from perdure.worker.heartbeats import Beats
from perdure.worker.pool import Job, LoopJob, LoopThread, Threads
from perdure.worker.sockets import Inbox

Outcome = Failure | Payload | None
"""How it failed, what it returned, or None: it was left open, to be completed by somebody else."""

Done = Callable[[str, Outcome, int], None]
Recorded = Callable[[str, int], None]


class Attempt:
    """One attempt and where it runs."""

    __slots__ = ("beats", "context", "definition", "job", "task")

    def __init__(
        self, task: links.ActivityTask, definition: ActivityDefinition | None, beats: Beats
    ) -> None:
        self.task = task
        self.definition = definition
        self.beats = beats
        self.context: ActivityContext
        self.job: Job | LoopJob | None = None
