"""The page on policies says what the tool does: its example, its pictures, its codes, its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.audit import codes
from perdure.audit.example import CHECKOUT

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "policy"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
OUTAGE = (
    "simulate chain.json --clients 200 --failure-rate 0.02 --duration-ms 240000 "
    "--outage-start-ms 60000 --outage-ms 30000 --together --seed 7"
)


@pytest.fixture(autouse=True)
def _in_the_folder(monkeypatch):
    monkeypatch.chdir(FOLDER)


def test_the_example_chain_is_the_one_that_is_known_number_by_number():
    assert json.loads((FOLDER / "chain.json").read_text(encoding="utf-8")) == CHECKOUT


def test_the_repaired_chain_is_what_fix_writes_and_is_clean(policy):
    _, out, _ = policy("fix", "chain.json", "-o", "-")
    assert out == (FOLDER / "fixed.json").read_text(encoding="utf-8")
    assert policy("check", "fixed.json")[0] == 0


@pytest.mark.parametrize(
    ("command", "picture"),
    [
        ("plot chain.json", "chain.svg"),
        ("plot fixed.json", "fixed.svg"),
        (OUTAGE, "outage.svg"),
    ],
)
def test_the_pictures_are_those_that_the_tool_draws(policy, tmp_path, command, picture):
    out = tmp_path / picture
    policy(*command.split(), "-o", str(out))
    drawn = (FOLDER / "pictures" / picture).read_text(encoding="utf-8")
    assert out.read_text(encoding="utf-8") == drawn
    assert f"pictures/{picture}" in PAGE


def test_the_command_for_the_outage_stands_on_the_page():
    assert OUTAGE in " ".join(PAGE.replace("\\\n", " ").split())


def test_every_one_of_the_twelve_codes_stands_there_with_its_severity():
    for code, (severity, _) in codes.TWELVE.items():
        assert f"| `{code}` | {severity} |" in PAGE
