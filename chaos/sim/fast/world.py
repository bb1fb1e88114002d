"""The fast world, built from a plan, run, and judged by the same auditor."""

from __future__ import annotations

import traceback
from collections import Counter, deque
from typing import Any

from chaos.auditor import Auditor, Violation
from chaos.auditor import History as Heard
from chaos.sim.chance import Chance
from chaos.sim.fast.flows import schedule
from chaos.sim.fast.parts import History, Keeper, Lane, Part, Road, Scheduler
from chaos.sim.fast.people import Client, Operator, Worker
from chaos.sim.fast.store import FastStore
from chaos.sim.goals import LogGoals
from chaos.sim.loop import MS_US, Loop
from chaos.sim.places import Places
from chaos.sim.plan import Fault, NetFault, Plan
from chaos.sim.process import SIGKILLED
from chaos.sim.result import Result
from chaos.sim.sink import Sink
from perdure.core.links import ActivityTask, Sessions
from perdure.core.state import Execution
from perdure.core.task_queues import TaskQueues
from perdure.store.protocol import CommitRow
from supervisors.sessions import LocalSessions

BASE_MS = 1_800_000_000_000
BEAT_US = 100 * MS_US
LOOK_US = 1_000 * MS_US
RESTART_US = 15 * MS_US
SETTLE_US = 1_200 * MS_US
RECENT_MAX = 2_000


class FastWorld:
    """One run of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = Chance(plan.seed)
        self.loop = Loop(self.chance)
        self.base_ms = BASE_MS
        self.node = f"node.{self.chance.hex('names')}"
        self.key = self.chance.stream("key").randbytes(32)
        self.jitter = self.chance.stream("history/jitter").random
        self.turn_cost_us = plan.knobs.turn_cost_us
        self.is_faulty = True
        self.current: Any = None
        self.root = self
        self.violations: list[Violation] = []
        self.goals: Counter[str] = Counter()
        self.fired_faults: list[NetFault | Fault] = []
        self.recent: deque[tuple[int, str, str, Any]] = deque(maxlen=RECENT_MAX)
        self.places = Places(self)  # type: ignore[arg-type]
        self.store = FastStore()
        self.sink = Sink(self)  # type: ignore[arg-type]
        self.flows = {flow.id: flow for flow in plan.flows}
        self.steps = {(flow.id, step.id): step for flow in plan.flows for step in flow.steps}
        self.planned = {flow.id: [schedule(step) for step in flow.steps] for flow in plan.flows}
        self.by_head: dict[bytes, Worker] = {}
        self.history: History | None = None
        self.scheduler: Scheduler | None = None
        self.keeper: Keeper | None = None
        self._workers: dict[str, Worker] = {}
        self._sessions = LocalSessions(self.node)
        self._auditor = Auditor()
        self._log_goals = LogGoals()
        self._found = 0
        self._compared: list[Any] = []
        self.rates = [
            (action, rate)
            for action in ("drop", "twice", "late", "swap")
            if (rate := getattr(plan.knobs, action))
        ]
        self._rates_sum = sum(rate for _, rate in self.rates)
        self._latency_us = plan.knobs.latency_us
        self._roads: dict[tuple[str, str], Road] = {}
        self._cuts: list[tuple[str, str, int, str]] = []
        self.net = self
        self.people: list[Any] = []
        self._parts: list[Part] = []

    # --- the run ------------------------------------------------------------------------------
    def run(self) -> Result:
        """Faults, healing, a restart of everything, the audit."""
        knobs = self.plan.knobs
        self._start_all()
        for number in range(knobs.clients):
            flows = [flow for flow in self.plan.flows if flow.client == number]
            self.people.append(Client(self, f"client-{number}", flows))
        self.people.append(Operator(self))
        for person in self.people:
            person.wake()
        self.places.plan_instants()
        self.loop.at(BEAT_US, self._beat)
        self.loop.at(LOOK_US, self._look)
        loop, broken = self.loop, self._is_broken
        loop.run(knobs.fault_ms * MS_US, broken)
        self.is_faulty = False
        self._cuts.clear()
        if not self.violations and not loop.run(loop.now_us + knobs.heal_ms * MS_US, self._is_done):
            left = [key for key in self.flows if key not in self.store.closed]
            self.violated(37, f"not ended {knobs.heal_ms} ms after the last fault: {left}")
        if not self.violations:
            loop.run(loop.now_us + SETTLE_US, broken)
            self.end(SIGKILLED)
            loop.run(loop.now_us + SETTLE_US, broken)
            self._compared.clear()
            self._compare()
            self._audit()
        return self._result()

    def _start_all(self) -> None:
        for start in (self._start_history, self._start_keeper, self._start_scheduler):
            start()
        for number in range(self.plan.knobs.workers):
            self._start_worker(f"worker-{number + 1}")

    def _start_history(self) -> None:
        if self.history is None or not self.history.is_alive:
            self.history = History(self)
            self.history.wake()

    def _start_scheduler(self) -> None:
        if self.scheduler is None or not self.scheduler.is_alive:
            self.scheduler = Scheduler(self)
            self.scheduler.wake()

    def _start_keeper(self) -> None:
        if self.keeper is None or not self.keeper.is_alive:
            self.keeper = Keeper(self)
            self.keeper.wake()

    def _start_worker(self, role: str) -> None:
        worker = Worker(self, role, self._sessions.open())
        self._workers[role] = worker
        self.by_head[worker.head] = worker
        self._tell_sessions()
        worker.wake()

    def history_began(self, history: History) -> None:
        """A new history has its epoch: everybody asks it again."""
        for part in (self.scheduler, self.keeper):
            if part is not None:
                part.wake()
        if self.keeper is not None:
            self.keeper.history_new(self.now_ms())
        askers = [self.scheduler, *self._workers.values(), *self.people]
        for asker in askers:
            if asker is not None and asker.is_alive:
                for ask in asker.asks.unanswered():
                    asker.say(history, ask)

    # --- ends ---------------------------------------------------------------------------------
    def ended(self, part: Part) -> None:
        """A part is over: it is started again."""
        if isinstance(part, Worker):
            self.by_head.pop(part.head, None)
            until_ms = self._sessions.died(part.session, self.now_ms())
            at_us = (until_ms - self.base_ms) * MS_US
            self.loop.at(at_us, self._expire_sessions)
            self.loop.after(RESTART_US, self._start_worker, part.role)
        elif isinstance(part, History):
            if self.keeper is not None:
                self.keeper.history_gone()
            self.loop.after(RESTART_US, self._start_history)
        elif isinstance(part, Scheduler):
            self.loop.after(RESTART_US, self._start_scheduler)
        elif isinstance(part, Keeper):
            self.loop.after(RESTART_US, self._start_keeper)

    def end(self, code: int) -> None:
        """All of the node is killed."""
        for part in (self.history, self.scheduler, self.keeper, *self._workers.values()):
            if part is not None:
                part.end(code)

    shut_down = property(lambda self: lambda: self.end(SIGKILLED))
    is_alive = True

    def deliver(self, take: Any, frames: Any) -> None:
        """As a root's: an order to stop is carried out at once."""
        take(frames)

    def find(self, role: str) -> Any:
        """The living part of this role."""
        if role == "root":
            return self
        found: Part | None = {
            "history": self.history,
            "scheduler": self.scheduler,
            "lease_keeper": self.keeper,
        }.get(role) or self._workers.get(role)
        return found if found is not None and found.is_alive else None

    def pause(self, length_ms: int) -> None:
        """The whole node stands still."""
        for part in (self.history, self.scheduler, self.keeper, *self._workers.values()):
            if part is not None:
                part.pause(length_ms)

    def boot_anew(self) -> None:
        """There is one clock only."""

    def step_wall(self, by_ms: int) -> None:
        """Nobody looks at the wall clock here."""

    # --- sessions ------------------------------------------------------------------------------
    def sessions(self) -> Sessions:
        """The set as it is now."""
        return self._sessions.message()

    def _expire_sessions(self) -> None:
        if self._sessions.expire(self.now_ms()):
            self._tell_sessions()

    def _tell_sessions(self) -> None:
        message = self._sessions.message()
        for part in (self.scheduler, self.keeper):
            if part is not None and part.is_alive:
                part.hear(part, message)

    # --- messages --------------------------------------------------------------------------------
    def now_ms(self) -> int:
        """History's clock."""
        return self.base_ms + self.loop.now_us // MS_US

    def joined(self, part: Part) -> None:
        """A life has begun."""
        self._parts.append(part)

    def names(self) -> str:
        """A fresh name."""
        return self.chance.hex("names")

    def send(self, source: Part, target: Part, message: Any) -> None:
        """Bring a message to its receiver, or not."""
        lane = source.lanes.get(target)
        if lane is None:
            lane = source.lanes[target] = Lane(self._road(source.role, target.role))
        loop, road = self.loop, lane.road
        at_us: int = loop.now_us + int(self._latency_us * (0.5 + road.latency())) + 1
        road.count += 1
        if self.is_faulty and (self.rates or self._cuts or road.planned):
            fault = self._fault(source.role, target.role, road)
            if fault is not None:
                if fault.action == "drop":
                    return
                later_us = at_us + fault.ms * MS_US
                if fault.action == "swap":
                    loop.at(later_us, target.hear, source, message)
                    return
                if fault.action == "twice":
                    loop.at(later_us, target.hear, source, message)
                else:
                    at_us = later_us
        if at_us <= lane.last_us:
            at_us = lane.last_us + 1
        lane.last_us = at_us
        loop.at(at_us, target.hear, source, message)

    def cut(self, source: str, target: str, length_ms: int, action: str) -> None:
        """Nothing passes ("cut"), or all is held back ("clog")."""
        until_us = self.loop.now_us + length_ms * MS_US
        self._cuts.append((source, target, until_us, action))

    def _road(self, source: str, target: str) -> Road:
        road = self._roads.get((source, target))
        if road is None:
            road = self._roads[source, target] = Road(self, source, target)
        return road

    def _fault(self, source: str, target: str, road: Road) -> NetFault | None:
        nth = road.count
        now_us = self.loop.now_us
        for one, other, until_us, action in self._cuts:
            if one == source and other == target and now_us < until_us:
                if action == "cut":
                    return NetFault(source, target, nth, "drop")
                return NetFault(source, target, nth, "late", (until_us - now_us) // MS_US)
        fault = road.planned.get(nth) if road.planned else None
        if fault is None and self.rates:
            chosen = road.chance()
            if chosen >= self._rates_sum:
                return None
            much = road.chance()
            for action, rate in self.rates:
                if chosen < rate:
                    length_ms = 0
                    if action != "drop":
                        length_ms = 1 + int(self.plan.knobs.late_ms * much * much)
                    fault = NetFault(source, target, nth, action, length_ms)
                    break
                chosen -= rate
        if fault is not None:
            self.fired(fault)
        return fault

    def _beat(self) -> None:
        self.loop.after(BEAT_US, self._beat)
        for part in (self.scheduler, self.keeper):
            if part is not None and part.is_alive:
                part.beat(self.store.newest)
                if not part.is_loaded:
                    part.wake()

    # --- findings -----------------------------------------------------------------------
    def _is_broken(self) -> bool:
        return bool(self.violations)

    def _is_done(self) -> bool:
        return bool(self.violations) or len(self.store.closed) == len(self.flows)

    def violated(self, invariant: int, what: str) -> None:
        """Something that must never be."""
        where = f"at {self.loop.now_us // MS_US} ms"
        self.violations.append(Violation(invariant, where, what))

    def crashed(self, part: Part, problem: Exception) -> None:
        """A part raised what it should not."""
        text = "".join(traceback.format_exception(problem)[-4:])
        self.violated(13, f"{part.role} raised {problem!r}\n{text}")

    def committed(self, row: CommitRow) -> None:
        """A commit is in the log."""
        self.loop.note(row.hash)
        self._log_goals.take(self.store.bodies[-1])
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

    def attempt_began(self, task: ActivityTask) -> None:
        """A worker has begun an attempt."""
        if task.attempt > 1:
            self.goal("a later attempt began")

    def _look(self) -> None:
        self.loop.after(LOOK_US, self._look)
        self._compare()

    def _compare(self) -> None:
        """Hold the projections against what the store says, if there is anything new."""
        scheduler, keeper = self.scheduler, self.keeper
        newest = self.store.newest
        compared = [(it, it.reached, it.is_loaded) for it in (scheduler, keeper) if it is not None]
        if compared == self._compared and all(it[1] == newest for it in compared):
            return
        self._compared = compared
        executions: list[Execution] = []
        if keeper is not None and keeper.is_loaded and keeper.reached == newest:
            live = {(*name, lease.address.grant) for name, lease in keeper.mind.table._live.items()}
            executions = self.store.open_state()
            expected = {
                (execution.workflow_id, activity.activity_id, activity.grant)
                for execution in executions
                for activity in execution.activities.values()
                if activity.lease is not None
            }
            if live != expected:
                self.violated(36, f"the lease keeper at {newest}: {live ^ expected}"[:400])
        if scheduler is not None and scheduler.is_loaded and scheduler.reached == newest:
            fresh = TaskQueues()
            fresh.load(executions or self.store.open_state(), self.now_ms())
            mine, theirs = (_queues(it) for it in (scheduler.mind.queues, fresh))
            self.goal("a projection was rebuilt and compared")
            if mine != theirs:
                self.violated(36, f"the scheduler at {newest}: {mine ^ theirs}"[:400])

    def _audit(self) -> None:
        heard = [Heard(name=it.role, operations=it.history, all_clients=True) for it in self.people]
        ledgers = [self.sink.ledger()]
        report = self._auditor.finish(None, ledgers, heard, key=self.key, settled=True)
        self.violations += [one for one in report.violations if one not in self.violations]

    def _result(self) -> Result:
        operations = Counter(one.outcome for it in self.people for one in it.history)
        return Result(
            seed=self.plan.seed,
            violations=tuple(self.violations),
            trace=self.loop.trace(),
            events=self.loop.events,
            simulated_ms=self.loop.now_us // MS_US,
            commits=self.store.newest,
            records=self._auditor._fold.records,
            flows=len(self.flows),
            operations=dict(sorted(operations.items())),
            fired=dict(sorted(Counter(it.action for it in self.fired_faults).items())),
            goals=dict(sorted((self.goals + self._log_goals.found).items())),
        )

    def close(self) -> None:
        """Nothing is held."""

    def dismantle(self) -> None:
        """Nobody looks at this world again: undo the cycles, so that no collector has to search
        for what is left of it.
        """
        self.loop.clear()
        for part in self._parts:
            vars(part).clear()
        vars(self).clear()


def _queues(queues: TaskQueues) -> set[Any]:
    found: set[Any] = set()
    for workflow_id, work in queues.works.items():
        execution = work.execution
        found.add((workflow_id, execution.consumed, execution.commands, *sorted(work.timers)))
        for activity_id, entry in work.entries.items():
            activity = entry.activity
            found.add((workflow_id, activity_id, activity.state, activity.attempt, activity.grant))
    return found
