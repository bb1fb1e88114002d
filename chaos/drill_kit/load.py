"""The workflows that a drill lets suffer, and what can be seen of them: the ledger of their effects
as it grows, deliveries that a kill caused, and reports with the tokens of dead attempts.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from chaos import history_audit
from chaos.ledger_audit import LedgerFile, Run
from chaos.workload import CHILD, CHILD_RUNS, GO_ON, MIXED_EFFECTS, PARKED
from perdure.errors import (
    FailedPrecondition,
    NotFound,
    PerdureError,
)

if TYPE_CHECKING:
    from chaos.drill_kit.arena import Arena
    from chaos.drill_kit.timeline import Fault
    from chaos.harness import NodeProcess
    from perdure.client import Client

COUNT_EVERY_S = 0.3
PAGE = 1_000
PAUSE_S = 0.02
SETTLE_S = 20.0
REDRIVE_EVERY_S = 0.4
STALE_AT_ONCE = 10
STALE_TIMEOUT_MS = 2_000


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What is started for each workflow of a load: its type, and arguments by name.

    The argument `ledger`, the path of the ledger's file, is added. `effects`: how many effects one
    workflow has at its end. `returns_receipts`: whether it returns the receipts of its effects.
    `parks`: the activities of it that may be parked; to be redriven (see Load.redrive). `signal`:
    it waits for one of that name. `child`, behind its id: that of its child, which has so many
    `child_runs`.
    """

    type: str
    arguments: dict[str, Any]
    effects: int
    returns_receipts: bool = True
    parks: tuple[str, ...] = ()
    signal: str = ""
    child: str = ""
    child_runs: int = 0


def flaky(*, activities: int = 8, fail_rate: float = 0.4, work_ms: int = 200, seed: int) -> Start:
    """FlakyDemo workflows, as `perdure.demo` has them."""
    arguments = {
        "fail_rate": fail_rate,
        "activities": activities,
        "work_ms": work_ms,
        "seed": seed,
    }
    return Start(type="FlakyDemo", arguments=arguments, effects=activities)


def mixed(*, fail_rate: float = 0.3, work_ms: int = 150, seed: int) -> Start:
    """Workflows with something for every actor to lose: see chaos.workload."""
    arguments = {"fail_rate": fail_rate, "work_ms": work_ms, "seed": seed}
    return Start(
        type="Mixed",
        arguments=arguments,
        effects=MIXED_EFFECTS,
        parks=(PARKED,),
        signal=GO_ON,
        child=CHILD,
        child_runs=CHILD_RUNS,
    )


class Load:
    """Some workflows of one node, and the ledger of their effects.

    `others` are ids of workflows that the drill started itself: the history of all their runs
    counts as evidence, and nobody waits for their end. `parks`: the keys of activities that may be
    parked. `by_hand`: the keys of those that were given their result by somebody, and so have no
    effect.
    """

    def __init__(self, arena: Arena, node: NodeProcess, start: Start, count: int) -> None:
        self.arena = arena
        self.client: Client = arena.client(node)
        self.start = start
        self.ids: list[str] = []
        self.others: list[str] = []
        self.parks: set[str] = set()
        self.by_hand: set[str] = set()
        self.completed = 0
        self.effects = 0
        self.stale_refused = 0
        self.runs: dict[int, Run] = {}
        self.by_key: dict[str, list[Run]] = {}
        self.ledger_path = arena.directory / f"effects-{len(arena.loads) + 1}.db"
        self.ledger = LedgerFile(self.ledger_path)
        self.node = node
        self._strangers = False
        self._prefix = f"{arena.name}-{arena.options.seed}"
        if arena.loads:
            self._prefix += f"-load-{len(arena.loads) + 1}"
        self._count = count
        self._impatient: Client = arena.client(node, timeout_ms=STALE_TIMEOUT_MS)
        self._redelivered: set[int] = set()
        self._cut_off: dict[int, Fault] = {}
        self._stale: deque[Run] = deque()
        self._live: dict[str, Run] = {}  # The run of each key under its youngest grant.
        self.redriven = 0
        self._redriven_at = 0.0
        self._counted_at = 0.0
        self._counted = False  # Whether all that was submitted has been asked for since.
        self._running: set[str] = set()
        self._newest = 0

    # --- the work --------------------------------------------------------------------
    @property
    def redelivered(self) -> int:
        """How many attempts a kill has cut off that were run again since."""
        return len(self._redelivered)

    @property
    def effects_wanted(self) -> int:
        """How many effects there are once all that was submitted is done."""
        return max(len(self.ids), self._count) * self.start.effects

    def submit(self, count: int | None = None) -> None:
        """Starts `count` more workflows, by default as many as the load has."""
        for _ in range(self._count if count is None else count):
            workflow_id = f"{self._prefix}-{len(self.ids) + 1}"
            self.client.start_workflow(
                self.start.type,
                workflow_id=workflow_id,
                request_id=workflow_id,
                ledger=str(self.ledger_path),
                **self.start.arguments,
            )
            self.ids.append(workflow_id)
            if self.start.signal:
                self.client.signal_workflow(workflow_id, self.start.signal, request_id=workflow_id)
            self.parks |= {history_audit.key_of(workflow_id, name) for name in self.start.parks}
            self._counted = False
        if count is None:
            self.arena.say(f"{len(self.ids)} workflows started")

    def top_up(self) -> None:
        """Starts as many workflows as have ended, so that the load goes on as it began."""
        self.submit(max(0, self.completed + self._count - len(self.ids)))

    def redrive(self) -> None:
        """Redrives what is parked and may be, every now and then; nobody else does."""
        if not self.start.parks or time.monotonic() - self._redriven_at < REDRIVE_EVERY_S:
            return
        self._redriven_at = time.monotonic()
        with contextlib.suppress(PerdureError):
            for letter in self._impatient.list_dead_letters(limit=PAGE).dead_letters:
                with contextlib.suppress(NotFound):
                    self._impatient.redrive_dead_letter(letter.workflow_id, letter.activity_id)
                    self.redriven += 1

    def done(self) -> bool:
        """Whether every effect that is wanted is there."""
        return self.effects >= self.effects_wanted

    def await_end(self) -> None:
        """Waits until every workflow has ended; one that does not is a violation.

        The faults are over: at least 20 s are left to it, however long they took.
        """
        limit_s = max(SETTLE_S, self.arena.left_s())
        until = time.monotonic() + limit_s
        while not (self._counted and self.completed == len(self.ids) and not self._stale):
            self.look()
            if time.monotonic() > until:
                break
            time.sleep(PAUSE_S)
        self._counted_at = 0.0
        self.look()
        if left := [it for it in self.ids if it in self._running or not self._counted]:
            self.arena.violate(
                f"{len(left)} workflows, {left[0]} among them, did not end within "
                f"{limit_s:.0f} s after the last fault"
            )

    # --- what can be seen meanwhile ------------------------------------------------------
    def look(self) -> None:
        """Reads what is new in the ledger, reports with tokens that are dead, and shows numbers."""
        for run in self.ledger.runs(self._newest):
            self._saw(run)
        self.effects = self.ledger.effects_count()
        self._report_stale()
        self.redrive()
        self._count_completed()
        progress = self.arena.progress
        progress.bar("workflows", self.completed, max(len(self.ids), self._count))
        progress.bar("effects", self.effects, self.effects_wanted)
        progress.text(
            f"{len(self.runs)} attempts, {self.redelivered} cut off by a kill and run again; "
            f"{self.stale_refused} reports of dead attempts refused"
        )

    def cut_off(self, fault: Fault) -> list[Run]:
        """The runs that a kill of `fault.pids` cut off; the next run of each counts as caused by
        it.
        """
        found = [run for run in self.ledger.open_runs() if run.pid in fault.pids]
        for run in found:
            later = [it for it in self.by_key.get(run.key, ()) if it.number > run.number]
            if not later:
                self._cut_off[run.number] = fault
            elif run.number not in self._redelivered:
                self._ran_again(run, later[0], fault)
        return found

    def _ran_again(self, run: Run, again: Run, fault: Fault) -> None:
        self._redelivered.add(run.number)
        self._recovered(fault, again)

    def _saw(self, run: Run) -> None:
        self._strangers |= run.pid not in self.arena.roles
        before = self.by_key.setdefault(run.key, [])
        self.runs[run.number] = run
        self._newest = run.number
        for earlier in before:
            fault = self._cut_off.get(earlier.number)
            if fault is not None and earlier.pid != run.pid:
                del self._cut_off[earlier.number]
                self._ran_again(earlier, run, fault)
        before.append(run)
        live = self._live.setdefault(run.key, run)
        if live.token != run.token:
            older, self._live[run.key] = sorted((live, run), key=lambda it: it.grant)
            self._stale.append(older)

    def _recovered(self, fault: Fault, run: Run) -> None:
        """Notes how long it took, but for kills of the whole node, which include its start."""
        nodes = [it.at_ms for it in self.arena.faults if it.target == "node"]
        if not any(fault.at_ms <= at_ms <= run.began_ms for at_ms in nodes):
            self.arena.recoveries_ms.append(run.began_ms - fault.at_ms)

    def _report_stale(self) -> None:
        """Does with every dead token once what a worker would that came back from the dead."""
        for _ in range(min(STALE_AT_ONCE, len(self._stale))):
            run = self._stale[0]
            try:
                accepted = [
                    what for what in ("heartbeat", "report") if self._from_the_dead(what, run)
                ]
            except PerdureError:
                return  # Not answered: the node is busy or gone; the token is tried again.
            for what in accepted:
                self.arena.violate(f"a stale {what} was accepted: {run.key} #{run.attempt}")
            self.stale_refused += not accepted
            self._stale.popleft()

    def _from_the_dead(self, what: str, run: Run) -> bool:
        """Whether a heartbeat or a report with a dead token is taken."""
        try:
            if what == "heartbeat":
                self._impatient.record_heartbeat(run.token, "a heartbeat from the dead")
            else:
                self._impatient.complete_activity_task(run.token, "a report from the dead")
        except (FailedPrecondition, NotFound):
            return False
        return True

    def _count_completed(self) -> None:
        if time.monotonic() - self._counted_at < COUNT_EVERY_S:
            return
        self._counted_at = time.monotonic()
        if self._strangers:
            self.arena.learn_roles(self.node)
            self._strangers = False
        try:
            self._running = self._ask_running()
        except PerdureError:
            return  # Asked again: the node is busy or gone.
        self._counted = True
        self.completed = sum(1 for it in self.ids if it not in self._running)

    def _ask_running(self) -> set[str]:
        found, page = set(), None
        while True:
            answer = self._impatient.list_workflows(status="Running", limit=PAGE, page=page)
            found |= {it.workflow_id for it in answer.workflows}
            page = answer.next_page
            if page is None:
                return found

    # --- the evidence ----------------------------------------------------------------------
    def told(self) -> list[history_audit.Told]:
        """What the durable history says of every workflow, read through a client."""
        found = [
            history_audit.read(workflow_id, self.client.history(workflow_id))
            for workflow_id in self.ids
        ]
        for workflow_id in self.others:
            runs = self.client.describe_workflow(workflow_id).run
            found += [
                history_audit.read(workflow_id, self.client.history(workflow_id, run=run), run)
                for run in range(1, runs + 1)
            ]
        for workflow_id in self.ids:
            child = f"{workflow_id}{self.start.child}"
            found += [
                history_audit.read(child, self.client.history(child, run=run), run)
                for run in range(1, self.start.child_runs + 1)
            ]
        return found

    def counts(self) -> history_audit.Counts:
        """History and ledger held against each other. A workflow that ended otherwise than
        Completed is a violation.
        """
        told = self.told()
        ends = {each.workflow_id: each.status for each in told}
        self.completed = sum(1 for it in self.ids if ends[it] == "Completed")
        for workflow_id in self.ids:
            if ends[workflow_id] not in ("Completed", "Running"):
                self.arena.violate(f"{workflow_id} ended {ends[workflow_id]}")
        return history_audit.compare(
            told,
            self.ledger.effects(),
            self.ledger.runs(),
            self.ledger.asked(),
            parks=self.parks,
            by_hand=self.by_hand,
            returns_receipts=self.start.returns_receipts,
        )
