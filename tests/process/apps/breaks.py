"""Makes history fail on certain commands: named by PERDURE_TEST_VFS, called in its process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from perdure.core import ledger
from perdure.store import sqlite_changes


def install(data_dir: Path) -> None:
    """The decision on a workflow "raises…" raises; one "contradicts…" the store can't take."""
    decide, write = ledger.decide, sqlite_changes.write

    def deciding(execution: Any, command: Any, facts: Any) -> Any:
        if getattr(command, "workflow_id", "").startswith("raises"):
            raise ZeroDivisionError("in a decision")
        return decide(execution, command, facts)

    def writing(connection: Any, seqs: Any, change: Any) -> int:
        ended = write(connection, seqs, change)
        if any(one.workflow_id.startswith("contradicts") for one in change.started):
            raise apsw.ConstraintError("in a row")
        return ended

    ledger.decide, sqlite_changes.write = deciding, writing
