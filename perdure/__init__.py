"""Durable execution: workflows of retried activities that survive the death of any process.

This package is the library: what users import and type. It runs user code, so nothing in it, the
command line apart, imports the application that serves it (``actors``, ``supervisors``, ``chaos``).
"""

from typing import TYPE_CHECKING, Any

from perdure import activity, errors, workflow
from perdure.failures import Failure
from perdure.policy import RetryPolicy, ms

if TYPE_CHECKING:
    from perdure.client import Client

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Failure",
    "RetryPolicy",
    "activity",
    "errors",
    "ms",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """The client is imported at its first use: code that only defines things needs no sockets."""
    if name == "Client":
        from perdure.client import Client

        return Client
    raise AttributeError(f"module 'perdure' has no attribute {name!r}")
