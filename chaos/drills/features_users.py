"""Users of the drill `features`: they signal, ask for updates, end what they began, finish what
others have asked for, and start workflows from transactions of their own.
"""

from __future__ import annotations

import contextlib
import sqlite3

from chaos.apps.fair import ASKED, CHILD, VISITS
from chaos.drills.features_fair import CALL_MS, OUTBOX, RESULT_MS, Person
from chaos.drills.features_notes import Row, Stall
from chaos.history_audit import key_of
from chaos.ledger_audit import LedgerFile
from perdure.errors import FailedPrecondition, NotFound, UpdateRejected
from perdure.outbox import SqliteOutbox


class Customer(Person):
    """Signals and orders at one stall, in turn as the dice have it."""

    def _begin(self) -> None:
        self._stall = Stall(self.fair.id_of(self.name, 1))
        self.fair.stalls.append(self._stall)
        self.begin_workflow("FairStall", self._stall.workflow_id)

    def _act(self, number: int) -> None:
        if self.dice.random() < 0.5:
            self._signal("call", number)
            self._stall.signals.append(number)
            self.fair.did["signals acknowledged"] += 1
        else:
            self._stall.answers[number] = self._order(number)
            self.fair.did["updates answered"] += 1
        if number % 7 == 0:
            self._refused(-number)

    def _finish(self) -> None:
        for number in self._stall.answers:
            self._stall.again[number] = self._order(number)
        self._signal("close", None)
        workflow_id = self._stall.workflow_id
        self._stall.result = self.insist(
            lambda: self.client.result(workflow_id, timeout_ms=RESULT_MS)
        )
        self._stall.runs = self.insist(lambda: self.client.describe_workflow(workflow_id).run)
        self.fair.did["runs that went on as new ones"] += self._stall.runs - 1

    def _signal(self, name: str, number: int | None) -> None:
        arguments = () if number is None else (number,)
        stall, request = self._stall.workflow_id, f"{name}-{number}"
        self.insist(
            lambda: self.client.signal_workflow(stall, name, *arguments, request_id=request)
        )

    def _order(self, number: int) -> str:
        stall, request = self._stall.workflow_id, f"order-{number}"
        return str(
            self.insist(
                lambda: self.client.update_workflow(
                    stall, "order", number, request_id=request, timeout_ms=CALL_MS
                )
            )
        )

    def _refused(self, number: int) -> None:
        try:
            self._order(number)
        except UpdateRejected:
            self.fair.did["updates rejected"] += 1
        else:
            self.violate(f"{self._stall.workflow_id} took the order {number}")


class Visitor(Person):
    """Comes, stays, and is asked to end, or is thrown out (one in four)."""

    def _act(self, number: int) -> None:
        kind = VISITS[number % len(VISITS)]
        is_thrown_out = (number // len(VISITS)) % 4 == 3
        workflow_id = self.fair.id_of(self.name, number)
        self.begin_workflow("FairVisit", workflow_id, kind=kind)
        if kind == "child":
            self.until(lambda: bool(self.client.describe_workflow(workflow_id).children))
            self.fair.load.others.append(workflow_id + CHILD)
        everybody = [workflow_id, *([workflow_id + CHILD] if kind == "child" else [])]
        self.until(lambda: self._stays(everybody[-1]))
        self.rest(self.dice.uniform(0, 0.4))
        ask = self.client.terminate_workflow if is_thrown_out else self.client.cancel_workflow
        self.insist(lambda: ask(workflow_id, "enough", request_id="end"))
        wanted = "Terminated" if is_thrown_out else "Cancelled"
        self.fair.did[f"{kind}: {wanted}"] += 1
        for each in everybody:
            if (status := self.end_of(each)) != wanted:
                self.violate(f"{each} was to be {wanted}, and is {status}")
            if not is_thrown_out and not self._has_left(each):
                self.violate(f"{each} was cancelled, and has not tidied up")

    def _stays(self, workflow_id: str) -> bool:
        found = self.client.describe_workflow(workflow_id)
        stay = [it for it in found.pending_activities if it.activity_id == "stay"]
        return bool(found.pending_timers) or any(it.state == "Leased" for it in stay)

    def _has_left(self, workflow_id: str) -> bool:
        events = self.insist(lambda: self.client.history(workflow_id))
        return any(
            it.kind == "ActivityTaskCompleted" and it.activity_id == "leave" for it in events
        )


class Hands(Person):
    """Completes by token what the errands have asked for, with an answer of its own each time."""

    def _begin(self) -> None:
        self._ledger = LedgerFile(self.fair.load.ledger_path)
        self._newest = 0
        self._done: set[str] = set()

    def _act(self, number: int) -> None:
        for run in self._ledger.runs(self._newest):
            self._newest = run.number
            if run.key.endswith(f"/{ASKED}") and run.key not in self._done:
                self._complete(run.key, run.token)

    def _finish(self) -> None:
        self.until(self._nothing_left)
        self._ledger.close()

    def _nothing_left(self) -> bool:
        self._act(0)
        wanted = {key_of(workflow_id, ASKED) for workflow_id in self.fair.load.ids}
        return self._done >= wanted

    def _complete(self, key: str, token: str) -> None:
        offered = self.fair.offered.setdefault(key, [])
        offered.append(f"{key}, answer {len(offered) + 1}")
        try:
            self.insist(lambda: self.client.complete_activity_task(token, offered[-1]))
        except (FailedPrecondition, NotFound):
            # Its worker died before it could say that somebody else would: another one asks anew.
            # Or an answer that got lost had said yes.
            if not self._is_complete(key):
                return
        self._done.add(key)
        self.fair.did["activities finished by hand"] += 1

    def _is_complete(self, key: str) -> bool:
        events = self.insist(lambda: self.client.history(key.rpartition("/")[0]))
        return any(it.kind == "ActivityTaskCompleted" and it.activity_id == ASKED for it in events)


class Shop(Person):
    """Writes orders to a database of its own, each with a start and a signal in the outbox; one
    transaction in four is rolled back.
    """

    def _begin(self) -> None:
        self._db = sqlite3.connect(self.fair.node.directory / OUTBOX, timeout=20)
        with self._db:
            self._db.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")

    def _act(self, number: int) -> None:
        is_kept = number % 4 != 0
        name = f"parcel-{self.fair.arena.options.seed}-{number}"
        outbox = SqliteOutbox(self._db)
        with contextlib.suppress(_Undone), self._db:
            self._db.execute("INSERT INTO orders VALUES (?)", (name,))
            outbox.start_workflow("FairParcel", workflow_id=name, ledger=self.fair.ledger)
            outbox.signal_workflow(name, "label", number)
            if not is_kept:
                raise _Undone
        self.fair.rows.append(Row(name, is_kept))
        if is_kept:
            self.fair.load.others.append(name)
            self.fair.did["orders through the outbox"] += 1

    def _finish(self) -> None:
        self.until(self._is_drained)
        self._db.close()

    def _is_drained(self) -> bool:
        query = "SELECT count(*) FROM perdure_outbox WHERE state <> 'done'"
        return not self._db.execute(query).fetchone()[0]


class _Undone(Exception):
    """Rolls a transaction back."""
