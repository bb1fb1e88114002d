"""Receivers' evidence: which effects were asked for and which were applied.

Read straight from the files of perdure.effects.SqliteEffects and of FlakyDemo, sharing no code with
either. The simulator hands over rows of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from chaos.auditor.findings import Findings

BUSY_MS = 10_000
DEMO_TYPE = "flaky_step"
RETURNED = "returned"


class Delivery(NamedTuple):
    """One call of a receiver. `token_hash`, `fence`, `payload_hash`: None where it was not told."""

    key: str
    attempt: int
    token_hash: str | None
    fence: int | None
    payload_hash: str | None
    applied: bool
    at_ms: int = 0


class Ledger(msgspec.Struct, kw_only=True):
    """All that one receiver knows, in the order in which it happened.

    `results`: what the first application of each key gave, encoded; None where the receiver keeps
    no such table. `covers`: types whose every completed activity must have its effect here.
    `receipts`: key -> what an activity of those types returns. `returned`: the (key, attempt) that
    were seen to return; None where nobody looked.
    """

    name: str
    deliveries: list[Delivery]
    results: dict[str, bytes] | None = None
    covers: frozenset[str] = frozenset()
    receipts: dict[str, Any] | None = None
    returned: set[tuple[str, int]] | None = None
    # How often the effect itself stands there, where that can be seen apart from the deliveries.
    effects: list[str] | None = None
    # How many of the deliveries were there before the log was read: later ones may be under leases
    # that it does not have yet. None: all.
    leased: int | None = None


def length(path: Path) -> int:
    """How many deliveries the ledger in this file has by now. OSError where there is no file,
    ValueError where it is no ledger.
    """
    connection = _open(path)
    try:
        return int(connection.execute("SELECT count(*) FROM perdure_deliveries").get)
    except apsw.NotADBError as problem:
        raise _is_none(path) from problem
    except (apsw.Error, UnicodeDecodeError):
        return 0  # Said by `read`.
    finally:
        connection.close()


def read(
    path: Path,
    found: Findings,
    covers: frozenset[str] = frozenset(),
    leased: int | None = None,
) -> Ledger:
    """The ledger in this file. OSError where there is no file, ValueError where it is no ledger;
    what can't be read of one is reported.
    """
    connection = _open(path)
    ledger = Ledger(name=path.name, deliveries=[], covers=covers, leased=leased)
    try:
        connection.execute("BEGIN")
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
        if tables and "perdure_deliveries" not in tables:
            raise _is_none(path)
        if not tables:
            found.note(f"{path.name} is an empty ledger: nothing to compare")
            return ledger
        _deliveries(connection, ledger)
        if "demo_effects" in tables:
            _demo(connection, ledger)
    except apsw.NotADBError as problem:
        raise _is_none(path) from problem
    except (apsw.Error, UnicodeDecodeError) as problem:
        found.add(38, f"ledger {path.name}", f"can't be read: {problem}")
    finally:
        connection.close()
    return ledger


def _is_none(path: Path) -> ValueError:
    return ValueError(f"{path} is no ledger: give a database of perdure.effects.SqliteEffects")


def _open(path: Path) -> apsw.Connection:
    if not path.is_file():
        raise FileNotFoundError(f"there is no ledger {path}")
    # For writing, because a log left by a killed process must be recovered before it can be read.
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as problem:
        raise OSError(f"cannot open the ledger {path}: {problem}") from problem
    connection.set_busy_timeout(BUSY_MS)
    return connection


def _deliveries(connection: apsw.Connection, ledger: Ledger) -> None:
    query = (
        "SELECT key, attempt, token_hash, fence, payload_hash, applied, at_ms"
        " FROM perdure_deliveries ORDER BY number"
    )
    for row in connection.execute(query):
        ledger.deliveries.append(Delivery._make(row))
    ledger.results = dict(connection.execute("SELECT key, result FROM perdure_effects"))


def _demo(connection: apsw.Connection, ledger: Ledger) -> None:
    ledger.covers |= {DEMO_TYPE}
    ledger.effects, ledger.receipts = [], {}
    for key, receipt in connection.execute("SELECT key, receipt FROM demo_effects ORDER BY number"):
        ledger.effects.append(key)
        ledger.receipts.setdefault(key, receipt)
    ledger.returned = set(
        connection.execute("SELECT key, attempt FROM demo_runs WHERE ending = ?", (RETURNED,))
    )
