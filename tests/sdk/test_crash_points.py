"""A crash point does nothing but what the environment asked for, where and when it asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from perdure import crash_points
from perdure.crash_points import CrashPoint, CrashPointReached, parse
from perdure.errors import InvalidArgument

HERE = CrashPoint.HISTORY_DRAINED_NOT_JUDGED
THERE = CrashPoint.HISTORY_JUDGED_NOT_WRITTEN


@pytest.fixture
def role():
    before = crash_points._role
    yield crash_points.act_as
    crash_points.act_as(before)


def dies(arming, point=HERE):
    """Whether something happens at this point now."""
    try:
        arming.reached(point)
    except CrashPointReached:
        return True
    return False


def test_it_happens_at_the_nth_time_and_not_before_or_after():
    arming = parse(f"{HERE.name}:3:raise", None)
    assert [dies(arming) for _ in range(5)] == [False, False, True, False, False]


def test_another_point_does_not_count():
    arming = parse(f"{HERE.name}:1:raise", None)
    assert not dies(arming, THERE)
    assert dies(arming, HERE)


def test_a_role_is_the_beginning_of_the_role_of_the_process(role):
    arming = parse(f"worker/{HERE.name}:1:raise", None)
    for other in ("", "history", "work"):
        role(other)
        assert not dies(arming)
    role("worker-2")
    assert dies(arming)


def test_with_a_file_it_happens_once_over_all_lives(tmp_path):
    once = str(tmp_path / "once")
    first, second = (parse(f"{HERE.name}:1:raise", once) for _ in range(2))
    assert dies(first)
    assert not dies(second)
    assert (tmp_path / "once.1").read_text().startswith(HERE.name)


def test_without_a_file_it_happens_in_every_life():
    assert all(dies(parse(f"{HERE.name}:1:raise", None)) for _ in range(2))


def test_the_second_point_counts_from_when_the_first_has_happened(tmp_path):
    arming = parse(f"{HERE.name}:1:raise>{THERE.name}:2:raise", str(tmp_path / "once"))
    assert not dies(arming, THERE)
    assert not dies(arming, THERE)
    assert dies(arming, HERE)
    assert not dies(arming, THERE)
    assert dies(arming, THERE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("HISTORY_DRAINED_NOT_JUGED", "did you mean HISTORY_DRAINED_NOT_JUDGED"),
        ("x", "no point has this name"),
        (f"{HERE.name}:0", "NTH from 1"),
        (f"{HERE.name}:first", "NTH from 1"),
        (f"{HERE.name}:1:kill:more", "NTH from 1"),
        (f"{HERE.name}:1:explode", "the action is one of kill, stop"),
        (f"{HERE.name}:1:sleep_ms=long", "the action is one of kill, stop"),
        (f"/{HERE.name}", "no role stands before the slash"),
        (f"{HERE.name}>{THERE.name}", "PERDURE_CRASH_ONCE"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_is_allowed(text, says):
    with pytest.raises(InvalidArgument, match=says):
        parse(text, None)


@pytest.mark.parametrize(
    ("action", "status"),
    [("kill", -signal.SIGKILL), ("exit", 76), ("raise", 1), ("sleep_ms=1", 0)],
)
def test_a_process_does_at_the_point_what_its_environment_says(action, status):
    program = (
        f"from perdure.crash_points import CrashPoint, reached\nreached(CrashPoint.{HERE.name})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PERDURE_CRASH_POINT": f"{HERE.name}:1:{action}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == status, done.stderr
    assert "crash_point.reached" in done.stdout + done.stderr


def test_without_the_variable_nothing_is_armed():
    assert not crash_points.ARMED
