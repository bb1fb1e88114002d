"""A client's requests that have no answer yet: what to send, what to send again, whose answer came.

Pure: it is told the time (seconds of any clock that never jumps), and sends nothing. `Link` gives
it a socket and a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from perdure import wire
from perdure.errors import PerdureError
from perdure.wire import AnswerBody

RESEND_FIRST_S = 1.0
RESEND_MAX_S = 30.0
RETRY_FIRST_S = 0.01
RETRY_MAX_S = 0.5


class Waiter(Protocol):
    """Who waits for the answers; `remaining` counts those that have not come."""

    remaining: int


W = TypeVar("W", bound=Waiter)


class Exchange(Generic[W]):
    """One request under way."""

    __slots__ = ("answer", "body", "resend_at", "wait_s", "waiter")

    def __init__(self, body: bytes, waiter: W) -> None:
        self.body = body
        self.waiter = waiter
        self.answer: AnswerBody | None = None
        self.wait_s = RESEND_FIRST_S
        self.resend_at = 0.0  # 0: not sent yet.


class Outstanding(Generic[W]):
    """All requests without an answer, by number. Each is sent again, whole, after doubling waits
    and on every new connection.
    """

    def __init__(self) -> None:
        self.pending: dict[int, Exchange[W]] = {}
        self._outbox: deque[int] = deque()

    def add(self, exchanges: dict[int, Exchange[W]]) -> None:
        """These are to be sent."""
        self.pending.update(exchanges)
        self._outbox.extend(exchanges)

    def forget(self, numbers: dict[int, Exchange[W]]) -> None:
        """Nobody waits for these any more."""
        for number in numbers:
            self.pending.pop(number, None)

    def look(self, now: float) -> None:
        """Have what has waited long enough sent again."""
        for number, exchange in self.pending.items():
            if exchange.resend_at and now >= exchange.resend_at:
                exchange.resend_at = 0.0
                self._outbox.append(number)

    def send_all_again(self) -> None:
        """There is a new connection: of what was sent before nobody knows how far it came."""
        self._outbox.clear()
        self._outbox.extend(self.pending)

    def flush(self, send: Callable[[bytes], bool], now: float) -> bool:
        """`send` what is to be sent until it says False; True when something had to stay."""
        outbox, pending = self._outbox, self.pending
        while outbox:
            number = outbox[0]
            exchange = pending.get(number)
            if exchange is not None:
                if not send(exchange.body):
                    return True
                exchange.resend_at = now + exchange.wait_s
                exchange.wait_s = min(exchange.wait_s * 2, RESEND_MAX_S)
            outbox.popleft()
        return False

    def deliver(self, answer: AnswerBody) -> W | None:
        """Keep an answer; who waited for it, or None: it was answered before, or nobody waits."""
        exchange = self.pending.pop(answer.id or 0, None)
        if exchange is None:
            return None
        exchange.answer = answer
        exchange.waiter.remaining -= 1
        return exchange.waiter


class Round:
    """Calls that are carried out together, again where the outcome is unknown.

    `requests` says what to send; `take` what came of it, and after which pause to go on. A call has
    another number each time it is sent anew, and its arguments, request ids among them, never
    change.
    """

    def __init__(self, calls: Sequence[wire.Args], draw: Callable[[], float]) -> None:
        self.outcomes: list[Any | PerdureError] = [None] * len(calls)
        self._calls = calls
        self._draw = draw
        self._left = list(range(len(calls)))
        self._pause_s = RETRY_FIRST_S

    def requests(self, next_id: Callable[[], int]) -> list[tuple[int, bytes]]:
        """(number, body) of what is to be asked now."""
        numbers = [next_id() for _ in self._left]
        return [
            (number, wire.write_request(number, self._calls[at]))
            for number, at in zip(numbers, self._left, strict=True)
        ]

    def take(
        self,
        answers: Sequence[AnswerBody | None],
        nothing_came: Callable[[], PerdureError],
        decode: Callable[[Any], Any],
    ) -> float | None:
        """Note the answers to `requests`; the pause in seconds before the next, None: all is known.

        `nothing_came` makes the error of a call that nobody answered, unless an earlier answer to
        it said more.
        """
        again = []
        for at, answer in zip(self._left, answers, strict=True):
            if answer is None:
                if not isinstance(self.outcomes[at], PerdureError):
                    self.outcomes[at] = nothing_came()
            elif answer.error is None:
                self.outcomes[at] = decode(answer.ok)
            else:
                self.outcomes[at] = wire.to_error(answer.error)
                if answer.error.code in wire.UNKNOWN_OUTCOME:
                    again.append(at)
        if not again:
            return None
        self._left = again
        # Jitter, so that many clients do not come back together.
        drawn_s = self._pause_s * (0.5 + self._draw() / 2)
        self._pause_s = min(self._pause_s * 2, RETRY_MAX_S)
        return drawn_s
