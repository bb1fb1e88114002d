"""What SIGINT and SIGTERM do to a worker on its own, from its first line on.

Imports next to nothing, so that it can be the first thing that happens.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """The handlers of both signals. The first ends what is attached, a second one the process.

    Before anything is attached there is nothing to end in order: the process ends, with 0.
    """

    def __init__(self) -> None:
        self._is_told = False
        self._stop: Callable[[], None] | None = None
        for number in SIGNALS:
            signal.signal(number, self._signalled)
        # What came while this process executed itself again has waited.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    @property
    def is_told(self) -> bool:
        """Whether a signal has come."""
        return self._is_told

    @staticmethod
    def hold() -> None:
        """Have both wait for the Stopping of the program that this process executes next."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def attach(self, stop: Callable[[], None]) -> None:
        """From now on the first signal calls `stop`."""
        owner = os.getpid()

        def forked() -> None:
            # A process that an activity forks is ended by SIGTERM like any other.
            if os.getpid() != owner:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)

        os.register_at_fork(after_in_child=forked)
        self._stop = stop

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self._is_told:
            leave(0)  # What it held is given to others: the death of a process loses nothing.
        self._is_told = True
        if self._stop is None:
            leave(0)
        self._stop()


def leave(code: int) -> NoReturn:
    """End without waiting for threads that may never end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):
            continue  # Nobody reads it any more; or it was interrupted at its own flushing.
    os._exit(code)
