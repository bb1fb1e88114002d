"""One journey of the drill `boundaries` on a real node: die, recover, finish the work, look."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from chaos.apps.errand import STEPS
from chaos.auditor import AuditReport, audit_data_dir
from chaos.client_history import Recorder, RecordingClient
from chaos.drills.boundaries_client import NeverDone, run_errands
from chaos.drills.boundaries_plan import CHECKPOINTS, CLIENT, ROOT_STARTS, ROOT_STOPS, Journey, Leg
from chaos.drills.boundaries_sundry import CONFIGURATION, OUTBOX, Errors, run_sundries, sundries
from chaos.harness import NodeProcess, NodeTrouble
from chaos.history_audit import Counts
from perdure.clock import boottime_ms, wall_ms
from perdure.crash_points import ONCE_VARIABLE, POINT_VARIABLE
from perdure.effects import SqliteEffects
from perdure.errors import DeadlineExceeded, PerdureError, Unavailable
from perdure.store import vfs_hook

APPS = ("chaos.apps.errand", "chaos.apps.sundry")
VFS = "chaos.faults.crash_vfs:register"
ERRANDS = 2
SUNDRY_WORKFLOWS = 4  # Itself, its child, what its schedule and what its outbox have started.
# A checkpoint begins when the log has grown by 4 MiB.
BULK_ERRANDS = 3
BULK_BYTES = 1_900_000
ROUNDS = 4
STARTS = 3
CALL_MS = 1_500
WORK_S = 25.0
# How long after its work is done a process may still come to where it dies.
LINGER_S = 0.3
CHECKPOINT_S = 2.0
CLIENT_S = 20.0
TICK_S = 0.005


T = TypeVar("T")


class Death(msgspec.Struct, frozen=True):
    """Somebody died where he was to. `took_ms`: from the death to the end of the work."""

    leg: Leg
    pid: int
    at_ms: int
    took_ms: int


class Visit:
    """A journey under way, in a directory of its own. `say` hears of each death."""

    def __init__(
        self, journey: Journey, directory: Path, say: Callable[[Death], None] = lambda death: None
    ) -> None:
        self.journey = journey
        self.ledger = directory / "effects.db"
        self.violations: list[str] = []
        self.deaths: list[Death] = []
        self.workflows = 0
        self.keys: set[str] = set()
        """Of the effects that there must be now."""
        self.audit: AuditReport | None = None
        self.counts: Counts | None = None
        self._tokens = directory / "once"
        self._say = say
        self._is_client = journey.legs[0].role == CLIENT
        self._arming = {POINT_VARIABLE: journey.armed, ONCE_VARIABLE: str(self._tokens)}
        armed = {} if self._is_client else {**self._arming, vfs_hook.VARIABLE: VFS}
        self.node = NodeProcess(directory, apps=APPS, workers=1, slots=8, environment=armed)
        if journey.is_sundry:
            (directory / "perdure.toml").write_text(CONFIGURATION)
        # Every answer of it is held against the log at the end.
        self._heard = Recorder(all_clients=not (self._is_client or journey.is_sundry))
        self.client = RecordingClient(
            self._heard, "client", data_dir=self.node.data, timeout_ms=CALL_MS
        )
        self._worked_ms = 0  # When the last round of work was at its end.
        self._is_over = False

    def abort(self) -> None:
        """From another thread: end it soon."""
        self._is_over = True
        self.client.close()

    def close(self) -> None:
        """Ends what runs."""
        self.client.close()
        self.node.kill_all()
        self.node.stop()

    # --- the journey -----------------------------------------------------------------
    def travel(self) -> None:
        """Visits one boundary after the other, up to one that is not reached, and audits."""
        try:
            for number, leg in enumerate(self.journey.legs, start=1):
                if not self._visit(number, leg):
                    break
            # Whoever died last is needed once more.
            self._work("last", 1, 0)
        except (PerdureError, NodeTrouble, NeverDone, Errors) as problem:
            self._violate(str(problem))
        self.node.kill_all()
        self._audit()

    def _visit(self, number: int, leg: Leg) -> bool:
        for again in range(ROUNDS):
            if self._token_ms(number) is None:
                self._provoke(leg)
            if not self._is_done(number):
                self._round(f"{number}.{again}", leg)
            if self._is_done(number) or self._dies_soon(number, leg):
                if not self._is_done(number):
                    self._work(f"{number}.after", 1, 0)
                self._note(number, leg)
                return True
        return False

    def _provoke(self, leg: Leg) -> None:
        """Brings the node up, and to where the root dies, if it is the root that is to die."""
        if leg.point in ROOT_STARTS:
            self.node.kill_all()
        self._come_up()
        if leg.point in ROOT_STOPS:
            self.node.stop()

    def _round(self, name: str, leg: Leg) -> None:
        if self._is_client:
            self._die_as_client(self._ids(name, ERRANDS))
        if leg.is_sundry:
            self._work_sundry(name)
        elif leg.point in CHECKPOINTS:
            self._work(name, BULK_ERRANDS, BULK_BYTES)
        else:
            self._work(name, ERRANDS, 0)

    def _work(self, name: str, count: int, filler_bytes: int) -> None:
        """Errands to their end, whoever dies meanwhile. Raises NeverDone."""
        ids = self._ids(name, count)
        results = self._insist(
            lambda: run_errands(self.client, self.ledger, ids, filler_bytes), ", ".join(ids)
        )
        self.workflows += len(ids)
        self.keys |= {f"{workflow_id}/{step}" for workflow_id in ids for step in STEPS}
        self._compare(results)

    def _work_sundry(self, name: str) -> None:
        """A sundry, all that belongs to it, and an errand. Raises NeverDone, Errors."""
        it = sundries(f"sundry-{name}", self.ledger, self.node.directory / OUTBOX)
        keys = self._insist(lambda: run_sundries(self.client, it), it.name)
        self.workflows += SUNDRY_WORKFLOWS
        self.keys |= set(keys)

    def _insist(self, work: Callable[[], T], name: str) -> T:
        """What comes of `work`, whoever dies meanwhile: it is begun again. Raises NeverDone, some
        time after the last death that was meant to be.
        """
        problem, fired = "", self._fired()
        deadline = time.monotonic() + WORK_S
        while not self._is_over:
            self._come_up()
            try:
                result = work()
            except (Unavailable, DeadlineExceeded) as error:
                problem = str(error)
            else:
                self._worked_ms = wall_ms()
                return result
            if self._fired() > fired:
                fired, deadline = self._fired(), time.monotonic() + WORK_S
            elif time.monotonic() > deadline:
                break
        raise NeverDone(f"{name} did not end within {WORK_S:.0f} s: {problem}")

    def _compare(self, results: dict[str, list[str]]) -> None:
        for workflow_id, receipts in results.items():
            wanted = [f"receipt of {workflow_id}/{step}" for step in STEPS]
            if receipts != wanted:
                self._violate(f"{workflow_id} returned {receipts}, not {wanted}")

    def _come_up(self) -> None:
        """Starts the node where it does not run; at a start it may be meant to die."""
        for _ in range(len(self.journey.legs) + 1):
            if self.node.is_running or self._is_over:
                return
            self.node.kill_all()
            fired = self._fired()
            try:
                self.node.start()
            except NodeTrouble:
                if self._fired() == fired:
                    raise
        raise NodeTrouble("the node died at every start")

    def _die_as_client(self, ids: list[str]) -> None:
        """The client that dies is a process of its own."""
        command = [sys.executable, "-P", "-m", "chaos.drills.boundaries_client"]
        subprocess.run(
            [*command, str(self.node.data), str(self.ledger), *ids],
            env={**os.environ, **self._arming},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=CLIENT_S,
            check=False,
        )

    # --- deaths ------------------------------------------------------------------------
    def _token(self, number: int) -> Path:
        return self._tokens.with_name(f"{self._tokens.name}.{number}")

    def _token_ms(self, number: int) -> int | None:
        """When somebody died at this leg; None: nobody has."""
        try:
            return self._token(number).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def _fired(self) -> int:
        legs = range(1, len(self.journey.legs) + 1)
        return sum(1 for number in legs if self._token_ms(number) is not None)

    def _is_done(self, number: int) -> bool:
        """Whether work went to its end after the death."""
        died_ms = self._token_ms(number)
        return died_ms is not None and died_ms < self._worked_ms

    def _dies_soon(self, number: int, leg: Leg) -> bool:
        until = time.monotonic() + (CHECKPOINT_S if leg.point in CHECKPOINTS else LINGER_S)
        while time.monotonic() < until:
            if self._token_ms(number) is not None:
                return True
            time.sleep(TICK_S)
        return False

    def _note(self, number: int, leg: Leg) -> None:
        point, role, pid = self._token(number).read_text().split()
        if point != leg.point.name or not (role == "-" or role.startswith(leg.role)):
            self._violate(f"{role} died at {point}, not {leg.name}")
        died_ms = self._token_ms(number) or 0
        at_ms = boottime_ms() - (wall_ms() - died_ms)
        death = Death(leg, int(pid), at_ms, self._worked_ms - died_ms)
        self.deaths.append(death)
        self._say(death)

    # --- the end -----------------------------------------------------------------------
    def _audit(self) -> None:
        """Holds log, tables, ledger and what the client heard against each other, and the ledger
        against what was asked for.
        """
        ledgers = [self.ledger] if self.ledger.exists() else []
        self.audit = audit_data_dir(self.node.data, ledgers, [self._heard.history()], settled=True)
        if self.audit.violations:
            self._violate(f"the auditor found invariants {list(self.audit.found)} violated")
        wanted = self.keys
        with SqliteEffects(self.ledger) as effects:
            applied = effects.applied()
            asked = Counter(each.key for each in effects.deliveries())
        lost = sorted(wanted - applied.keys())
        doubled = sorted(key for key, times in applied.items() if times > 1)
        for what, keys in (("lost", lost), ("doubled", doubled)):
            if keys:
                self._violate(f"{what}: {', '.join(keys)}")
        self.counts = Counts(
            keys=len(wanted),
            applied_once=len(wanted) - len(lost) - len(doubled),
            delivered_more_than_once=sum(1 for key in wanted if asked[key] > 1),
            lost=len(lost),
            doubled=len(doubled),
            violations=(),
        )

    def _violate(self, text: str) -> None:
        self.violations.append(f"journey {self.journey.name} ({self.journey.armed}): {text}")

    @staticmethod
    def _ids(name: str, count: int) -> list[str]:
        return [f"errand-{name}.{number}" for number in range(count)]
