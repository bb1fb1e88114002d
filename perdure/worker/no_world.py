"""What an event loop offers and a workflow can't have: threads, sockets, processes, signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn


class NoWorld(asyncio.AbstractEventLoop):
    """An event loop that answers every call for the world outside with what to do instead."""

    def violate(self, message: str) -> NoReturn:
        """Stop the code that asked."""
        raise NotImplementedError(message)


def _refused(method: str, advice: str) -> Callable[..., NoReturn]:
    def refuse(self: NoWorld, *args: object, **kwargs: object) -> NoReturn:
        self.violate(f"loop.{method} can't be used in a workflow: {advice}")

    refuse.__name__ = method
    refuse.__doc__ = f"Raises NonDeterminism: {advice}."
    return refuse


_REFUSED = {
    "threads (asyncio.to_thread too) are not deterministic: do the work in an activity": (
        "run_in_executor",
        "set_default_executor",
        "shutdown_default_executor",
        "call_soon_threadsafe",
    ),
    "sockets are not deterministic: do it in an activity": (
        "add_reader",
        "remove_reader",
        "add_writer",
        "remove_writer",
        "getaddrinfo",
        "getnameinfo",
        "create_connection",
        "create_server",
        "create_unix_connection",
        "create_unix_server",
        "connect_accepted_socket",
        "create_datagram_endpoint",
        "start_tls",
        "sendfile",
        "sock_recv",
        "sock_recv_into",
        "sock_recvfrom",
        "sock_recvfrom_into",
        "sock_sendall",
        "sock_sendto",
        "sock_connect",
        "sock_accept",
        "sock_sendfile",
    ),
    "processes and pipes are not deterministic: do it in an activity": (
        "connect_read_pipe",
        "connect_write_pipe",
        "subprocess_shell",
        "subprocess_exec",
    ),
    "signals are the worker's": ("add_signal_handler", "remove_signal_handler"),
    "the worker runs it": (
        "run_forever",
        "run_until_complete",
        "stop",
        "close",
        "shutdown_asyncgens",
    ),
    "it would change how the workflow runs": (
        "set_task_factory",
        "set_exception_handler",
        "set_debug",
    ),
}
for _advice, _methods in _REFUSED.items():
    for _method in _methods:
        setattr(NoWorld, _method, _refused(_method, _advice))
