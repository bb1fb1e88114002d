"""What the root of a node and its children say to each other: who is there, and who lives.

Any of it may get lost, come twice or late. The root's Ping says how far it has heard the child, the
child's Pong how far it has heard the root; what lacks is said again.
"""

from __future__ import annotations

import msgspec

from perdure.core.ids import Session


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of a batch."""


class ChildHello(Message, frozen=True, tag=70):
    """A child's first word to the root, when it listens at `endpoint` (empty for workers)."""

    role: str
    incarnation: str
    pid: int
    endpoint: str


class ChildReady(Message, frozen=True, tag=71):
    """The child serves.

    For a worker: its application (`build`) is loaded and its session known to the gateway.
    """

    role: str
    incarnation: str
    build: str = ""


class ChildFailed(Message, frozen=True, tag=72):
    """The child can't begin, for a reason that a restart would not change (bad application, bad
    store). One line.
    """

    role: str
    incarnation: str
    exit_code: int
    message: str


class Peers(Message, frozen=True, tag=73):
    """Who is there now: (role, incarnation, endpoint), sent whole on every change, and again to
    whoever lacks change number `n`. One of a lower number than the last is outdated.
    """

    peers: tuple[tuple[str, str, str], ...]
    n: int = 0


class Ping(Message, frozen=True, tag=74):
    """Are you there? Answered with Pong of the same number.

    Whose ChildHello has not been heard (`is_greeted`), or whose ChildReady (`is_ready`), says it
    again, if it has said it.
    """

    n: int
    is_greeted: bool = True
    is_ready: bool = True


class Pong(Message, frozen=True, tag=75):
    """I am, and the newest that I have heard are Peers and Sessions of these numbers."""

    n: int
    peers: int = 0
    sessions: int = 0


class SessionDead(Message, frozen=True, tag=76):
    """Root to gateway: this local worker is dead; say SessionDone behind the last message that it
    had sent.
    """

    session: Session


class SessionDone(Message, frozen=True, tag=77):
    """Gateway to root: nothing more will come from that session."""

    session: Session


class Sessions(Message, frozen=True, tag=78):
    """A source's full set of live sessions: a lease of this source up to `highest` that is not in
    it has ended.

    `died`: (ordinal, CLOCK_BOOTTIME in ms) of those that ended lately and are not in it, as their
    end was seen: whatever was given to them after that has reached nobody. `n`: the root's number
    of the change; of one that comes late, its receivers keep nothing.
    """

    source: str
    highest: int
    live: tuple[int, ...]
    died: tuple[tuple[int, int], ...] = ()
    n: int = 0


class Stop(Message, frozen=True, tag=79):
    """End in order within `grace_ms`. Said again, with what is left of it, until it is done."""

    grace_ms: int


class RemoteWorkers(Message, frozen=True, tag=80):
    """Gateway to root: the ids of the workers from elsewhere, whole on every change, for `ps`."""

    worker_ids: tuple[str, ...]


class Quarantine(Message, frozen=True, tag=81):
    """Scheduler to root: how many workers in quarantine there should be, whole, again and again.

    `release`: ordinals of the sessions of those that get nothing more, and may be stopped.
    """

    wanted: int
    release: tuple[int, ...] = ()


class Outboxes(Message, frozen=True, tag=82):
    """Outbox to root, for `ps`: (where, "running" or "waiting", why) of each, whole on every
    change.
    """

    states: tuple[tuple[str, str, str], ...]


FromRoot = Peers | Ping | SessionDead | Sessions | Stop
ToRoot = (
    ChildHello
    | ChildReady
    | ChildFailed
    | Pong
    | SessionDone
    | RemoteWorkers
    | Quarantine
    | Outboxes
)
