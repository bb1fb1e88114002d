"""Simulated programs outside of the node: they use the real client's retries and resending.

A call is what `perdure.Client` would do in a thread of its own: the same `Round`, the same
`Outstanding`, the same waits. What each call heard goes into a history for the auditor.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from chaos.auditor import Operation
from chaos.sim.host import Dealer
from chaos.sim.loop import MS_US, SECOND_US
from chaos.sim.process import Frames, Process
from perdure import wire
from perdure.commanding import command_of
from perdure.core.commands import StartWorkflow
from perdure.errors import PerdureError, Unavailable
from perdure.outstanding import Exchange, Outstanding, Round
from perdure.wire import AnswerBody, read_answer

if TYPE_CHECKING:
    from chaos.sim.world import World

_decode = msgspec.msgpack.Decoder().decode
Outcome = Any  # The plain `ok`, or a PerdureError.
LATE_MS = 1_000  # A client is told no later than this after its time.
Done = Callable[[Outcome], None]


class _Call:
    """One call of a client, from its first request to what the caller is told."""

    __slots__ = ("_client", "_deadline_us", "_exchange", "_round", "args", "done", "n", "number")

    remaining: int

    def __init__(self, client: ClientProcess, args: wire.Args, wait_ms: int, done: Done) -> None:
        self._client = client
        self._deadline_us = client.here_us() + wait_ms * MS_US
        self._round = Round([args], client.draw)
        self._exchange: Exchange[_Waiter] | None = None
        self.args = args
        self.done = done
        self.number = 0
        self.n = 0

    def ask(self) -> None:
        """Send it, anew."""
        client = self._client
        [(number, body)] = self._round.requests(client.next_number)
        self.number = number
        self._exchange = Exchange(body, _Waiter(self))
        client.open.add({number: self._exchange})
        client.at(self._deadline_us, self._time_is_up, number)

    def answered(self) -> None:
        """Its answer has come."""
        assert self._exchange is not None
        answer = self._exchange.answer
        if answer is not None and answer.n > self.n:
            self.n = answer.n
        self._take(answer)

    def _time_is_up(self, number: int) -> None:
        if number == self.number and number in self._client.open.pending:
            self._client.open.forget({number: self._client.open.pending[number]})
            self._take(None)

    def _take(self, answer: AnswerBody | None) -> None:
        pause_s = self._round.take([answer], lambda: Unavailable("nothing came"), _decode)
        client = self._client
        again_us = client.here_us() + int((pause_s or 0) * SECOND_US)
        if pause_s is None or again_us >= self._deadline_us:
            client.finished(self, self._round.outcomes[0])
        else:
            client.at(again_us, self.ask)


class _Waiter:
    """Counts down the one answer that a call waits for."""

    __slots__ = ("call", "remaining")

    def __init__(self, call: _Call) -> None:
        self.call = call
        self.remaining = 1


class ClientProcess(Process):
    """A program with a client. `history` is what it heard."""

    def __init__(self, world: World, role: str) -> None:
        super().__init__(world, role, f"{role}.{world.chance.hex('names')}")
        self.draw = world.chance.stream(f"client/{role}").random
        self.open: Outstanding[_Waiter] = Outstanding()
        self.history: list[Operation] = []
        self.dealer = Dealer(self, self.address, "public", self._receive, self._changed)
        self._numbers = 0
        self._timers: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._began: dict[int, tuple[int, int]] = {}
        world.dial(self.dealer)

    # --- calls --------------------------------------------------------------------------
    def call(self, args: wire.Args, done: Done, wait_ms: int = 0) -> None:
        """As Client._call: `done` hears the `ok`, or the error."""
        timeout_ms = self.world.plan.knobs.client_timeout_ms + wait_ms
        call = _Call(self, args, timeout_ms, done)
        now_ms = self.here_us() // MS_US
        self._began[id(call)] = (now_ms, now_ms + timeout_ms)
        call.ask()
        self.wake()

    def next_number(self) -> int:
        """A number for the next request."""
        self._numbers += 1
        return self._numbers

    def finished(self, call: _Call, outcome: Outcome) -> None:
        """Note what was heard, and tell the caller."""
        self.overdue()
        began_ms, _ = self._began.pop(id(call))
        self.history.append(_operation(self.role, call, outcome, began_ms, self.here_us() // MS_US))
        if call.n > self.world.disk.synced:
            self.world.violated(4, f"{self.role} was told of commit {call.n} before its sync")
        call.done(outcome)

    def overdue(self) -> None:
        """No call may last longer than its caller is ready to wait."""
        now_ms = self.here_us() // MS_US
        if any(now_ms > until_ms + LATE_MS for _, until_ms in self._began.values()):
            self.world.violated(37, f"{self.role} waits for longer than it is ready to")

    # --- time ---------------------------------------------------------------------------
    def at(self, at_us: int, call: Callable[..., None], *args: Any) -> None:
        """Have this process call it then."""
        heapq.heappush(self._timers, (at_us, self.next_number(), call, args))
        self.wake(at_us)

    def later(self, delay_ms: int, call: Callable[..., None], *args: Any) -> None:
        """Have this process call it so much later."""
        self.at(self.here_us() + delay_ms * MS_US, call, *args)

    # --- turns --------------------------------------------------------------------------
    def work(self) -> None:
        """Hear answers, do what is due, send what is to be sent."""
        self.drain()
        timers = self._timers
        while timers and timers[0][0] <= self.loop.now_us:
            _, _, call, args = heapq.heappop(timers)
            call(*args)
        now = self.here_us() / SECOND_US
        self.open.look(now)
        self.open.flush(self._send, now)

    def next_us(self) -> int | None:
        """The next timer, or request to send again."""
        due = [self._timers[0][0]] if self._timers else []
        due += [
            int(exchange.resend_at * SECOND_US) + 1
            for exchange in self.open.pending.values()
            if exchange.resend_at
        ]
        return min(due, default=None)

    def _send(self, body: bytes) -> bool:
        return self.dealer.send([body])

    def _receive(self, frames: Frames) -> None:
        waiter = self.open.deliver(read_answer(frames[-1]))
        if waiter is not None:
            waiter.call.answered()

    def _changed(self, is_there: bool) -> None:
        if is_there:
            self.open.send_all_again()


def start_digest(args: wire.StartWorkflow) -> bytes:
    """Of what a start says, as the log has it."""
    command = command_of(wire.MSGPACK, args)
    assert isinstance(command, StartWorkflow)
    return command.digest


def _operation(role: str, call: _Call, outcome: Outcome, t0_ms: int, t1_ms: int) -> Operation:
    args = call.args
    code = outcome.code if isinstance(outcome, PerdureError) else None
    heard = "ok" if code is None else "refused"
    if code in wire.UNKNOWN_OUTCOME:
        heard = "unknown"
    digest = None
    if isinstance(args, wire.StartWorkflow):
        digest = start_digest(args).hex()
    return Operation(
        client=role,
        op=type(args).__name__,
        t0_ms=t0_ms,
        t1_ms=t1_ms,
        outcome=heard,
        digest=digest,
        request_id=getattr(args, "request_id", None),
        workflow_id=getattr(args, "workflow_id", None),
        activity_id=getattr(args, "activity_id", None),
        code=code,
        n=call.n or None,
    )
