from __future__ import annotations

import pytest

from perdure.config import Config, Durable, Node, load, nearest, parse
from perdure.core.bounds import Bounds
from perdure.errors import InvalidArgument


def test_without_a_file_there_are_the_defaults(tmp_path):
    assert load(None, tmp_path) == Config()
    assert Config().durable == Durable(dlq_after_attempts=5)


def test_perdure_toml_is_read_from_the_directory(tmp_path):
    (tmp_path / "perdure.toml").write_text("[durable]\ndlq_after_attempts = 7\n")
    assert load(None, tmp_path).durable.dlq_after_attempts == 7


def test_the_lengths_of_durable_can_be_set():
    text = "[durable]\nretention_ms = 1\naudit_ms = 60_000\nrecovery_grace_ms = 0\n"
    assert parse(text, "perdure.toml").durable == Durable(
        retention_ms=1, audit_ms=60_000, recovery_grace_ms=0
    )
    assert Durable().recovery_grace_ms == 10_000
    with pytest.raises(InvalidArgument, match="recovery_grace_ms"):
        parse("[durable]\nrecovery_grace_ms = -1\n", "perdure.toml")


def test_every_bound_of_a_workflow_but_the_advice_to_continue_as_new_can_be_set():
    fixed = {"history_events_suggest"}  # A replay must be told what the first run was told.
    names = set(Bounds.__struct_fields__) - fixed
    text = "[limits]\n" + "".join(f"{name} = 7\n" for name in sorted(names))
    assert parse(text, "perdure.toml").limits.bounds() == Bounds(**dict.fromkeys(names, 7))
    assert Config().limits.bounds() == Bounds()


def test_outboxes_are_files_and_urls():
    text = """[outbox]
        sqlite = ["app.db", "/var/app.db", "sqlite:///x.db"]
        postgres = ["postgresql://h/db"]
    """
    urls = ("sqlite:///app.db", "sqlite:////var/app.db", "sqlite:///x.db", "postgresql://h/db")
    assert parse(text, "perdure.toml").outbox.urls() == urls


def test_pyproject_is_read_where_there_is_no_perdure_toml(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.perdure.node]\napp = ["shop"]\nworkers = 3\n[tool.other]\nworkers = 9\n'
    )
    assert load(None, tmp_path).node == Node(app=("shop",), workers=3)


def test_perdure_toml_goes_before_pyproject(tmp_path):
    (tmp_path / "perdure.toml").write_text("[durable]\ndlq_after_attempts = 7\n")
    (tmp_path / "pyproject.toml").write_text("[tool.perdure.durable]\ndlq_after_attempts = 8\n")
    assert load(None, tmp_path).durable.dlq_after_attempts == 7


def test_a_pyproject_of_somebody_else_says_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert load(None, tmp_path) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[durable]\ndlq_after_attempt = 3", "durable.dlq_after_attempts"),
        ("[durabel]\n", "did you mean durable?"),
        ("[zzz]\n", "known: durable, limits, node"),
        ("durable = 3", "durable must be a table"),
        ("[durable]\ndlq_after_attempts = 0", "durable.dlq_after_attempts"),
        ("[durable]\ndlq_after_attempts = true", "durable.dlq_after_attempts"),
        ("[durable]\ndlq_after_attempts = '5'", "durable.dlq_after_attempts"),
        ("[node]\nworkers = -1", "node.workers"),
        ("[node]\nqueues = ['a b']", "node.queues"),
        ("[outbox]\nsqlite = 'app.db'", "outbox.sqlite"),
        ("[outbox]\npostgresql = ['x']", "did you mean outbox.postgres?"),
        ("[durable", "no TOML"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(text, message):
    with pytest.raises(InvalidArgument) as refusal:
        parse(text, "perdure.toml")
    assert message in refusal.value.message
    assert refusal.value.message.startswith("perdure.toml: ")


def test_a_file_that_is_asked_for_must_be_there(tmp_path):
    with pytest.raises(InvalidArgument, match="cannot be read"):
        load(tmp_path / "absent.toml", tmp_path)


@pytest.mark.parametrize(
    ("word", "found"), [("Flakydemo", "FlakyDemo"), ("FlakyDem", "FlakyDemo"), ("xyz", None)]
)
def test_the_nearest_known_word_is_found_whatever_its_case(word, found):
    assert nearest(word, ["FlakyDemo", "checkout"]) == found
