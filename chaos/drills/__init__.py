"""The drills, by name."""

from __future__ import annotations

from chaos.drill_kit import Drill
from chaos.drills import flaky

DRILLS: dict[str, Drill] = {drill.name: drill for drill in (flaky.DRILL,)}
