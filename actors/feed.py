"""Who follows the log, and what each was sent of it and when.

A commit is sent at once, but to the patient: they have it within PATIENT_MS, with what came up
meanwhile, for to wake a process costs more than all that it would do with most commits. (To let the
scheduler wait where nothing waits for a worker was tried: what it then does at once with the next
start makes that slower than what was saved.)
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.core.limits import PATIENT_MS
from perdure.core.links import Feed, Hello, Message, Newest

Send = Callable[[str, Message], None]


class _Follower:
    __slots__ = ("hello", "late", "sent")

    def __init__(self, hello: Hello, n: int) -> None:
        self.hello = hello
        self.sent = n  # The newest commit that it was sent, or will be with `late`.
        self.late: list[Feed] = []


class Followers:
    """Each has all commits that concern it, in order, by its routing id. `send` is a mailbox's."""

    def __init__(self, send: Send) -> None:
        self.due_ms: int | None = None  # When `send_late` has something to do.
        self._send = send
        self._known: dict[str, _Follower] = {}

    def greet(self, sender: str, hello: Hello, n: int) -> None:
        """`sender` takes the place of all others of its role; it may read the log up to `n`."""
        role = hello.role + "."
        for known in [known for known in self._known if known.startswith(role)]:
            del self._known[known]
        if hello.follow:
            self._known[sender] = _Follower(hello, n)

    def publish(self, n: int, body: bytes, now_ms: int, *, dead_letters: bool) -> None:
        """Commit `n`. `dead_letters`: it may concern them."""
        for name, follower in self._known.items():
            hello = follower.hello
            if hello.only_dead_letters and not dead_letters:
                continue
            follower.late.append(Feed(follower.sent, n, body))
            follower.sent = n
            if not hello.patient:
                self._let_go(name, follower)
            elif self.due_ms is None:
                self.due_ms = now_ms + PATIENT_MS

    def send_late(self) -> None:
        """Whoever waited has waited long enough."""
        self.due_ms = None
        for name, follower in self._known.items():
            self._let_go(name, follower)

    def beat(self, n: int, stall_ms: int) -> None:
        """Repeat the newest number, so that a lost tail is noticed."""
        self.send_late()
        for name, follower in self._known.items():
            self._send(name, Newest(n, follower.sent, stall_ms))

    def _let_go(self, name: str, follower: _Follower) -> None:
        for feed in follower.late:
            self._send(name, feed)
        follower.late.clear()
