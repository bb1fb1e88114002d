"""The drill `flaky`: FlakyDemo workflows run to their end while their workers and the whole node
are SIGKILLed.

Half of the worker kills fall where they hurt most: the ledger shows an effect that is applied and
not yet reported, and that worker dies at that moment. The others fall at random.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from chaos import history_audit
from chaos.drills.flaky_plan import Options, plan
from chaos.harness import NodeProcess, NodeTrouble
from chaos.ledger_audit import LedgerFile, Run
from chaos.progress import Progress, State
from chaos.report import Report, Verdict, spread
from perdure.client import Client
from perdure.clock import boottime_ms
from perdure.errors import DeadlineExceeded, FailedPrecondition, PerdureError, WorkflowFailed

WORKERS = 2
# More than there are workflows: what a killed worker held never waits for a slot.
SLOTS = 24
TICK_S = 0.004
COUNT_EVERY_S = 0.3
PAGE = 1_000


class Kill(msgspec.Struct, frozen=True):
    """A kill that was done, and the runs that it cut off."""

    kind: str
    at_ms: int
    pids: tuple[int, ...]
    cut_off: tuple[int, ...]


class Drill:
    """One run of the drill: the node, the ledger, the kills so far."""

    def __init__(self, options: Options, directory: Path, progress: Progress) -> None:
        self.options = options
        self.ids = [f"flaky-{options.seed}-{number}" for number in range(1, options.workflows + 1)]
        self.progress = progress
        self.state = progress.state
        self.dice = random.Random(options.seed + 1)
        self.ledger_path = directory / "effects.db"
        self.ledger = LedgerFile(self.ledger_path)
        self.node = NodeProcess(directory, apps=("perdure.demo",), workers=WORKERS, slots=SLOTS)
        self.client: Client | None = None
        self.kills: list[Kill] = []
        self.runs: dict[int, Run] = {}
        self.by_key: dict[str, list[Run]] = {}
        self.refused: set[str] = set()
        self.violations: list[str] = []
        self.counted_at = 0.0

    # --- the node -------------------------------------------------------------
    def bring_up(self) -> None:
        """Starts the node, and a client of it."""
        endpoint = self.node.start()
        self.client = Client(endpoint)
        self.progress.event(f"node ready after {self.node.ready_ms[-1]} ms")

    def bring_down(self) -> None:
        """Ends client and node, whatever state they are in."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.node.stop)
            stack.callback(self._close_client)
            self.ledger.close()

    def _close_client(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    # --- the work --------------------------------------------------------------
    def submit(self) -> None:
        """Starts every workflow."""
        assert self.client is not None
        options = self.options
        for workflow_id in self.ids:
            self.client.start_workflow(
                "FlakyDemo",
                workflow_id=workflow_id,
                request_id=workflow_id,
                fail_rate=options.fail_rate,
                activities=options.activities,
                work_ms=options.work_ms,
                ledger=str(self.ledger_path),
                seed=options.seed,
            )
        self.progress.event(f"{len(self.ids)} workflows started")

    def torment(self, deadline: float) -> None:
        """Does the planned kills, each in its time, until all are done or the work is."""
        for blow in plan(self.options):
            while self.state.effects < blow.at_effects:
                self.look()
                if time.monotonic() > deadline:
                    return
                time.sleep(TICK_S)
            until = time.monotonic() + blow.delay_s
            while time.monotonic() < until:
                self.look()
                time.sleep(TICK_S)
            if blow.kind == "node":
                self.kill_node()
            elif not self.kill_worker(gap=blow.kind == "gap", deadline=deadline):
                return

    def kill_worker(self, *, gap: bool, deadline: float) -> bool:
        """SIGKILLs a worker: one between an effect and its report, or any; False where the work is
        over first.
        """
        while time.monotonic() < deadline and self.state.effects < self.state.effects_wanted:
            self.look()
            pids = self.node.worker_pids()
            busy = [run for run in self.ledger.open_runs() if run.pid in pids]
            if gap:
                busy = [run for run in busy if run.in_the_gap]
            if not busy:
                time.sleep(TICK_S)
                continue
            pid = self.dice.choice(busy).pid
            at_ms = boottime_ms()
            if not self.node.kill_worker(pid):
                continue
            cut_off = [run for run in self.ledger.open_runs() if run.pid == pid]
            self.note("gap" if gap else "worker", at_ms, (pid,), cut_off)
            where = "between effect and report" if gap else "at random"
            self.progress.event(f"SIGKILL worker {pid} {where}; it held {len(cut_off)}")
            return True
        return False

    def kill_node(self) -> None:
        """SIGKILLs the whole tree, and starts it again."""
        pids = tuple(process.pid for process in self.node.processes())
        self._close_client()
        at_ms = boottime_ms()
        self.node.kill_all()
        cut_off = [run for run in self.ledger.open_runs() if run.pid in pids]
        self.note("node", at_ms, pids, cut_off)
        self.progress.event(f"SIGKILL the node, {len(pids)} processes; they held {len(cut_off)}")
        self.bring_up()

    def note(self, kind: str, at_ms: int, pids: tuple[int, ...], cut_off: list[Run]) -> None:
        """Keeps a kill as evidence."""
        self.kills.append(Kill(kind, at_ms, pids, tuple(run.number for run in cut_off)))
        self.state.kills = sum(1 for kill in self.kills if kill.kind != "node")
        self.state.restarts = sum(1 for kill in self.kills if kill.kind == "node")

    def await_end(self, deadline: float) -> int:
        """Waits until every workflow is closed; how many completed."""
        assert self.client is not None
        completed = 0
        for workflow_id in self.ids:
            completed += self._await_one(self.client, workflow_id, deadline)
        self.look()
        self.state.completed = completed
        return completed

    def _await_one(self, client: Client, workflow_id: str, deadline: float) -> bool:
        while time.monotonic() < deadline:
            self.look()
            try:
                client.result(workflow_id, timeout_ms=200)
            except DeadlineExceeded:
                continue
            except WorkflowFailed as error:
                self.violations.append(f"{workflow_id} ended {error.status}: {error.message}")
                return False
            except PerdureError as error:
                self.violations.append(f"{workflow_id}: {error.code}: {error.message}")
                return False
            return True
        self.violations.append(f"{workflow_id} did not end within {self.options.deadline_s:.0f} s")
        return False

    # --- what can be seen meanwhile --------------------------------------------
    def look(self) -> None:
        """Reads the ledger, reports with tokens that are dead, and shows the numbers."""
        for run in self.ledger.runs(max(self.runs, default=0)):
            self.runs[run.number] = run
            self.by_key.setdefault(run.key, []).append(run)
        self.state.runs = len(self.runs)
        self.state.effects = self.ledger.effects_count()
        self.state.redelivered = len(self.run_again())
        self.report_stale()
        if time.monotonic() - self.counted_at > COUNT_EVERY_S and self.client is not None:
            self.counted_at = time.monotonic()
            with contextlib.suppress(PerdureError):
                found = self.client.list_workflows(status="Completed", limit=PAGE)
                self.state.completed = sum(
                    1 for it in found.workflows if it.workflow_id in self.ids
                )
        self.progress.tick()

    def run_again(self) -> set[int]:
        """The runs that a kill cut off and that were run again since."""
        return {number for kill in self.kills for number in kill.cut_off if self.next_of(number)}

    def next_of(self, number: int) -> Run | None:
        """The next run of the same key in another process."""
        first = self.runs.get(number)
        if first is None:
            return None
        later = (r for r in self.by_key[first.key] if r.number > number and r.pid != first.pid)
        return next(later, None)

    def stale_runs(self) -> Iterator[Run]:
        """Runs that another has followed: their tokens are dead."""
        for runs in self.by_key.values():
            live = runs[-1].token
            yield from (run for run in runs[:-1] if run.token not in {live, *self.refused})

    def report_stale(self) -> None:
        """Reports, as a worker would that came back from the dead, with every dead token once: to
        be refused.
        """
        if self.client is None:
            return
        for run in list(self.stale_runs()):
            try:
                self.client.complete_activity_task(run.token, "a report from the dead")
            except FailedPrecondition:
                self.refused.add(run.token)
            except PerdureError:
                return  # Not answered: the node is busy or gone; the token is tried again.
            else:
                self.refused.add(run.token)
                self.violations.append(f"a stale report was accepted: {run.key} #{run.attempt}")
        self.state.stale_refused = len(self.refused)

    # --- the proof ---------------------------------------------------------------
    def recoveries_ms(self) -> list[int]:
        """From each worker's kill to the next run of each thing that it held; node restarts in
        between left out.
        """
        node_kills = [kill.at_ms for kill in self.kills if kill.kind == "node"]
        lengths = []
        for kill in self.kills:
            if kill.kind == "node":
                continue
            for number in kill.cut_off:
                again = self.next_of(number)
                if again is None:
                    continue
                if any(kill.at_ms <= at_ms <= again.began_ms for at_ms in node_kills):
                    continue
                lengths.append(again.began_ms - kill.at_ms)
        return lengths

    def told(self) -> list[history_audit.Told]:
        """The history of every workflow, all pages."""
        assert self.client is not None
        told = []
        for workflow_id in self.ids:
            events: list[Any] = []
            while page := _events(self.client, workflow_id, events):
                events += page
            told.append(history_audit.read(workflow_id, events))
        return told


def _events(client: Client, workflow_id: str, so_far: list[Any]) -> list[Any]:
    after = so_far[-1]["event_id"] if so_far else 0
    return list(client.history(workflow_id, after=after, limit=PAGE))


def run(options: Options) -> tuple[Report, dict[str, Any]]:
    """Runs the drill; its report and the evidence. Nothing is left running, and no file."""
    began = time.monotonic()
    state = State(
        workflows=options.workflows,
        effects_wanted=options.workflows * options.activities,
        kills_wanted=options.kills,
        restarts_wanted=options.server_restarts,
    )
    title = (
        f"drill flaky, seed {options.seed}: {options.workflows} workflows, {options.kills} worker "
        f"kills, {options.server_restarts} node kills"
    )
    with (
        tempfile.TemporaryDirectory(prefix="perdure-drill-") as scratch,
        Progress(title, state, live=options.live) as progress,
    ):
        drill = Drill(options, Path(scratch), progress)
        try:
            return _run(drill, began)
        finally:
            drill.bring_down()


def _run(drill: Drill, began: float) -> tuple[Report, dict[str, Any]]:
    deadline = began + drill.options.deadline_s
    drill.bring_up()
    drill.submit()
    completed, told = 0, []
    try:
        drill.torment(deadline)
        completed = drill.await_end(deadline)
        told = drill.told()
    except NodeTrouble as trouble:
        drill.violations.append(str(trouble))
    except PerdureError as error:
        drill.violations.append(f"the history could not be read: {error.code}: {error.message}")
    report = judge(drill, completed, told, int((time.monotonic() - began) * 1_000))
    drill.progress.event(f"{report.verdict}: {report.applied_once} of {report.keys} applied once")
    return report, evidence(drill)


def judge(drill: Drill, completed: int, told: list[history_audit.Told], took_ms: int) -> Report:
    """The counts and the verdict."""
    counts = history_audit.compare(
        told, drill.ledger.effects(), list(drill.ledger.runs()), drill.ledger.asked()
    )
    violations = (*drill.violations, *counts.violations)
    again = drill.run_again()
    # A retry after a failure is a second delivery too: only one that a kill caused shows that the
    # kills bit.
    bit = bool(again) or drill.options.kills + drill.options.server_restarts == 0
    if violations:
        verdict = Verdict.VIOLATED
    elif bit and counts.delivered_more_than_once:
        verdict = Verdict.PROVED
    else:
        verdict = Verdict.INCONCLUSIVE
    return Report(
        drill="flaky",
        seed=drill.options.seed,
        verdict=verdict,
        workflows=drill.options.workflows,
        completed=completed,
        keys=counts.keys,
        applied_once=counts.applied_once,
        delivered_more_than_once=counts.delivered_more_than_once,
        lost=counts.lost,
        doubled=counts.doubled,
        kills=drill.state.kills,
        server_restarts=drill.state.restarts,
        stale_refused=len(drill.refused),
        recovery_ms=spread(drill.recoveries_ms()),
        violations=violations,
        redelivered_by_kills=len(again),
        took_ms=took_ms,
    )


def evidence(drill: Drill) -> dict[str, Any]:
    """What the report was computed from, as far as a reader may want to see it."""
    return {
        "options": drill.options,
        "kills": drill.kills,
        "ready_ms": drill.node.ready_ms,
        "recoveries_ms": drill.recoveries_ms(),
        "runs": len(drill.runs),
    }
