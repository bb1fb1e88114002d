"""Workflows: async functions that survive the death of any process, by being replayed.

A workflow function runs on a deterministic event loop. asyncio.gather, sleep, wait, wait_for,
timeout, TaskGroup and as_completed work there and are durable; time, chance, threads, files and
sockets are not deterministic and raise NonDeterminism: use what this module has, or an activity.
"""

from __future__ import annotations

from perdure.workflow.activities import ActivityHandle, execute_activity, start_activity
from perdure.workflow.children import (
    ChildHandle,
    ExternalHandle,
    Sent,
    earlier_children,
    execute_child,
    external,
    start_child,
)
from perdure.workflow.definitions import Definition, define, defined, definition_of
from perdure.workflow.failing import (
    ActivityFailed,
    Cancelled,
    ChildFailed,
    ExternalFailed,
    NonDeterminism,
)
from perdure.workflow.here import (
    continue_as_new,
    info,
    now_ms,
    patched,
    random,
    set_search_attributes,
    side_effect,
    sleep_ms,
    uuid4,
    wait_condition,
)
from perdure.workflow.messages import (
    Box,
    Update,
    all_handlers_finished,
    query,
    receive,
    signal,
    update,
)
from perdure.workflow.runtime import Info, ParentInfo, Runtime
from perdure.workflow.speaking import logger

__all__ = [
    "ActivityFailed",
    "ActivityHandle",
    "Box",
    "Cancelled",
    "ChildFailed",
    "ChildHandle",
    "Definition",
    "ExternalFailed",
    "ExternalHandle",
    "Info",
    "NonDeterminism",
    "ParentInfo",
    "Runtime",
    "Sent",
    "Update",
    "all_handlers_finished",
    "continue_as_new",
    "define",
    "defined",
    "definition_of",
    "earlier_children",
    "execute_activity",
    "execute_child",
    "external",
    "info",
    "logger",
    "now_ms",
    "patched",
    "query",
    "random",
    "receive",
    "set_search_attributes",
    "side_effect",
    "signal",
    "sleep_ms",
    "start_activity",
    "start_child",
    "update",
    "uuid4",
    "wait_condition",
]
