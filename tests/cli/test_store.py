from __future__ import annotations

import contextlib

import apsw
import pytest

from perdure.cli.main import run
from perdure.store.sqlite import SqliteWriter


@pytest.fixture
def data(tmp_path):
    """A store in which a history began once, without a log beside the database."""
    writer = SqliteWriter(tmp_path / "data")
    writer.open_epoch("history.1", 1_000, "boot", 0)
    writer.close()
    with contextlib.closing(apsw.Connection(str(tmp_path / "data/perdure.db"))) as connection:
        connection.pragma("journal_mode", "delete")
    return tmp_path / "data"


@pytest.fixture
def damaged(data):
    """The same, with a page that makes no sense."""
    with contextlib.closing(apsw.Connection(str(data / "perdure.db"))) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'timers'").get
    with (data / "perdure.db").open("r+b") as file:
        file.seek((root - 1) * 4_096)
        file.write(b"\xff" * 4_096)
    return data


def test_whatever_was_named_and_is_not_there_is_not_found(data, tmp_path, capsys):
    absent, empty = str(tmp_path / "absent"), ["--data", str(tmp_path / "empty")]
    (tmp_path / "empty").mkdir()
    with_store = ["--data", str(data)]
    for command in (
        ["backup", f"{absent}/copy.db", *with_store],
        ["backup", str(tmp_path / "copy.db"), *empty],
        ["restore", absent, *with_store],
        ["restore", "--accept", *empty],
        ["restore", "--accept", "--ledger", absent, *with_store],
        ["doctor", *empty],
        ["doctor", "--ledger", absent, *with_store],
        ["doctor", "--history", absent, *with_store],
    ):
        assert run(command) == 5, command
        said = capsys.readouterr().err
        assert said.startswith("perdure: there is no "), command
        assert "Errno" not in said


def test_a_restore_that_has_nothing_to_accept_makes_no_directory(tmp_path):
    assert run(["restore", "--accept", "--data", str(tmp_path / "absent")]) == 5
    assert list(tmp_path.iterdir()) == []


def test_a_source_beside_accept_is_told_to_go_without(data, capsys):
    assert run(["restore", "--accept", "monday.db", "--data", str(data)]) == 2
    assert "without SRC: leave out --accept to restore monday.db" in capsys.readouterr().err


def test_a_damaged_store_is_named_and_not_the_copy_of_it(damaged, tmp_path, capsys):
    assert run(["backup", str(tmp_path / "copy.db"), "--data", str(damaged)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"perdure: {damaged}/perdure.db is damaged: ")
    assert "partial" not in said
    assert not (tmp_path / "copy.db").exists()
    assert run(["restore", str(damaged), "--data", str(tmp_path / "other")]) == 2
    assert f"{damaged}/perdure.db is damaged: " in capsys.readouterr().err


def test_a_copy_that_can_not_be_written_is_exit_code_2(data, tmp_path, capsys):
    long = tmp_path / ("x" * 255)  # With what a copy that is under way is called, it is too long.
    assert run(["backup", str(long), "--data", str(data)]) == 2
    assert capsys.readouterr().err.startswith("perdure: cannot write ")
    assert not list(tmp_path.glob("x*"))
