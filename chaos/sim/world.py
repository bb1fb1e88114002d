"""A whole node, its users and its machine, as one plan has them: built, run, judged."""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from chaos.auditor import Auditor, Violation
from chaos.sim import app, checks
from chaos.sim.chance import Chance
from chaos.sim.disk import SimDisk
from chaos.sim.goals import LogGoals
from chaos.sim.host import Dealer, SimDoor
from chaos.sim.keepers import Holder, Planner
from chaos.sim.limits import Limits
from chaos.sim.loop import MS_US, Loop
from chaos.sim.net import Net
from chaos.sim.people import Operator, Poller, Submitter
from chaos.sim.places import Places
from chaos.sim.plan import Fault, NetFault, Plan
from chaos.sim.process import SIGKILLED, Frames, Process
from chaos.sim.result import Result
from chaos.sim.rewinder import Rewinder
from chaos.sim.root import RootProcess
from chaos.sim.sink import Sink
from chaos.sim.strangers import Stranger
from chaos.sim.talkers import Finisher, Patient, Talker
from chaos.sim.watch import Watch
from chaos.sim.worker import WorkerProcess
from perdure.core.boot import Boot
from perdure.core.links import ActivityTask
from perdure.core.records import decode_body
from perdure.store.protocol import CommitRow

WALL_MS = 1_800_000_000_000
DIAL_US = 2_000
DISCONNECT_US = 300
RECENT_MAX = 4_000
NODE_MS = 300  # Between the end of a node and its next start.
SETTLE_MS = 4_000
QUIET_MS = 90_000  # Longer than anything waits to be said again, and all who stand still.
EVENTS_MAX = 400_000
LOOK_US = 500 * MS_US


class World:
    """One run of one plan. `run` does it all."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = Chance(plan.seed)
        self.loop = Loop(self.chance)
        self.processes: list[Process] = []
        self.by_address: dict[bytes, Process] = {}
        self.bound: dict[str, Process] = {}
        self.current: Process | None = None
        self.is_faulty = True
        self.booted_ms = -self.chance.stream("boot").randrange(1_000, 1_000_000)
        self.boot_id = self.chance.hex("names")
        self.turn_cost_us = plan.knobs.turn_cost_us
        self.drain_max = plan.knobs.drain_max
        self.queue_max = plan.knobs.queue_max
        self.violations: list[Violation] = []
        self.goals: Counter[str] = Counter()
        self.fired_faults: list[NetFault | Fault] = []
        self.recent: deque[tuple[int, str, str, Frames]] = deque(maxlen=RECENT_MAX)
        self._wall_shift_ms = 0
        self._is_closed_down = False
        self._pids: dict[int, Process] = {}
        self._doors: dict[str, SimDoor] = {}
        self._dialing: dict[str, list[Dealer]] = {}
        self._auditor = Auditor()
        self._log_goals = LogGoals()
        self.watch_over = Watch(self)
        self.limits = Limits(self)
        self._found = 0
        self._draw = self.chance.stream("machine").random
        self.places = Places(self)
        self.count = self.places.count
        self.net = Net(self)
        self.disk = SimDisk(self)
        self.sink = Sink(self)
        app.begin()
        self.people: list[Any] = []
        self.talker = Talker(self, [flow for flow in plan.flows if flow.talk is not None])
        self.finisher = Finisher(self)
        self.rewinder = Rewinder(self)
        self.root: RootProcess

    # --- the run ------------------------------------------------------------------------
    def run(self) -> Result:
        """All phases: faults, healing, a restart of everything, the audit."""
        knobs = self.plan.knobs
        self.start_node()
        self._people()
        self.places.plan_instants()
        self.loop.at(LOOK_US, self._look)
        self.loop.run(knobs.fault_ms * MS_US, self._is_broken)
        self.is_faulty = False
        self.net.heal()
        # Attempts that are lost with whoever made them, or late, are made twice.
        heal_ms = knobs.heal_ms + 2 * max((flow.work_ms for flow in self.plan.flows), default=0)
        bound_us = self.loop.now_us + heal_ms * MS_US
        if not self.violations:
            done = self.loop.run(bound_us, self._is_done)
            if not done and not self.violations:
                self.violated(37, f"not ended {heal_ms} ms after the last fault: {self._unended()}")
        if not self.violations:
            self.loop.run(self.loop.now_us + SETTLE_MS * MS_US, self._is_broken)
            self._be_quiet()
            # A node that was stopped may be on its way to its next start still.
            self.loop.run(bound_us, lambda: self._is_broken() or self.root.is_alive)
            self.places.node_delay_ms = 0
            self.root.end(SIGKILLED)
            self.loop.run(self.loop.now_us + SETTLE_MS * MS_US, self._is_broken)
            checks.projections(self, is_final=True)
            self.watch_over.people()
            self.watch_over.replays()
        if not self.violations:
            checks.audit(self, self._auditor)
        return self._result()

    def _people(self) -> None:
        knobs = self.plan.knobs
        for number in range(knobs.clients):
            flows = [flow for flow in self.plan.flows if flow.client == number]
            self.people.append(Submitter(self, f"client-{number}", flows))
        self.people.append(Operator(self))
        self.people += [self.talker, self.finisher, Holder(self), Planner(self), self.rewinder]
        self.people += [Stranger(self) for _ in range(knobs.strangers)]
        self.people += [Poller(self, number) for number in range(knobs.pollers)]
        for number in range(knobs.external_workers):
            self._external_worker(number)

    def _external_worker(self, number: int) -> None:
        role = f"external-{number}"
        boot = Boot(
            role=role,
            incarnation=f"{role}.{self.chance.hex('names')}",
            node="",
            data_dir="",
            run_dir="",
            root_endpoint="",
            inbox_endpoint="",
            workers_endpoint="workers",
        )
        process = WorkerProcess(self, boot, None, is_local=False)
        process.on_end = lambda _: self.loop.after(NODE_MS * MS_US, self._external_worker, number)
        process.wake(self.loop.now_us + 1_000)

    def _be_quiet(self) -> None:
        """All is done: whoever has said something hears of it."""
        bound_us = self.loop.now_us + QUIET_MS * MS_US
        quiet = self.watch_over.is_quiet
        if not self.loop.run(bound_us, lambda: self._is_broken() or quiet()):
            self.violated(37, f"a worker has no answer {QUIET_MS} ms after everything was done")

    def _is_broken(self) -> bool:
        if self.loop.events > EVENTS_MAX and not self.violations:
            self.violated(37, f"{EVENTS_MAX} events, and no end")
        return bool(self.violations)

    def _is_closed(self, workflow_id: str) -> bool:
        return workflow_id in self.disk.closed

    def _unended(self) -> list[str]:
        flows = [flow.id for flow in self.plan.flows if not self._is_closed(flow.id)]
        people = [one.role for one in self.people if isinstance(one, Patient) and not one.is_done]
        return [*dict.fromkeys([*flows, *self.disk.open, *people])]

    def _is_done(self) -> bool:
        return self._is_broken() or (
            all(self._is_closed(flow.id) for flow in self.plan.flows)
            and not self.disk.open
            and all(person.is_done for person in self.people if isinstance(person, Patient))
        )

    def _look(self) -> None:
        checks.projections(self)
        if not self.is_faulty:
            self.watch_over.look()
        self.loop.after(LOOK_US, self._look)

    def _result(self) -> Result:
        operations = Counter(
            operation.outcome for person in self.people for operation in person.history
        )
        fired = Counter(fault.action for fault in self.fired_faults)
        return Result(
            seed=self.plan.seed,
            violations=tuple(self.violations),
            trace=self.loop.trace(),
            events=self.loop.events,
            simulated_ms=self.loop.now_us // MS_US,
            commits=self.disk.newest,
            records=self._auditor._fold.records,
            flows=len(self.plan.flows),
            operations=dict(sorted(operations.items())),
            fired=dict(sorted(fired.items())),
            goals=dict(sorted((self.goals + self._log_goals.found).items())),
        )

    def close(self) -> None:
        """End every process that is left: their memory is this process's."""
        self._is_closed_down = True
        for process in list(self.processes):
            process.on_end = None
            process.end(SIGKILLED)
        self.disk.close()

    # --- findings -----------------------------------------------------------------------
    def violated(self, invariant: int, what: str) -> None:
        """Something that must never be."""
        where = f"at {self.loop.now_us // MS_US} ms"
        self.violations.append(Violation(invariant, where, what))

    def crashed(self, process: Process, problem: Exception) -> None:
        """A process raised what it should not."""
        text = "".join(traceback.format_exception(problem)[-4:])
        self.violated(13, f"{process.role} raised {problem!r}\n{text}")

    def committed(self, row: CommitRow) -> None:
        """A commit is in the log: the auditor sees it at once."""
        self.loop.note(row.hash)
        body = decode_body(row.body)
        self._log_goals.take(body)
        self.watch_over.committed(body)
        if self.limits:
            self.limits.committed(body)
        self.mark("history", f"commit {row.n}")
        self._auditor.feed(row)
        kept = self._auditor.found.kept
        if len(kept) > self._found:
            self.violations += kept[self._found :]
            self._found = len(kept)

    def goal(self, name: str) -> None:
        """Something that should happen sometimes has happened."""
        self.goals[name] += 1

    def fired(self, fault: NetFault | Fault) -> None:
        """A fault did what it says."""
        self.fired_faults.append(fault)
        if isinstance(fault, Fault):
            self.mark(fault.role, fault.action)

    def record(self, source: Process, target: Process, frames: Frames) -> None:
        """A frame has arrived; kept for the diagram."""
        self.recent.append((self.loop.now_us, source.role, target.role, frames))

    def mark(self, role: str, what: str) -> None:
        """Something has happened to one process; kept for the diagram."""
        self.recent.append((self.loop.now_us, role, "", [what.encode()]))

    def left_open(self, task: ActivityTask, receipt: str) -> None:
        """An attempt was left to whoever has its token."""
        self.finisher.left_open(task, receipt)

    def attempt_began(self, task: ActivityTask, running: set[str]) -> None:
        """A worker has begun an attempt; `running` are the tokens that it runs already."""
        if task.token in running:
            what = f"{task.workflow_id}, {task.activity_id}: one worker runs one token twice"
            self.violated(16, what)
        if task.attempt > 1:
            self.goal("a later attempt began")

    def history_ms(self) -> int:
        """History's clock, as of the newest start."""
        return self.disk.base_ms + self.loop.now_us // MS_US - self.booted_ms

    # --- the machine ----------------------------------------------------------------------
    def wall_ms(self, at_us: int) -> int:
        """The wall clock."""
        return WALL_MS + at_us // MS_US + self._wall_shift_ms

    def step_wall(self, by_ms: int) -> None:
        """The wall clock jumps."""
        self._wall_shift_ms += by_ms

    def boot_anew(self) -> None:
        """The machine has lost its power, and starts again."""
        self.booted_ms = self.loop.now_us // MS_US - 1_000
        self.boot_id = self.chance.hex("names")

    def start_node(self) -> None:
        """Start a node on what the disk holds."""
        self.root = RootProcess(self)
        self.root.on_end = self._root_ended
        self.root.begin()

    def _root_ended(self, process: Process) -> None:
        delay_ms = self.places.node_delay_ms or NODE_MS
        self.places.node_delay_ms = 0
        self.loop.after(delay_ms * MS_US, self.start_node)

    def find(self, role: str) -> Process | None:
        """The living process of this role."""
        for process in self.processes:
            if process.role == role:
                return process
        return None

    def pid_of(self, process: Process) -> int:
        """The process's number."""
        for pid, known in self._pids.items():
            if known is process:
                return pid
        pid = 1_000 + len(self._pids)
        self._pids[pid] = process
        return pid

    def watch(
        self, watcher: Process, pid: int, died: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Tell `watcher` of the end of a process."""
        process = self._pids.get(pid)
        if process is None or not process.is_alive:
            return None
        before = process.on_end
        is_on = [True]

        def ended(which: Process) -> None:
            if before is not None:
                before(which)
            if is_on[0]:
                self.loop.after(DISCONNECT_US, watcher.deliver, lambda frames: died(), [b"pidfd"])

        def unwatch() -> None:
            is_on[0] = False

        process.on_end = ended
        return unwatch

    # --- time ----------------------------------------------------------------------------
    def turn_delay_us(self, process: Process) -> int:
        """How long a process that could run waits for its turn."""
        return self.places.turn_delay_us(process.role)

    def spawn_us(self, mean_us: int) -> int:
        """How long a start takes."""
        return int(mean_us * (0.5 + self._draw()))

    def sync_us(self) -> int:
        """How long a sync takes."""
        return int(self.plan.knobs.sync_us * (0.5 + self._draw()))

    # --- connections ------------------------------------------------------------------------
    def listen(self, endpoint: str, door: SimDoor) -> SimDoor:
        """A door opens: whoever waited for it comes."""
        self._doors[endpoint] = door
        waiting = self._dialing.pop(endpoint, [])
        for dealer in waiting:
            self.dial(dealer)
        return door

    def dial(self, dealer: Dealer) -> None:
        """Connect, as soon as there is somebody."""
        door = self._doors.get(dealer.endpoint)
        if door is None or not door.process.is_alive:
            self._dialing.setdefault(dealer.endpoint, []).append(dealer)
            return
        self.loop.after(1 + int(DIAL_US * 2 * self._draw()), self._connect, dealer, door)

    def _connect(self, dealer: Dealer, door: SimDoor) -> None:
        if not door.process.is_alive:
            self.dial(dealer)
        else:
            dealer.connected(door)

    def hung_up(self, process: Process) -> None:
        """A process has ended: its connections break."""
        self.by_address.pop(process.address, None)
        if not self._is_closed_down:
            self.mark(process.role, f"ends with {process.exit_code}")
        if self.bound.get(process.endpoint) is process:
            del self.bound[process.endpoint]
        self.loop.after(DISCONNECT_US, self._disconnect, process)
        for door in self._doors.values():
            if door.process is process:
                for dealer in list(door.peers.values()):
                    self.loop.after(DISCONNECT_US, dealer.lost, door)

    def _disconnect(self, process: Process) -> None:
        address = process.address
        for other in self.processes:
            if other.routes.get(address) is process and address not in other.dialed:
                del other.routes[address]
