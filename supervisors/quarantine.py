"""Which workers in quarantine there are to be: what the scheduler asks for, by name. Pure.

The scheduler says how many it wants and which sessions it is done with, again and again; one that
is wanted no more goes only when the scheduler has let go of it, or when it ends by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.links import Quarantine


class QuarantinePool:
    """`names` are all that there can be, in the order in which they are taken."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._asked = 0
        self._wanted: set[str] = set()

    @property
    def wanted(self) -> frozenset[str]:
        """Those that shall run now."""
        return frozenset(self._wanted)

    def heard(self, message: Quarantine, sessions: Mapping[str, int]) -> None:
        """What the scheduler says now; `sessions`: the ordinals of those that run, by name."""
        self._asked = message.wanted
        released = set(message.release)
        self._wanted -= {name for name in self._wanted if sessions.get(name) in released}
        for name in self._names:
            if len(self._wanted) >= self._asked:
                return
            if sessions.get(name) not in released:
                self._wanted.add(name)

    def ended(self, name: str) -> bool:
        """One of them has ended; True where that makes it unwanted."""
        if name not in self._wanted or len(self._wanted) <= self._asked:
            return False
        self._wanted.discard(name)
        return True
