"""An actor's inbox: who sends much waits, and nobody else."""

from __future__ import annotations

import itertools

import pytest
import zmq

from actors import inbox as inboxes

FLOOD = 200


@pytest.fixture
def pairs():
    """Two ROUTERs that are drained, and a DEALER to each."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = []
    for name in ("inproc://flooded", "inproc://other"):
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        router.bind(name)
        dealer.connect(name)
        made.append((router, dealer))
    yield made
    context.destroy(linger=0)


def test_a_flood_on_one_socket_is_taken_in_turns_and_holds_nobody_else_up(pairs, monkeypatch):
    clock_ms = itertools.count()  # Each look at it, and each message, takes a millisecond.
    monkeypatch.setattr(inboxes, "boottime_ms", lambda: next(clock_ms))
    (flooded, sender), (quiet, other) = pairs
    taken: list[bytes] = []

    def take_slowly(frames):
        next(clock_ms)
        taken.append(frames[-1])

    inbox = inboxes.Inbox()
    inbox.add_socket(flooded, take_slowly)
    inbox.add_socket(quiet, lambda frames: taken.append(frames[-1]))
    for number in range(FLOOD):
        sender.send(b"%d" % number)
    other.send(b"other")
    inbox.get()
    assert b"other" in taken
    assert inboxes.DRAIN_LOOK <= len(taken) - 1 < 2 * inboxes.DRAIN_LOOK
    while len(taken) < FLOOD + 1:
        inbox.get()
    taken.remove(b"other")
    assert taken == [b"%d" % number for number in range(FLOOD)]
