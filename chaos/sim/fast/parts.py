"""The core's roles without sockets: each drains what it was told, works, and says what follows."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from actors.asks import Asks
from chaos.sim.goals import of_batch
from chaos.sim.loop import MS_US
from chaos.sim.places import JITTER_US
from chaos.sim.process import CRASHED, SIGKILLED, Killed
from perdure.core.commands import (
    AnyCommand,
    EndLease,
    ExpireLease,
    Refusal,
)
from perdure.core.ids import Session
from perdure.core.lease_keeping import LeaseKeeping
from perdure.core.ledger import Ledger
from perdure.core.links import (
    Answer,
    Ask,
    CancelTask,
    Heartbeat,
    Message,
    Polled,
    Sessions,
    Sync,
    pack_session,
)
from perdure.core.matching import Matching
from perdure.core.records import CommitBody

if TYPE_CHECKING:
    from chaos.sim.fast.world import FastWorld

NEVER = 1 << 62


class Road:
    """A directed link between two roles: how many messages it has seen, and its own chance."""

    __slots__ = ("_stream", "chance", "count", "latency", "planned")

    def __init__(self, world: FastWorld, source: str, target: str) -> None:
        self.count = 0
        self.latency = world.chance.stream(f"net/{source}/{target}").random
        # A stream takes longer to begin than most links of a run are used.
        self.chance = (
            world.chance.stream(f"faults/{source}/{target}").random if world.rates else _certain
        )
        self.planned = {
            fault.nth: fault
            for fault in world.plan.net
            if (fault.source, fault.target) == (source, target)
        }


class Lane:
    """One directed link between two lives; `road` is shared by all lives of the two roles."""

    __slots__ = ("last_us", "road")

    def __init__(self, road: Road) -> None:
        self.road = road
        self.last_us = 0


def _certain() -> float:
    raise AssertionError("no fault of this plan is drawn")


class Part:
    """One life of one role."""

    def __init__(self, world: FastWorld, role: str) -> None:
        self.world = world
        self.loop = world.loop
        self.role = role
        self.is_alive = True
        self.queue: list[tuple[Part, Any]] = []
        self._wake_us = NEVER
        self._wake_number = 0
        self._free_us = 0  # Busy, or standing still, until then.
        self.lanes: dict[Part, Lane] = {}
        self._delay_us = world.places.turn_delay_us
        self._jitter = world.places.jitter
        self._send = world.send
        world.joined(self)

    @abstractmethod
    def work(self, queue: list[tuple[Part, Any]], now_ms: int) -> None:
        """One turn."""

    @abstractmethod
    def next_ms(self) -> int | None:
        """When there is something to do, on history's clock."""

    def hear(self, sender: Part, message: Any) -> None:
        """A message has arrived."""
        if self.is_alive:
            self.queue.append((sender, message))
            if self._wake_us > self.loop.now_us:
                self.wake()

    def say(self, to: Part | None, message: Any) -> None:
        """Send a message."""
        if to is not None:
            self._send(self, to, message)

    def wake(self, at_us: int = 0) -> None:
        """Have a turn no later than that."""
        loop = self.loop
        if at_us < loop.now_us:
            at_us = loop.now_us
        if at_us < self._free_us:
            at_us = self._free_us
        if at_us < self._wake_us:
            self._wake_us = at_us
            self._wake_number = number = self._wake_number + 1
            jitter = self._jitter
            if jitter is None:
                at_us += self._delay_us(self.role)
            else:
                at_us += int(JITTER_US * jitter())
            loop.at(at_us, self._turn, number)

    def pause(self, length_ms: int) -> None:
        """As SIGSTOP, and SIGCONT so much later."""
        self._free_us = max(self._free_us, self.loop.now_us + length_ms * MS_US)

    def _turn(self, number: int) -> None:
        if number != self._wake_number or not self.is_alive:
            return
        self._wake_us = NEVER
        now_us = self.loop.now_us
        if now_us < self._free_us:
            self.wake()
            return
        world = self.world
        world.current = self
        queue, self.queue = self.queue, []
        try:
            if world.places.counts_turns:
                world.places.count("turn", self.role)
            self.work(queue, world.base_ms + now_us // MS_US)
        except Killed:
            self.end(SIGKILLED)
        except Exception as problem:  # noqa: BLE001 - what no part may do is a finding
            world.crashed(self, problem)
            self.end(CRASHED)
        world.current = None
        if self.is_alive:
            free_us = now_us + world.turn_cost_us
            if free_us > self._free_us:
                self._free_us = free_us
            next_ms = self.next_ms()
            if next_ms is not None:
                at_us = (next_ms - world.base_ms) * MS_US
                self.wake(at_us if at_us > now_us + MS_US else now_us + MS_US)

    def end(self, code: int) -> None:
        """It is over."""
        if self.is_alive:
            self.is_alive = False
            self.queue.clear()
            self.world.ended(self)


class History(Part):
    """The ledger over the store, in groups."""

    def __init__(self, world: FastWorld) -> None:
        super().__init__(world, "history")
        self._is_open = False
        self._ledger: Ledger

    def next_ms(self) -> int | None:
        """Nothing by itself."""
        return None

    def _begin(self, now_ms: int) -> None:
        world = self.world
        fault = world.places.count("epoch", self.role)
        if fault is not None and fault.action != "slow":
            raise Killed
        row = world.store.open_epoch(f"history.{world.names()}", now_ms)
        self._is_open = True
        self._ledger = Ledger(
            world.store,
            epoch=row.epoch,
            n=row.n,
            last_hash=row.hash,
            key=world.key,
            draw=world.jitter,
            began_ms=now_ms,
        )
        world.committed(row)
        world.history_began(self)

    def work(self, queue: list[tuple[Part, Any]], now_ms: int) -> None:
        """Judge all that came in, commit it, answer."""
        if not self._is_open:
            self._begin(now_ms)
        asked = sorted(queue, key=_order) if len(queue) > 1 else queue
        if not asked:
            return
        world, ledger = self.world, self._ledger
        commands = [ask.command for _, ask in asked]
        batch = ledger.judge(commands, now_ms)
        if batch.aside:
            raise AssertionError(batch.aside[0].error)
        for name in of_batch(commands, batch.answers):
            world.goals[name] += 1
        change = batch.change
        if change is not None:
            places = world.places
            fault = places.count("commit", self.role) if places.counts_commits else None
            action = "" if fault is None else fault.action
            if action in ("eio_lost", "full", "unsynced_lost"):
                raise Killed
            row = world.store.commit(change)
            world.committed(row)
            if action in ("eio_kept", "unsynced_kept"):
                raise Killed
            length_us = world.plan.knobs.sync_us
            if fault is not None and action == "slow":
                length_us += fault.ms * MS_US
            self._free_us = self.loop.now_us + length_us
        ledger.committed(batch)
        if change is not None:
            body = world.store.bodies[-1]
            self.say(world.scheduler, body)
            self.say(world.keeper, body)
        for (sender, ask), answer in zip(asked, batch.answers, strict=True):
            self.say(sender, Answer(ask.n, batch.n, answer))


def _order(entry: tuple[Part, Ask]) -> int:
    """Expiries and ends of sessions come last."""
    return isinstance(entry[1].command, ExpireLease | EndLease)


class Projection(Part):
    """Follows the log, and proposes."""

    def __init__(self, world: FastWorld, role: str) -> None:
        super().__init__(world, role)
        self.asks = Asks()
        self.reached = 0
        self.is_loaded = False

    @abstractmethod
    def load(self, now_ms: int) -> None:
        """Begin with what is open."""

    @abstractmethod
    def apply(self, body: CommitBody, now_ms: int) -> None:
        """What one commit states."""

    @abstractmethod
    def take(self, sender: Part, message: Any, now_ms: int) -> None:
        """Anything that is not about the log."""

    @abstractmethod
    def answered(self, command: AnyCommand, tag: Any, answer: Answer, now_ms: int) -> None:
        """History has judged a proposal."""

    @abstractmethod
    def step(self, now_ms: int) -> None:
        """All was heard: do what there is to do."""

    @abstractmethod
    def mind_next_ms(self) -> int | None:
        """When `step` has something to do."""

    def propose(self, command: AnyCommand, tag: Any = None) -> None:
        """Ask history, again and again until it answers."""
        now_ms = self.world.now_ms()
        self.say(self.world.history, self.asks.ask(command, now_ms, tag))

    def work(self, queue: list[tuple[Part, Any]], now_ms: int) -> None:
        """Hear everything, then step."""
        world = self.world
        if not self.is_loaded:
            if world.history is None or not world.store.log:
                return
            self.is_loaded = True
            self.reached = world.store.newest
            self.load(now_ms)
        for sender, message in queue:
            kind = type(message)
            if kind is CommitBody:
                if message.n == self.reached + 1:
                    self._follow(message, now_ms)
                elif message.n > self.reached:
                    self.read_log(now_ms)
            elif kind is Answer:
                found = self.asks.answered(message)
                if found is not None:
                    self.answered(*found, message, now_ms)
            else:
                self.take(sender, message, now_ms)
        for ask in self.asks.due(now_ms):
            self.say(world.history, ask)
        self.step(now_ms)

    def _follow(self, body: CommitBody, now_ms: int) -> None:
        self.apply(body, now_ms)
        self.reached = body.n

    def read_log(self, now_ms: int) -> None:
        """Catch up from the store."""
        for body in self.world.store.bodies[self.reached :]:
            self._follow(body, now_ms)

    def beat(self, newest: int) -> None:
        """History's newest number, said now and then."""
        if self.is_loaded and newest > self.reached:
            self.read_log(self.world.now_ms())
            self.wake()

    def next_ms(self) -> int | None:
        """The earlier of the mind's and the next thing to ask again."""
        if not self.is_loaded:
            return None
        mine, again = self.mind_next_ms(), self.asks.next_ms()
        if mine is None or (again is not None and again < mine):
            return again
        return mine


class Scheduler(Projection):
    """Matching."""

    def __init__(self, world: FastWorld) -> None:
        super().__init__(world, "scheduler")
        self.mind = Matching(world.key, self.propose, self._tell, self._answer_poll)
        self.mind.gateway("gateway.1")

    def _tell(self, head: bytes, message: Message) -> None:
        self.say(self.world.by_head.get(head), message)

    def _answer_poll(self, gateway: str, message: Polled) -> None:
        raise AssertionError("nobody polls here")

    def load(self, now_ms: int) -> None:
        """Begin with what is open."""
        self.mind.load(self.world.store.open_state(), now_ms)
        self.mind.sessions(self.world.sessions())

    def apply(self, body: CommitBody, now_ms: int) -> None:
        """What one commit states."""
        for group in body.groups:
            self.mind.apply(body.n, body.at_ms, group.workflow_id, group.records, now_ms)

    def take(self, sender: Part, message: Any, now_ms: int) -> None:
        """Syncs, sessions."""
        kind = type(message)
        if kind is Sync:
            session = getattr(sender, "session", None)
            if session is not None:
                self.mind.sync(session, message, now_ms)
        elif kind is Sessions:
            self.mind.sessions(message)

    def answered(self, command: AnyCommand, tag: Any, answer: Answer, now_ms: int) -> None:
        """History has judged a proposal."""
        self.mind.answered(command, answer.answer, now_ms)

    def step(self, now_ms: int) -> None:
        """Give out, propose."""
        self.mind.step(self.reached, now_ms)

    def mind_next_ms(self) -> int | None:
        """Matching's."""
        return self.mind.next_ms()


class Keeper(Projection):
    """Lease keeping."""

    def __init__(self, world: FastWorld) -> None:
        super().__init__(world, "lease_keeper")
        self.mind = LeaseKeeping(world.key, world.node, self.propose, self._tell, self._reply)
        self.mind.gateway("gateway.1", world.now_ms())

    def _tell(self, session: Session, message: Any) -> None:
        if isinstance(message, CancelTask):
            self.say(self.world.by_head.get(pack_session(session)), message)

    def _reply(self, asker: Any, commit: int, answer: Any) -> None:
        worker, n = asker
        self.say(worker, Answer(n, commit, answer))

    def load(self, now_ms: int) -> None:
        """Begin with what is open."""
        self.mind.load(self.world.store.open_state(), now_ms)
        self.mind.sessions(self.world.sessions())

    def apply(self, body: CommitBody, now_ms: int) -> None:
        """What one commit states."""
        for group in body.groups:
            self.mind.apply(body.at_ms, group.workflow_id, group.records)

    def take(self, sender: Part, message: Any, now_ms: int) -> None:
        """Heartbeats, Syncs, sessions."""
        kind = type(message)
        if kind is Heartbeat:
            self.mind.heartbeat((sender, message.n), message, now_ms)
        elif kind is Sync:
            session = getattr(sender, "session", None)
            if session is not None:
                self.mind.sync(session, message, now_ms)
        elif kind is Sessions:
            self.mind.sessions(message)

    def answered(self, command: AnyCommand, tag: Any, answer: Answer, now_ms: int) -> None:
        """History has judged a proposal."""
        self.mind.answered(command, tag, answer.answer, answer.commit, now_ms)

    def history_gone(self) -> None:
        """No report can arrive."""
        if self.is_loaded:
            self.mind.table.pause()

    def history_new(self, now_ms: int) -> None:
        """Ask it all again but expiries."""
        if not self.is_loaded:
            return
        self.mind.table.resume(now_ms)
        for command, tag in self.asks.drop_all():
            if isinstance(command, ExpireLease):
                self.mind.table.withdrawn(command, now_ms)
            else:
                self.propose(command, tag)

    def step(self, now_ms: int) -> None:
        """Judge Syncs and deadlines."""
        self.mind.step(self.reached, now_ms)

    def mind_next_ms(self) -> int | None:
        """Lease keeping's."""
        return self.mind.next_ms()


__all__ = ["History", "Keeper", "Part", "Projection", "Refusal", "Scheduler"]
