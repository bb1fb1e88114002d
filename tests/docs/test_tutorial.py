"""The tutorial as a newcomer would go through it: its files, its tests, and every command of it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.sessions import perform, steady

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
FILES = ROOT / "docs" / "tutorial"

_block = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_page_shows_its_files_as_they_are():
    shown = dict(_block.findall(PAGE.read_text(encoding="utf-8")))
    assert shown == {path.stem: path.read_text(encoding="utf-8") for path in FILES.glob("*.py")}


@pytest.mark.process
@pytest.mark.timeout(180)
def test_every_command_of_the_page_prints_what_the_page_shows(tmp_path):
    for path in FILES.glob("*.py"):
        shutil.copy(path, tmp_path)
    # The bank is slow once only, when the node is killed: reserve and charge have been delivered.
    orders = tmp_path / "orders.py"
    slow, quick = "time.sleep(10)", "time.sleep(10 * (len(world.deliveries()) == 2))"
    orders.write_text(orders.read_text(encoding="utf-8").replace(slow, quick), encoding="utf-8")
    for step, printed in perform(PAGE.read_text(encoding="utf-8"), tmp_path):
        assert steady(printed) == steady(step.shown), step.command
