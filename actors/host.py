"""What an actor has of the machine it runs on: time, chance, the store, sockets, its own end.

The actors decide; whatever implements `Host` does. `ZmqHost` is a process of a node; the simulator
has one of its own, on which the same actors run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol

from actors.inbox import Frames, Inbox
from perdure.core.boot import Boot
from perdure.store.protocol import Reader, Writer

Take = Callable[[Frames], None]


class Door(Protocol):
    """A further socket that others connect to, and that the inbox drains."""

    def has_room(self, identity: bytes, size: int) -> bool:
        """Whether so many bytes may go to `identity` now: False where it does not read."""
        ...

    def send(self, identity: bytes, body: bytes, *, is_delimited: bool = False) -> bool:
        """Send to `identity`; False where that one is gone or full. Never waits."""
        ...

    def waiting(self) -> Iterator[Frames]:
        """What lies in the socket now, taken from it one by one."""
        ...


class Host(Protocol):
    """One life of one process, as its actor sees it."""

    def boottime_ms(self) -> int:
        """Milliseconds since the machine booted."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch by the wall clock, which may jump."""
        ...

    def boot_id(self) -> str:
        """A name of this boot of the machine."""
        ...

    def pid(self) -> int:
        """The number of this process."""
        ...

    def draws(self, seed: int | None) -> Callable[[], float]:
        """A source of numbers in [0, 1)."""
        ...

    def writer(self, data_dir: str) -> Writer:
        """A writer of the store. Raises StoreError."""
        ...

    def reader(self, data_dir: str) -> Reader:
        """A reader of the store. Raises StoreError."""
        ...

    def open(self, boot: Boot, inbox: Inbox, take: Take) -> None:
        """Bind the actor's own socket, connect it to the root, have `inbox` drain it."""
        ...

    def connect(self, incarnation: str, endpoint: str) -> None:
        """Connect to the inbox of another actor."""
        ...

    def disconnect(self, endpoint: str) -> None:
        """No longer: the other end may have gone already."""
        ...

    def transmit(self, address: bytes, head: bytes, body: bytes) -> bool:
        """Send one frame; False where the receiver is gone or full. Never waits."""
        ...

    def public_door(self, endpoint: str, inbox: Inbox, take: Take) -> Door:
        """Listen for clients there. Raises gateway_sockets.CannotBind."""
        ...

    def workers_door(self, endpoint: str, inbox: Inbox, take: Take) -> Door:
        """Listen for workers there. Raises gateway_sockets.CannotBind."""
        ...

    def watch(
        self, pid: int, started: float, inbox: Inbox, died: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Call `died` when that process of this machine ends; what is returned ends the watch.

        None where there is no such process whose birth (perdure.births) is `started`.
        """
        ...

    def close(self, linger_ms: int) -> None:
        """Let what was sent last leave, for at most so long, and close all sockets."""
        ...

    def exit(self, code: int) -> NoReturn:
        """End this process at once."""
        ...
