"""Signals as something to wait for: a descriptor that becomes readable when one has come."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any


def _noted(signum: int, frame: FrameType | None) -> None:
    """Nothing: the number lies in the wake-up pipe already."""


class Signals:
    """SIGINT, SIGTERM and SIGHUP of a process, until `close` gives them back. Main thread only."""

    def __init__(self) -> None:
        self.fd, self._written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup_before = signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
        self._before: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup
            self._before[number] = signal.signal(number, _noted)

    def take(self) -> int:
        """How many of them have come since the last call."""
        try:
            came = os.read(self.fd, 256)
        except BlockingIOError:
            return 0
        return sum(number in self._before for number in came)

    def close(self) -> None:
        """Back to what was before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self.fd)
        os.close(self._written)
