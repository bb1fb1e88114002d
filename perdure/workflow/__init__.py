"""Workflows: async functions that survive the death of any process, by being replayed.

A workflow function runs on a deterministic event loop. asyncio.gather, sleep, wait, wait_for,
timeout, TaskGroup and as_completed work there and are durable; time, chance, threads, files and
sockets are not deterministic and raise NonDeterminism: use what this module has, or an activity.
"""

from __future__ import annotations

from perdure.workflow.activities import ActivityHandle, execute_activity, start_activity
from perdure.workflow.definitions import Definition, define, defined, definition_of
from perdure.workflow.failing import ActivityFailed, Cancelled, NonDeterminism
from perdure.workflow.here import info, now_ms, random, sleep_ms, uuid4
from perdure.workflow.runtime import Info, Runtime

__all__ = [
    "ActivityFailed",
    "ActivityHandle",
    "Cancelled",
    "Definition",
    "Info",
    "NonDeterminism",
    "Runtime",
    "define",
    "defined",
    "definition_of",
    "execute_activity",
    "info",
    "now_ms",
    "random",
    "sleep_ms",
    "start_activity",
    "uuid4",
]
