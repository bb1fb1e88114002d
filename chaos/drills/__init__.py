"""The drills, by name."""

from __future__ import annotations

from chaos.drill_kit import Drill
from chaos.drills import actors, boundaries, flaky, hang, node

DRILLS: dict[str, Drill] = {
    drill.name: drill
    for drill in (
        flaky.DRILL,
        actors.DRILL,
        node.DRILL,
        hang.DRILL,
        boundaries.DRILL,
    )
}
