"""FlakyDemo: a workflow whose activities fail at a chosen rate and write their effect to a ledger.

Each step fails before its effect, or after it, or not at all, as a hash of seed, key and attempt
says: a run can be repeated. Between the effect and the report there is a pause, so that a kill in
between means a second delivery, which the ledger must ignore. Beside the effects the ledger notes
every run of a step (its process, token and instants): that is how a killer knows where to hit, and
how an observer can tell what was delivered twice.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import apsw

from perdure import activity, workflow
from perdure.clock import boottime_ms
from perdure.effects import SqliteEffects
from perdure.errors import InvalidArgument
from perdure.policy import RetryPolicy

LEDGER_VARIABLE = "PERDURE_LEDGER"
LEDGER_DEFAULT = ".perdure/effects.db"
STEPS_MAX = 1_000
# Bad luck parks nothing: at a rate of one half, a thousand failures in a row do not happen.
ATTEMPTS = 1_000
RETRY = RetryPolicy(initial_ms=20, backoff=2.0, max_interval_ms=500, max_attempts=ATTEMPTS)
BUSY_TIMEOUT_MS = 60_000

# `demo_effects` has no unique key on purpose: an effect that is applied twice stands there twice.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS demo_effects (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL, attempt INTEGER NOT NULL, receipt TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS demo_runs (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL, attempt INTEGER NOT NULL, pid INTEGER NOT NULL, token TEXT NOT NULL,
    began_ms INTEGER NOT NULL, applied_ms INTEGER, ended_ms INTEGER, ending TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS demo_runs_open ON demo_runs (number) WHERE ended_ms IS NULL;
"""


class Ledger:
    """The receiver's side: effects once a key, and a note of every run. Instants are boot time in
    ms.
    """

    def __init__(self, path: str) -> None:
        Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
        self._effects = SqliteEffects(path)
        self._effects.applied()  # Opens the file, and makes it a log that many processes may write.
        self._notes = apsw.Connection(path)
        self._notes.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Notes must outlive a process, not the machine: no sync for them.
        self._notes.execute("PRAGMA synchronous = OFF")
        self._lock = threading.Lock()
        self._write(_SCHEMA, ())

    def began(self, key: str, attempt: int, token: str) -> int:
        """Notes that a run of a step has begun; its number."""
        statement = (
            "INSERT INTO demo_runs (key, attempt, pid, token, began_ms) VALUES (?, ?, ?, ?, ?)"
        )
        return self._write(statement, (key, attempt, os.getpid(), token, boottime_ms()))

    def apply(self, key: str, attempt: int, token: str) -> str:
        """The effect, once a key: the receipt of the first application."""

        def insert(connection: apsw.Connection) -> str:
            receipt = f"{key} by attempt {attempt}"
            connection.execute(
                "INSERT INTO demo_effects (key, attempt, receipt) VALUES (?, ?, ?)",
                (key, attempt, receipt),
            )
            return receipt

        return str(self._effects.apply_once(key, insert, attempt=attempt, token=token))

    def applied(self, run: int) -> None:
        """Notes that the effect of this run is there, its report not yet."""
        self._write("UPDATE demo_runs SET applied_ms = ? WHERE number = ?", (boottime_ms(), run))

    def ended(self, run: int, ending: str) -> None:
        """Notes that the run is over and reports next: from here on a kill may hit nothing."""
        statement = "UPDATE demo_runs SET ended_ms = ?, ending = ? WHERE number = ?"
        self._write(statement, (boottime_ms(), ending, run))

    def _write(self, statement: str, values: tuple[str | int, ...]) -> int:
        with self._lock:
            self._notes.execute(statement, values)
            return self._notes.last_insert_rowid()


_ledgers: dict[tuple[int, str], Ledger] = {}
_ledgers_lock = threading.Lock()


def ledger_path(path: str | None = None) -> str:
    """Where the effects go: `path`, else $PERDURE_LEDGER, else .perdure/effects.db in the working
    directory.
    """
    return str(Path(path or os.environ.get(LEDGER_VARIABLE) or LEDGER_DEFAULT).absolute())


def open_ledger(path: str | None) -> Ledger:
    """The ledger at `ledger_path(path)`, one a process and file."""
    where = (os.getpid(), ledger_path(path))
    with _ledgers_lock:
        if where not in _ledgers:
            _ledgers[where] = Ledger(where[1])
        return _ledgers[where]


def chance(seed: int, key: str, attempt: int) -> float:
    """A number in [0, 1) that is the same for the same seed, key and attempt."""
    digest = hashlib.blake2b(f"{seed}/{attempt}/{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


@activity.define(retry=RETRY, start_to_close_ms=60_000)
def flaky_step(fail_rate: float, work_ms: int, ledger: str | None, seed: int) -> str:
    """One step: half of the work, the effect, the other half; fails before or after its effect by
    chance.
    """
    key, attempt, token = activity.idempotency_key(), activity.attempt(), activity.task_token()
    book = open_ledger(ledger)
    run = book.began(key, attempt, token)
    luck = chance(seed, key, attempt)
    time.sleep(work_ms / 2_000)
    if luck < fail_rate / 2:
        book.ended(run, "failed before its effect")
        raise activity.Error("Flaky", f"attempt {attempt} failed before its effect")
    receipt = book.apply(key, attempt, token)
    book.applied(run)
    time.sleep(work_ms / 2_000)
    if luck < fail_rate:
        book.ended(run, "failed after its effect")
        raise activity.Error("Flaky", f"attempt {attempt} failed after its effect")
    book.ended(run, "returned")
    return receipt


@workflow.define(name="FlakyDemo")
async def flaky_demo(
    fail_rate: float = 0.5,
    activities: int = 3,
    work_ms: int = 100,
    ledger: str | None = None,
    seed: int = 0,
    max_attempts: int = ATTEMPTS,
) -> list[str]:
    """Runs `activities` flaky steps one after the other; the receipts of their effects.

    `fail_rate`: the share of attempts that fail, 0 to 1. `work_ms`: how long an attempt takes.
    `ledger`: the effects' SQLite file, on the worker's machine. `max_attempts`: a low one lets a
    step end as a dead letter.
    """
    if not 0 <= fail_rate <= 1:
        raise InvalidArgument("fail_rate must be between 0 and 1", field="fail_rate")
    if not 0 <= activities <= STEPS_MAX:
        raise InvalidArgument(f"activities must be 0 to {STEPS_MAX}", field="activities")
    if not 0 <= work_ms <= 30_000:
        raise InvalidArgument("work_ms must be 0 to 30000", field="work_ms")
    retry = RetryPolicy(
        RETRY.initial_ms, RETRY.backoff, RETRY.max_interval_ms, max_attempts=max_attempts
    )
    receipts = []
    for step in range(1, activities + 1):
        receipt = await workflow.execute_activity(
            flaky_step, fail_rate, work_ms, ledger, seed, activity_id=f"step-{step}", retry=retry
        )
        receipts.append(receipt)
    return receipts
