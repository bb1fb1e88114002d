"""Who a worker is and what it runs, and how it says so."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure import activity, workflow
from perdure.core.ids import Session
from perdure.core.limits import PROTOCOL_VERSION
from perdure.core.links import WorkerHello


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Who this worker is and what it runs."""

    worker_id: str
    node: str
    pid: int
    pid_started: float
    session: Session | None
    slots: int
    queues: tuple[str, ...]
    activities: Mapping[str, activity.Definition]
    workflows: Mapping[str, workflow.Definition]
    apps: tuple[str, ...] = ()  # The modules, for children that import them anew.
    quarantine: bool = False  # It runs one task at a time, of those that may end it.
    build: str = ""  # What the code is called.
    restarts: bool = False  # Whether it can begin anew by itself.

    def hello(self, trouble: str = "") -> WorkerHello:
        """The first word of every connection. `trouble`: why it did not begin anew."""
        return WorkerHello(
            self.worker_id,
            self.pid,
            self.pid_started,
            self.node,
            PROTOCOL_VERSION,
            self.session,
            self.queues,
            tuple(self.activities),
            tuple(self.workflows),
            self.build,
            self.restarts,
            trouble,
        )
