"""A process is told from all others whatever somebody does to the wall clock."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from perdure import births

STAT = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {start} 1 2 3"


def test_a_process_has_one_birth_and_another_has_another():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        other = births.birth_of(child.pid)
        assert other == births.birth_of(child.pid)
        assert other not in (0.0, births.birth_of(os.getpid()))
        child.communicate(b"\n")


def test_a_pid_that_nobody_has_has_no_birth():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
        assert births.birth_of(child.pid) == 0.0


def test_the_name_of_a_process_may_hold_anything_and_does_not_count():
    renamed = STAT.replace("a) b (c", ") 7 8 9 (")
    assert births.birth("boot", STAT.format(start=500)) == births.birth(
        "boot", renamed.format(start=500)
    )


@pytest.mark.parametrize(("boot", "start"), [("boot", 501), ("other", 500)])
def test_another_start_or_another_boot_is_another_birth(boot, start):
    first = births.birth("boot", STAT.format(start=500))
    assert births.birth(boot, STAT.format(start=start)) != first
    assert first == int(first) < 2**53


def test_a_clock_that_is_set_changes_nothing(monkeypatch):
    before = births.birth_of(os.getpid())
    monkeypatch.setattr("time.time", lambda: 0.0)
    monkeypatch.setattr("psutil.boot_time", lambda: 0.0)
    assert births.birth_of(os.getpid()) == before
