"""Planted bugs: what really happened to others, put into the engine from here, to see that it is
found.

Nothing of this is in the engine. `planted` changes classes for as long as it lasts, and puts them
back. Each entry says what is planted and where it was taken from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from chaos.sim.disk import SimWriter
from perdure.core.lease_keeping import LeaseKeeping
from perdure.errors import InvalidArgument


class Bug(StrEnum):
    """The closed list. A value is what a plan names it by."""

    ACK_BEFORE_SYNC = "ack_before_sync"  # NATS: answered, and synced some time later.
    LEASES_NOT_REBUILT = "leases_not_rebuilt"  # Temporal #771: timers lost at a reload.


class Patches:
    """Attributes that were changed, with what they were."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Change an attribute of a class or module until `undo`."""
        known = vars(owner)
        if name in known:
            self._stack.callback(setattr, owner, name, known[name])
        else:
            self._stack.callback(delattr, owner, name)
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back."""
        self._stack.close()


@contextlib.contextmanager
def planted(bug: str) -> Iterator[None]:
    """The engine has this bug for as long as it lasts; "" has none. InvalidArgument otherwise."""
    if not bug:
        yield
        return
    if bug not in _PLANTS:
        raise InvalidArgument(f"there is no bug {bug!r}; there are: {', '.join(_PLANTS)}")
    patches = Patches()
    try:
        _PLANTS[bug](patches)
        yield
    finally:
        patches.undo()


def _ack_before_sync(patches: Patches) -> None:
    def commit(self: SimWriter, change: Any) -> None:
        fault = self._world.count("commit", self._process.role)
        if fault is not None and fault.action in ("unsynced_lost", "eio_lost", "full"):
            # It has answered, and dies with the commit in memory only.
            self._process.loop.after(200, self._process.end, -9)
            return
        self._inner.commit(change)
        self._world.committed(self._disk.took(change))
        self._process.loop.after(5_000, setattr, self._disk, "synced", change.n)

    patches.set(SimWriter, "commit", commit)


def _leases_not_rebuilt(patches: Patches) -> None:
    def load(self: LeaseKeeping, executions: Any, now_ms: int) -> None:
        self.table.load([], now_ms)

    patches.set(LeaseKeeping, "load", load)


_PLANTS: dict[str, Callable[[Patches], None]] = {
    Bug.ACK_BEFORE_SYNC: _ack_before_sync,
    Bug.LEASES_NOT_REBUILT: _leases_not_rebuilt,
}
