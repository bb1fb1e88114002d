"""The simulated machine as an actor sees it, and the doors for clients and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from actors.history import History
from actors.host import Door
from actors.host import Take as ActorTake
from actors.inbox import Inbox
from actors.mailbox import Mailbox
from actors.scheduler import Scheduler
from chaos.sim.goals import of_batch
from chaos.sim.limits import Life
from chaos.sim.loop import MS_US
from chaos.sim.process import Frames, Process, ProcessExit, Take
from perdure.core.batch import Batch
from perdure.core.boot import Boot
from perdure.core.commands import AnyAnswer, AnyCommand, GrantLease, Refusal
from perdure.core.ledger import Ledger
from perdure.core.links import ROOT
from perdure.core.state import Execution
from perdure.store.protocol import Opened, Reader, Writer

if TYPE_CHECKING:
    from chaos.sim.world import World

ROOT_ADDRESS = ROOT.encode("ascii")
SPIN_US = 200  # Between two turns of a timer that stays due.


class Dealer:
    """A client's or worker's connection to an endpoint, made again for as long as it wants one.

    `on_change` hears True for a new connection, False for a lost one; `receive` takes frames.
    """

    def __init__(
        self,
        process: Process,
        identity: bytes,
        endpoint: str,
        receive: Take,
        on_change: Callable[[bool], None],
    ) -> None:
        self.process = process
        self.identity = identity
        self.endpoint = endpoint
        self.receive = receive
        self.on_change = on_change
        self.door: SimDoor | None = None

    def send(self, parts: Frames) -> bool:
        """Send one message; False where there is no connection."""
        door = self.door
        if door is None:
            return False
        process = self.process
        process.world.count("send", process.role)
        process.world.net.send(process, door.process, door.take, [self.identity, *parts])
        return True

    def connected(self, door: SimDoor) -> None:
        """The handshake is done."""
        if self.process.is_alive and door.process.is_alive and self.door is None:
            self.door = door
            door.peers[self.identity] = self
            self.on_change(True)
            self.process.wake()

    def lost(self, door: SimDoor) -> None:
        """The other end has gone."""
        if self.door is door:
            self.door = None
            if self.process.is_alive:
                self.on_change(False)
                self.process.wake()
                self.process.world.dial(self)


class SimDoor:
    """See actors.host.Door."""

    def __init__(self, process: Process, take: Take) -> None:
        self.process = process
        self.take = take
        self.peers: dict[bytes, Dealer] = {}

    def has_room(self, identity: bytes, size: int) -> bool:
        """Always: here everybody reads."""
        return True

    def send(self, identity: bytes, body: bytes, *, is_delimited: bool = False) -> bool:
        """Send to `identity`; False where that one is gone."""
        process = self.process
        process.world.count("send", process.role)
        dealer = self.peers.get(identity)
        if dealer is None or not dealer.process.is_alive:
            return False
        frames = [b"", body] if is_delimited else [body]
        process.world.net.send(process, dealer.process, dealer.receive, frames)
        return True

    def waiting(self) -> Iterator[Frames]:
        """What lies in the socket now, taken from it one by one."""
        queue = self.process.queue
        mine = [frames for take, frames in queue if take == self.take]
        if mine:
            others = [entry for entry in queue if entry[0] != self.take]
            queue.clear()
            queue.extend(others)
        yield from mine


class SimHost:
    """See actors.host.Host."""

    def __init__(self, process: ActorProcess) -> None:
        self._process = process
        self._world = process.world
        self._loop = process.loop

    # --- time and chance ------------------------------------------------------------
    def boottime_ms(self) -> int:
        """Milliseconds since the simulated machine booted."""
        return (self._loop.now_us + self._process.elapsed_us) // MS_US - self._world.booted_ms

    def wall_ms(self) -> int:
        """The simulated wall clock."""
        return self._world.wall_ms(self._process.here_us())

    def boot_id(self) -> str:
        """The name of this boot."""
        return self._world.boot_id

    def pid(self) -> int:
        """The number of this process."""
        return self._world.pid_of(self._process)

    def draws(self, seed: int | None) -> Callable[[], float]:
        """The stream of history's jitter."""
        return self._world.chance.stream("history/jitter").random

    # --- the store --------------------------------------------------------------------
    def writer(self, data_dir: str) -> Writer:
        """A writer of the simulated disk."""
        return self._world.disk.writer(self._process)

    def reader(self, data_dir: str) -> Reader:
        """A reader of the simulated disk."""
        return self._world.disk.reader()

    # --- sockets ----------------------------------------------------------------------
    def open(self, boot: Boot, inbox: Inbox, take: ActorTake) -> None:
        """Bind the actor's own socket."""
        process = self._process
        process.take = take
        self._world.bound[boot.inbox_endpoint] = process
        process.routes[ROOT_ADDRESS] = self._world.root
        self._world.root.routes[process.address] = process

    def connect(self, incarnation: str, endpoint: str) -> None:
        """Connect to the inbox of another actor."""
        target = self._world.bound.get(endpoint)
        if target is not None:
            address = incarnation.encode("ascii")
            self._process.routes[address] = target
            self._process.dialed.add(address)

    def disconnect(self, endpoint: str) -> None:
        """No longer."""
        process = self._process
        for address in list(process.dialed):
            target = process.routes.get(address)
            if target is not None and target.endpoint == endpoint:
                process.dialed.discard(address)
                del process.routes[address]
                target.routes.pop(process.address, None)

    def transmit(self, address: bytes, head: bytes, body: bytes) -> bool:
        """Send one frame; False where the receiver is not known."""
        process = self._process
        self._world.count("send", process.role)
        target = process.routes.get(address)
        if target is None:
            return False
        self._world.net.send(process, target, target.take_frame, [process.address, head, body])
        return True

    def public_door(self, endpoint: str, inbox: Inbox, take: ActorTake) -> Door:
        """Listen for clients there."""
        return self._world.listen(endpoint, SimDoor(self._process, take))

    def workers_door(self, endpoint: str, inbox: Inbox, take: ActorTake) -> Door:
        """Listen for workers there."""
        return self._world.listen(endpoint, SimDoor(self._process, take))

    def watch(
        self, pid: int, started: float, inbox: Inbox, died: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Call `died` when that process ends."""
        return self._world.watch(self._process, pid, died)

    def close(self, linger_ms: int) -> None:
        """Nothing to close."""

    def exit(self, code: int) -> NoReturn:
        """End this process at once."""
        raise ProcessExit(code)


class ActorProcess(Process):
    """A process of the core with its actor."""

    def __init__(self, world: World, kind: type[Mailbox], boot: Boot) -> None:
        super().__init__(world, boot.role, boot.incarnation)
        self.endpoint = boot.inbox_endpoint
        self.actor = kind(boot, SimHost(self))
        self._has_begun = False

    def take_frame(self, frames: Frames) -> None:
        """A frame for the actor's own socket."""
        sender = self.world.by_address.get(frames[0])
        if sender is not None:
            self.routes.setdefault(frames[0], sender)
        assert self.take is not None
        self.take(frames)

    def work(self) -> None:
        """One turn of the actor."""
        actor = self.actor
        if not self._has_begun:
            self._has_begun = True
            self.world.count("start", self.role)
            if isinstance(actor, History):
                self._watch_judge(actor)
            elif isinstance(actor, Scheduler) and self.world.limits:
                self._watch_proposals(actor)
            actor.on_start()
            return
        actor.inbox.is_empty = self.drain()
        actor.on_receive(None)
        if not actor.inbox.empty():
            raise ProcessExit(0)

    def rests(self, at_us: int, until_us: int | None) -> None:
        """Its waiting begins; what lasts longer is a stall."""
        wait_ms = None if until_us is None else max(0, until_us - at_us) // MS_US
        self.actor.stalls.waits(at_us // MS_US - self.world.booted_ms, wait_ms)

    def _watch_judge(self, actor: History) -> None:
        """Note what batches of history tell of, from when it has an epoch on."""
        go_on = actor._go_on

        def began(opened: Opened) -> None:
            go_on(opened)
            actor._ledger.judge = self._watched(actor._ledger)  # type: ignore[method-assign]

        actor._go_on = began  # type: ignore[method-assign]

    def _watch_proposals(self, actor: Scheduler) -> None:
        """Hold what a scheduler asks for against what limits allow it."""
        limits = self.world.limits
        opens, propose, hear = actor.on_open_state, actor.propose, actor.on_answer
        lives: list[Life] = []

        def opened(n: int, executions: list[Execution]) -> None:
            lives.append(limits.begins(n, actor.now_ms()))
            opens(n, executions)

        def proposed(command: AnyCommand, tag: Any = None) -> None:
            if isinstance(command, GrantLease):
                lives[-1].proposes(command, actor.reached, actor.now_ms())
            propose(command, tag)

        def heard(
            command: AnyCommand, tag: Any, answer: AnyAnswer, commit: int, now_ms: int
        ) -> None:
            if isinstance(command, GrantLease) and isinstance(answer, Refusal):
                lives[-1].refused(command, actor.reached)
            hear(command, tag, answer, commit, now_ms)

        actor.on_open_state = opened  # type: ignore[method-assign]
        actor.propose = proposed  # type: ignore[method-assign]
        actor.on_answer = heard  # type: ignore[method-assign]

    def _watched(self, ledger: Ledger) -> Callable[..., Batch]:
        judge, goal = ledger.judge, self.world.goal

        def watched(commands: list[AnyCommand], now_ms: int) -> Batch:
            batch = judge(commands, now_ms)
            self.world.watch_over.judged(commands)
            for name in of_batch(commands, batch.answers):
                goal(name)
            return batch

        return watched

    def next_us(self) -> int | None:
        """When the actor's timer is due."""
        due_ms = self.actor.next_timer_ms()
        if due_ms is None:
            return None
        due_us = (due_ms - self.actor.base_ms + self.world.booted_ms) * MS_US
        return max(due_us, self.loop.now_us + SPIN_US)
