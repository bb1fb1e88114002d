"""Each example of docs/verify is found to be what its first line says, and as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.verifying import explore, target

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "verify"

# What is found: (kind, activity type, effect) of each finding.
FOUND = {
    "right": set(),
    "right_sqlite": set(),
    "random_key": {("doubled", "charge", "payment")},
    "attempt_key": {("doubled", "charge", "payment")},
    "date_key": {("doubled", "mail", "mail")},
    "no_key": {("doubled", "mail", "mail")},
    "marked_first": {("lost", "mail", "mail")},
    "first_attempt_only": {("lost", "ship", "parcel")},
    "in_workflow_code": {("doubled", "", "mail")},
    "repeat_refused": {("stuck", "charge", "")},
    "changing_id": {("doubled", "charge", "payment"), ("stuck", "", "")},
}


def test_every_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_the_example_is_found_to_be_what_it_is(name, loaded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = explore.verify(target.planned(name, str(EXAMPLES), None), explore.Limits())
    found = {(str(one.kind), one.activity_type, one.effect) for one in result.findings}
    assert found == FOUND[name]
    assert result.verdict == ("violated" if FOUND[name] else "proved")
    assert result.schedules == 2 * result.crash_points >= 24
    assert list(tmp_path.iterdir()) == []  # Nothing is written where it runs.


def test_the_shortest_schedule_is_told_step_by_step(loaded):
    result = explore.verify(target.planned("attempt_key", str(EXAMPLES), None), explore.Limits())
    [finding] = result.findings
    assert finding.schedule == (
        "1. charge, attempt 1, begins",
        "2. charge, attempt 1, applies payment, key o-42-1",
        "3. the worker dies right after payment is applied",
        "4. charge, attempt 2, begins",
        "5. charge, attempt 2, applies payment, key o-42-2",
    )
    assert finding.kills == ("worker",)  # A node's death does not make the attempt rise.
    assert "attempt's number" in finding.hint


def test_the_page_shows_each_example_and_no_other():
    page = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(verify/(\w+)\.py\)", page)) == FOUND.keys()


def test_the_code_on_the_page_runs():
    page = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(block, "docs/verify.md", "exec"), names)
    assert "charge" in names
