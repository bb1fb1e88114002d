"""Durable execution: workflows of retried activities that survive the death of any process.

This package is the library: what users import and type. It runs user code, so nothing in it, the
command line apart, imports the application that serves it (``actors``, ``supervisors``, ``chaos``).
Its names are imported at their first use: the command line's help needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure import activity, effects, errors, subprocess, workflow
    from perdure.async_client import AsyncClient
    from perdure.client import Client
    from perdure.failures import Failure
    from perdure.policy import RetryPolicy, ms

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "Failure",
    "RetryPolicy",
    "activity",
    "effects",
    "errors",
    "ms",
    "outbox",
    "subprocess",
    "workflow",
]

_HOMES = {
    "AsyncClient": "perdure.async_client",
    "Client": "perdure.client",
    "Failure": "perdure.failures",
    "RetryPolicy": "perdure.policy",
    "ms": "perdure.policy",
}
_MODULES = frozenset({"activity", "effects", "errors", "outbox", "subprocess", "workflow"})


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name in _MODULES:
        return import_module(f"perdure.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found
