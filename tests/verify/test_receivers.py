"""Receivers of perdure.effects write to a stand-in that dies with nothing but the verification."""

from __future__ import annotations

import apsw
import pytest

from perdure.effects import SqliteEffects
from tests.verify.conftest import kinds

HEAD = """
import apsw
from perdure.effects import SqliteEffects
ledger = SqliteEffects('effects.db')
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_is_applied_outlives_the_process(one_activity):
    """Kept first and done then: the note survives the death between them."""
    body = """
    if ledger.applied():
        return
    ledger.apply_once()
    verify.effect('mail', 1)
    """
    result = one_activity(body, head=HEAD)
    assert kinds(result) == {("lost", "act", "mail")}
    assert [one.name for one in result.effects] == ["effects.db", "mail"]


def test_a_transaction_that_was_open_is_undone_by_the_death(one_activity):
    """In its middle another effect is applied; behind it nothing is left to find."""
    body = """
    def work(connection):
        connection.execute('CREATE TABLE once (x)')
        verify.effect('mail', activity.idempotency_key())
        connection.execute('INSERT INTO once VALUES (1)')
    ledger.apply_once(fn=work)
    """
    assert one_activity(body, head=HEAD).verdict == "proved"


def test_a_key_of_its_own_for_each_attempt_is_found_there_too(one_activity):
    body = "ledger.apply_once(str(uuid.uuid4()))"
    assert kinds(one_activity(body, head=HEAD)) == {("doubled", "act", "effects.db")}


def test_the_file_is_read_and_not_written(one_activity, tmp_path):
    with SqliteEffects("effects.db") as effects:
        effects.apply_once("before", lambda: "then")
    body = "verify.effect('found', ledger.apply_once('before'))\nledger.apply_once()"
    result = one_activity(body, head=HEAD)
    assert result.verdict == "proved"
    assert ("found", "then") in {(one.name, one.key) for one in result.effects}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("eff")] == [
        "effects.db"
    ]
    with SqliteEffects("effects.db") as effects:
        assert effects.applied() == {"before": 1}


def test_tables_that_the_application_makes_by_itself_are_there(one_activity):
    body = """
    ledger.applied()
    own = apsw.Connection('effects.db')
    own.execute('CREATE TABLE IF NOT EXISTS mine (x)')
    own.execute('CREATE INDEX IF NOT EXISTS mine_x ON mine (x)')
    ledger.apply_once(fn=lambda connection: connection.execute('INSERT INTO mine VALUES (1)') and 1)
    """
    assert one_activity(body, head=HEAD).verdict == "proved"
    rows = apsw.Connection("effects.db").execute("SELECT name FROM sqlite_master").fetchall()
    assert rows == [("mine",), ("mine_x",)]
    assert apsw.Connection("effects.db").execute("SELECT * FROM mine").fetchall() == []


def test_two_receivers_of_one_file_are_one(one_activity):
    head = HEAD + "other = SqliteEffects('./effects.db')\n"
    body = "ledger.apply_once('a', lambda: 1)\nverify.effect('seen', other.apply_once('a'))"
    assert [one.key for one in one_activity(body, head=head).effects] == ["a", "1"]


def test_a_receiver_that_was_closed_is_opened_again(one_activity):
    body = "ledger.apply_once('a')\nledger.close()\nverify.effect('seen', len(ledger.applied()))"
    assert [one.key for one in one_activity(body, head=HEAD).effects] == ["a", "1"]
