"""What clients' commands were answered lately: the same message, come again, gets the same answer.

A gateway sends a command again until it hears of its answer. Judged anew, one that was refused
could be carried out after its client was told that it was not; one that bears no request id, twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from perdure.core.links import Answer, Ask

# More than are ever under way at once between a message and its repeat.
KEPT_MAX = 10_000


class Answered:
    """The newest answers to clients. All answers, workers' too, are brought on their way by `send`.

    `head` is empty where a client asks through the gateway that sent it.
    """

    def __init__(self, send: Callable[[str, Answer, bytes], None], most: int = KEPT_MAX) -> None:
        self._send = send
        self._most = most
        # By the gateway's incarnation and its number; None while it is being judged.
        self._known: OrderedDict[tuple[str, int], Answer | None] = OrderedDict()

    def is_new(self, sender: str, ask: Ask) -> bool:
        """Whether this gateway's message is to be judged; one that was is answered again."""
        which, known = (sender, ask.n), self._known
        if which not in known:
            known[which] = None
            if len(known) > self._most:
                known.popitem(last=False)
            return True
        answer = known[which]
        if answer is not None:
            self._send(sender, answer, b"")
        return False

    def say(self, sender: str, message: Answer, head: bytes) -> None:
        """Send this answer, and keep it."""
        self._send(sender, message, head)
        which = (sender, message.n)
        if not head and which in self._known:
            self._known[which] = message
