"""The list of crash points is closed: each is reached in one place, and no other is."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from perdure.crash_points import CrashPoint

ROOT = Path(__file__).parents[2]
ROOMS = ("perdure", "actors", "supervisors", "chaos")


def reached_in(source: str) -> list[str]:
    """The arguments of all calls of `reached`, as they are written."""
    return [
        ast.unparse(node.args[0])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "reached"
    ]


def in_all_rooms():
    found = Counter()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            found.update(reached_in(path.read_text(encoding="utf-8")))
    return found


def test_every_point_of_the_list_is_reached_in_one_place_and_no_other_point_is():
    assert in_all_rooms() == Counter(f"CrashPoint.{point.name}" for point in CrashPoint)


def test_a_call_with_another_name_would_be_seen():
    assert reached_in("reached(CrashPoint.NO_SUCH)\nreached(other)") == [
        "CrashPoint.NO_SUCH",
        "other",
    ]


def test_every_point_names_roles_that_there_are_and_a_truth():
    roles = {
        "history",
        "scheduler",
        "lease_keeper",
        "dlq",
        "gateway",
        "root",
        "worker",
        "outbox",
        "client",
    }
    for point in CrashPoint:
        assert point.roles, point
        assert set(point.roles) <= roles, point
        assert point.truth, point
