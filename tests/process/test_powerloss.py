"""The drill `powerloss` in its own processes, on a run as short as can be."""

from __future__ import annotations

import psutil
import pytest

from chaos.drill_kit import Arena, Options
from chaos.drills import powerloss

pytestmark = pytest.mark.process


def test_a_first_pass_opens_a_state_of_every_moment_and_leaves_nobody_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(powerloss, "WORKFLOWS", 1)
    monkeypatch.setattr(powerloss, "SHARES", 4)
    monkeypatch.setattr(powerloss.Opening, "_mosts", lambda opening: iter(()))
    arena = Arena(Options(seed=2), tmp_path, name="powerloss", live=False)
    assert powerloss.run(arena)
    assert arena.violations == []
    figures = list(arena.figures.values())
    runs, moments, opened, contents, noticed = figures
    assert runs == 1
    assert 0 < moments <= opened
    assert contents > 5
    assert noticed > 5
    assert not [it for it in psutil.Process().children() if "spawn" in " ".join(it.cmdline())]
