"""When each follower of the log is sent what: at once, or soon and together."""

from __future__ import annotations

import pytest

from actors.feed import Followers
from perdure.core.ids import Session
from perdure.core.limits import PATIENT_MS
from perdure.core.links import Feed, Hello, Lent, Newest

SCHEDULER, KEEPER, DLQ = "scheduler.1", "lease_keeper.1", "dlq.1"


class Around:
    """Followers of three kinds, and what they were sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, object]] = []
        self.followers = Followers(lambda to, message: self.sent.append((to, message)))
        self.greet(SCHEDULER)
        self.greet(KEEPER, patient=True)
        self.greet(DLQ, only_dead_letters=True)

    def greet(self, name: str, n: int = 0, **flags: bool) -> None:
        role = name.split(".")[0]
        self.followers.greet(name, Hello(role, name, "node.1", 1, follow=True, **flags), n)

    def commit(self, n: int, now_ms: int = 0, *, dead_letters: bool = False) -> None:
        self.followers.publish(n, b"", now_ms, dead_letters=dead_letters)

    def heard(self, name: str) -> list[object]:
        found = [message for to, message in self.sent if to == name]
        self.sent = [one for one in self.sent if one[0] != name]
        return found


@pytest.fixture
def around() -> Around:
    return Around()


def test_a_commit_is_sent_at_once(around):
    around.commit(1)
    assert around.heard(SCHEDULER) == [Feed(0, 1, b"")]


def test_the_patient_are_never_woken_for_one_commit(around):
    around.commit(1, now_ms=5)
    assert around.heard(KEEPER) == []
    assert around.followers.due_ms == 5 + PATIENT_MS
    around.commit(2, now_ms=6)
    around.followers.send_late()
    assert around.heard(KEEPER) == [Feed(0, 1, b""), Feed(1, 2, b"")]
    assert around.followers.due_ms is None


def test_dead_letters_are_told_at_once_and_nothing_else(around):
    around.commit(1)
    around.commit(2, dead_letters=True)
    assert around.heard(DLQ) == [Feed(0, 2, b"")]


def test_the_beat_names_what_was_sent_and_comes_behind_it(around):
    around.commit(1)
    around.followers.beat(1, 70)
    assert around.heard(KEEPER) == [Feed(0, 1, b""), Newest(1, 1, 70)]
    assert around.heard(DLQ) == [Newest(1, 0, 70)]


def test_a_new_incarnation_takes_the_place_of_the_old_one(around):
    around.commit(1)
    around.greet("lease_keeper.2", n=1, patient=True)
    around.commit(2)
    around.followers.send_late()
    assert around.heard(KEEPER) == []
    assert around.heard("lease_keeper.2") == [Feed(1, 2, b"")]


def test_the_scheduler_hears_late_what_may_wait_and_then_all_at_once(around):
    sent = Lent(Session("node.1", 1), 1, 5, ("w",))
    around.followers.publish(1, b"", 5, dead_letters=False, may_wait=True, lent=[sent])
    assert around.heard(SCHEDULER) == []
    assert around.followers.due_ms == 5 + PATIENT_MS
    around.commit(2)
    assert around.heard(SCHEDULER) == [Feed(0, 1, b""), sent, Feed(1, 2, b"")]


def test_what_is_told_beside_the_log_comes_behind_it(around):
    around.followers.publish(1, b"", 5, dead_letters=False, may_wait=True)
    back = Lent(Session("node.1", 1), 1, 1)
    around.followers.tell(SCHEDULER, back)
    assert around.heard(SCHEDULER) == [Feed(0, 1, b""), back]
