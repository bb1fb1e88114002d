"""A clock that a test can stop, for an actor that otherwise runs on real sockets."""

from __future__ import annotations

from actors.zmq_host import ZmqHost
from perdure import clock


class StoppableHost(ZmqHost):
    """While its clock stands, nothing is sent again or given up, however slow the machine is."""

    def __init__(self) -> None:
        super().__init__()
        self._stands_at_ms: int | None = None

    def boottime_ms(self) -> int:
        """The kernel's boot time, or that at which the clock was stopped."""
        return clock.boottime_ms() if self._stands_at_ms is None else self._stands_at_ms

    def stop_clock(self) -> None:
        """No time passes from now on, but by `pass_ms`."""
        self._stands_at_ms = clock.boottime_ms()

    def start_clock(self) -> None:
        """Time passes again, from what the kernel says now."""
        self._stands_at_ms = None

    def pass_ms(self, ms: int) -> None:
        """Put the clock, which stands, forward."""
        assert self._stands_at_ms is not None
        self._stands_at_ms += ms
