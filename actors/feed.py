"""Who follows the log, and what each was sent of it and when.

A commit is sent at once, but to the patient: they have it within PATIENT_MS, with what came up
meanwhile, for to wake a process costs more than all that it would do with most commits. So has the
scheduler where a commit leaves it nothing to give out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perdure.core.limits import PATIENT_MS
from perdure.core.links import SCHEDULER, Feed, Hello, Lent, Message, Newest

Send = Callable[[str, Message], None]


class _Follower:
    __slots__ = ("hello", "late", "sent")

    def __init__(self, hello: Hello, n: int) -> None:
        self.hello = hello
        self.sent = n  # The newest commit that it was sent, or will be with `late`.
        self.late: list[Feed | Lent] = []


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

    def publish(
        self,
        n: int,
        body: bytes,
        now_ms: int,
        *,
        dead_letters: bool,
        may_wait: bool = False,
        lent: Iterable[Lent] = (),
    ) -> None:
        """Commit `n`. `dead_letters`: it may concern them; `may_wait`: the scheduler need not
        hear of it at once, which behind it hears what was sent (`lent`).
        """
        for name, follower in self._known.items():
            hello = follower.hello
            if hello.only_dead_letters and not dead_letters:
                continue
            follower.late.append(Feed(follower.sent, n, body))
            follower.sent = n
            waits = hello.patient
            if hello.role == SCHEDULER:
                follower.late += lent
                waits = waits or may_wait
            if not waits:
                self._let_go(name, follower)
            elif self.due_ms is None:
                self.due_ms = now_ms + PATIENT_MS

    def tell(self, name: str, message: Lent) -> None:
        """Something beside the log, behind all that this follower was to hear before."""
        follower = self._known.get(name)
        if follower is not None:
            follower.late.append(message)
            self._let_go(name, follower)

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
