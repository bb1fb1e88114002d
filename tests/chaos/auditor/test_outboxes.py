"""A user's outbox against the store: one row of it wrong, found under its number."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from chaos.auditor import AuditReport, audit_data_dir
from perdure.outbox.table import SQLITE_SCHEMA

ROWS = (
    # As the store of `patient` has it: workflows that began with these very requests.
    ("request-w-plain", "StartWorkflow", "w-plain", "done", 5, None),
    ("request-w-final", "StartWorkflow", "w-final", "done", 6, None),
    ("again", "StartWorkflow", "w-plain", "failed", 7, "ALREADY_EXISTS"),
    ("later", "StartWorkflow", "w-later", "pending", None, None),
    ("noted", "StartWorkflow", "w-noted", "pending", None, "UNAVAILABLE"),
)


class Outbox:
    def __init__(self, path: Path, data: Path) -> None:
        self.path, self.data = path, data
        self.db = apsw.Connection(str(path))
        self.db.execute(SQLITE_SCHEMA)
        for id_, op, workflow_id, state, ended_ms, code in ROWS:
            self.db.execute(
                "INSERT INTO perdure_outbox (id, op, workflow_id, name, args, created_ms, state,"
                " ended_ms, code) VALUES (?, ?, ?, '', x'90', 1, ?, ?, ?)",
                (id_, op, workflow_id, state, ended_ms, code),
            )

    def audit(self) -> AuditReport:
        return audit_data_dir(self.data, [], [self.path])


@pytest.fixture
def outbox(patient, tmp_path) -> Outbox:
    made = Outbox(tmp_path / "shop.db", patient.data)
    yield made
    made.db.close()


def test_rows_that_agree_with_the_store_are_counted_by_what_became_of_them(outbox):
    report = outbox.audit()
    assert report.violations == ()
    told = report.operations
    assert (told.ok, told.refused, told.unknown) == (2, 1, 2)


@pytest.mark.parametrize(
    ("change", "number", "text"),
    [
        ("workflow_id = 'w-gone' WHERE seq = 1", 5, "the log has no such workflow"),
        ("id = 'other' WHERE seq = 1", 6, "but request-w-plain did"),
        (
            "state = 'failed', code = 'INVALID_ARGUMENT' WHERE seq = 2",
            8,
            "was refused (INVALID_ARGUMENT), and it was started all the same",
        ),
        ("state = 'lost' WHERE seq = 2", 13, "its state 'lost' makes no sense"),
        ("ended_ms = NULL WHERE seq = 2", 13, "it is done, ended at None, with code None"),
        ("code = NULL WHERE seq = 3", 13, "it is failed, ended at 7, with code None"),
        ("ended_ms = 4 WHERE seq = 4", 13, "it is pending, ended at 4, with code None"),
    ],
)
def test_a_row_with_one_thing_wrong(outbox, change, number, text):
    outbox.db.execute(f"UPDATE perdure_outbox SET {change}")
    (found,) = outbox.audit().violations
    assert found.invariant == number
    assert text in found.what


def test_a_database_without_an_outbox_is_no_history(outbox):
    outbox.db.execute("DROP TABLE perdure_outbox")
    with pytest.raises(ValueError, match=r"shop\.db is no database with an outbox"):
        outbox.audit()
