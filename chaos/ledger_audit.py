"""The receiver's evidence: what the ledger of effects of FlakyDemo holds, read straight from its
file.

It shares no code with the engine or with the demo that wrote it.
"""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import msgspec

BUSY_TIMEOUT_MS = 10_000
MAC_BYTES = 12  # Of a token, before the address of its grant.


class Run(msgspec.Struct, frozen=True):
    """One run of one step, in the process `pid`. Instants are boot time in milliseconds."""

    number: int
    key: str
    attempt: int
    pid: int
    token: str
    began_ms: int
    applied_ms: int | None
    ended_ms: int | None
    ending: str | None

    @property
    def in_the_gap(self) -> bool:
        """True while its effect is applied and its report is not yet on its way."""
        return self.applied_ms is not None and self.ended_ms is None

    @property
    def grant(self) -> int:
        """Which grant of the activity it ran under, as its token says; 0 where that can't be read.

        The higher one is the younger, whoever began first: a worker that stood still may begin
        long after another that was given the activity after it.
        """
        try:
            grant = msgspec.msgpack.decode(base64.urlsafe_b64decode(self.token)[MAC_BYTES:])[-1]
        except (ValueError, TypeError, IndexError, msgspec.MsgspecError):
            return 0
        return grant if isinstance(grant, int) else 0


class Effect(msgspec.Struct, frozen=True):
    """One application of an effect."""

    key: str
    attempt: int
    receipt: str


class LedgerFile:
    """Reads the ledger while others write it; before the first effect it is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def runs(self, after: int = 0) -> list[Run]:
        """Every run with a number above `after`, in the order in which they began."""
        columns = ", ".join(Run.__struct_fields__)
        query = f"SELECT {columns} FROM demo_runs WHERE number > ? ORDER BY number"
        return [Run(*row) for row in self._rows(query, (after,))]

    def open_runs(self) -> list[Run]:
        """The runs that have not ended: those in progress, and those whose process was killed."""
        columns = ", ".join(Run.__struct_fields__)
        query = f"SELECT {columns} FROM demo_runs WHERE ended_ms IS NULL ORDER BY number"
        return [Run(*row) for row in self._rows(query)]

    def effects(self) -> list[Effect]:
        """Every application, in order."""
        query = "SELECT key, attempt, receipt FROM demo_effects ORDER BY number"
        return [Effect(*row) for row in self._rows(query)]

    def effects_count(self) -> int:
        """How many applications there are so far."""
        rows = self._rows("SELECT coalesce(max(number), 0) FROM demo_effects")
        return int(rows[0][0]) if rows else 0

    def asked(self) -> Counter[str]:
        """How often each key's effect was asked for: what arrived at the receiver."""
        rows = self._rows("SELECT key, count(*) FROM perdure_deliveries GROUP BY key")
        return Counter({str(key): int(count) for key, count in rows})

    def close(self) -> None:
        """Lets go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self, query: str, values: tuple[int, ...] = ()) -> list[tuple[Any, ...]]:
        if self._connection is None:
            if not self._path.exists():
                return []
            self._connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        try:
            return self._connection.execute(query, values).fetchall()
        except apsw.SQLError as error:
            # The file exists a moment before its tables do.
            if "no such table" in str(error):
                return []
            raise
