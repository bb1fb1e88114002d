"""The arithmetic of restarts: which deaths are a crash loop, how long to wait, when to give up.

Pure.

Only a death before readiness or within `SETTLED_MS` after it counts. A later one says nothing about
the start of the child: it is restarted at once, so that neither drills nor a user's poison bring
the node down. Neither does a SIGKILL, which no child does to itself by a mistake in its start: it
never makes a supervisor give up, and only where a child is killed before readiness again and again
do its restarts wait, shortly, so that nothing spins.
"""

from __future__ import annotations

from dataclasses import dataclass

SETTLED_MS = 1_000
DELAY_FIRST_MS = 50
DELAY_MAX_MS = 5_000
KILLED_DELAY_MAX_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Intensity:
    """At most `restarts_max` crash-loop deaths in any `period_ms`; one more and the supervisor
    gives up.
    """

    restarts_max: int = 5
    period_ms: int = 10_000

    def record(self, earlier: tuple[int, ...], now_ms: int) -> tuple[tuple[int, ...], bool]:
        """The deaths that still count, this one included, and whether they are too many."""
        window = (*(at for at in earlier if now_ms - at <= self.period_ms), now_ms)
        return window, len(window) > self.restarts_max


def is_crash_loop(*, ready_at_ms: int | None, died_at_ms: int) -> bool:
    """Whether a death that was no SIGKILL counts. `ready_at_ms` None: the child was never ready."""
    return ready_at_ms is None or died_at_ms - ready_at_ms <= SETTLED_MS


def is_kill_loop(*, ready_at_ms: int | None, again_unready: bool) -> bool:
    """Whether the restart after a SIGKILL waits: the child's life before this one (`again_unready`)
    had ended before readiness too.
    """
    return ready_at_ms is None and again_unready


def delay_ms(crashes: int, max_ms: int = DELAY_MAX_MS) -> int:
    """How long to wait before the restart after `crashes` counted deaths in a row: 0, 50, 100, 200
    ... `max_ms`.
    """
    if crashes <= 1:
        return 0
    doublings = min(crashes - 2, 16)
    return min(max_ms, DELAY_FIRST_MS << doublings)
