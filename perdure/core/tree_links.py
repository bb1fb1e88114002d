"""What the root of a node and its children say to each other: who is there, and who lives."""

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

    For a worker: its application is loaded and its session known to the gateway.
    """

    role: str
    incarnation: str


class ChildFailed(Message, frozen=True, tag=72):
    """The child can't begin, for a reason that a restart would not change (bad application, bad
    store). One line.
    """

    role: str
    incarnation: str
    exit_code: int
    message: str


class Peers(Message, frozen=True, tag=73):
    """Who is there now: (role, incarnation, endpoint), sent whole on every change."""

    peers: tuple[tuple[str, str, str], ...]


class Ping(Message, frozen=True, tag=74):
    """Are you there? Answered with Pong of the same number."""

    n: int


class Pong(Message, frozen=True, tag=75):
    """I am."""

    n: int


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
    end was seen: whatever was given to them after that has reached nobody.
    """

    source: str
    highest: int
    live: tuple[int, ...]
    died: tuple[tuple[int, int], ...] = ()


class Stop(Message, frozen=True, tag=79):
    """End in order within `grace_ms`."""

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


FromRoot = Peers | Ping | SessionDead | Sessions | Stop
ToRoot = ChildHello | ChildReady | ChildFailed | Pong | SessionDone | RemoteWorkers | Quarantine
