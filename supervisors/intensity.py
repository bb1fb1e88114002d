"""The arithmetic of restarts: which deaths are a crash loop, how long to wait, when to give up.

Pure.

Only a death before readiness or within `SETTLED_MS` after it counts. A later one says nothing about
the start of the child: it is restarted at once, so that neither drills nor a user's poison bring
the node down. Neither does a SIGKILL, which no child does to itself by a mistake in its start:
somebody who kills faster than children become ready must not take the node down by luck.
"""

from __future__ import annotations

from dataclasses import dataclass

SETTLED_MS = 1_000
DELAY_FIRST_MS = 50
DELAY_MAX_MS = 5_000


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


def is_crash_loop(
    *, ready_at_ms: int | None, died_at_ms: int, was_killed: bool, again_unready: bool
) -> bool:
    """Whether a death counts. `ready_at_ms` None: the child never became ready.

    One that `was_killed` by SIGKILL did not crash by itself: it counts only where the child's life
    before this one had ended before readiness too (`again_unready`).
    """
    if was_killed:
        return ready_at_ms is None and again_unready
    return ready_at_ms is None or died_at_ms - ready_at_ms <= SETTLED_MS


def delay_ms(crashes: int) -> int:
    """How long to wait before the restart after `crashes` counted deaths in a row: 0, 50, 100, 200
    ... 5 000 ms.
    """
    if crashes <= 1:
        return 0
    doublings = min(crashes - 2, 16)
    return min(DELAY_MAX_MS, DELAY_FIRST_MS << doublings)
