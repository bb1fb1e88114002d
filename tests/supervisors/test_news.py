"""The root's words are said again to whoever has not heard the newest."""

from __future__ import annotations

import pytest

from perdure.core import links
from supervisors.child_spec import Kind, processes
from supervisors.children import Child
from supervisors.news import News
from supervisors.sessions import LocalSessions
from supervisors.timers import Timers
from supervisors.tree import node_tree


class Words:
    """Stands where the root's socket does."""

    def __init__(self) -> None:
        self.said: list[tuple[str, links.Message]] = []

    def send(self, peer: str, messages) -> bool:
        self.said += [(peer, message) for message in messages]
        return True

    def take(self) -> list[tuple[str, links.Message]]:
        said, self.said = self.said, []
        return said


class Root:
    def __init__(self) -> None:
        self.words = Words()
        self.now_ms = 1_000
        self.children = {
            spec.id: Child(spec) for spec in processes(node_tree(workers=1, grace_ms=500))
        }
        self.news = News(
            self.children, self.words, LocalSessions("node.x"), Timers(), clock=lambda: self.now_ms
        )

    def hello(self, role: str, name: str) -> Child:
        child = self.children[role]
        child.incarnation, child.has_said_hello = f"{role}.{name}", True
        child.endpoint = "" if child.spec.kind is Kind.WORKER else f"ipc://{name}"
        self.news.greet(child)
        return child

    def newest(self, kind: type) -> int:
        """The number of the newest word of this kind that was said."""
        return max(message.n for _, message in self.words.take() if isinstance(message, kind))


@pytest.fixture
def root() -> Root:
    return Root()


def test_who_has_not_heard_the_newest_peers_is_told_again_and_who_has_is_not(root):
    history = root.hello("history", "1")
    worker = root.hello("worker-1", "2")
    n = root.newest(links.Peers)
    root.news.answered(worker, links.Pong(1, n))
    root.news.answered(history, links.Pong(2, n))
    assert root.words.take() == []
    root.news.answered(worker, links.Pong(3, n - 1))
    [(to, peers)] = root.words.take()
    assert (to, peers.n, [role for role, *_ in peers.peers]) == ("worker-1.2", n, ["history"])


def test_every_change_of_who_is_there_has_a_higher_number(root):
    root.hello("history", "1")
    n = root.newest(links.Peers)
    root.children["history"].reset()
    root.hello("history", "2")
    assert root.newest(links.Peers) > n


def test_who_has_not_heard_the_newest_sessions_is_told_again(root):
    keeper = root.hello("lease_keeper", "1")
    n = root.newest(links.Peers)
    session = root.news.open_session()
    sessions_n = root.newest(links.Sessions)
    root.news.answered(keeper, links.Pong(1, n, sessions_n))
    assert root.words.take() == []
    root.news.answered(keeper, links.Pong(2, n, sessions_n - 1))
    [(to, said)] = root.words.take()
    assert (to, said.live, said.n) == ("lease_keeper.1", (session.ordinal,), sessions_n)


def test_of_sessions_only_those_are_told_whom_they_concern(root):
    dlq = root.hello("dlq", "1")
    n = root.newest(links.Peers)
    root.news.open_session()
    root.news.answered(dlq, links.Pong(1, n, 0))
    assert root.words.take() == []


def test_a_ping_says_what_the_root_has_not_heard_of_the_child(root):
    child = root.children["dlq"]
    child.incarnation = "dlq.1"
    root.news.ping(child)
    root.hello("dlq", "1")
    root.words.take()
    root.news.ping(child)
    child.ready_at_ms = 5
    root.news.ping(child)
    said = [(message.is_greeted, message.is_ready) for _, message in root.words.take()]
    assert said == [(True, False), (True, True)]


def test_whom_it_has_not_heard_at_all_it_asks_for_its_first_word(root):
    child = root.children["dlq"]
    child.incarnation = "dlq.1"
    root.news.ping(child)
    assert root.words.take() == [("dlq.1", links.Ping(1, False, False))]


def test_who_is_to_end_is_told_so_again_with_what_is_left_of_its_time(root):
    child = root.hello("history", "1")
    root.words.take()
    child.stop_by_ms = 1_400
    root.news.ping(child)
    root.now_ms = 2_000
    root.news.ping(child)
    stops = [message for _, message in root.words.take() if isinstance(message, links.Stop)]
    assert stops == [links.Stop(400), links.Stop(0)]
