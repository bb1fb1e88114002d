"""The drills, by name."""

from __future__ import annotations

from chaos.drill_kit import Drill
from chaos.drills import (
    actors,
    boundaries,
    clock,
    disk,
    features,
    flaky,
    hang,
    messages,
    node,
    operator,
    outage,
    poison,
    powerloss,
    storm,
)

DRILLS: dict[str, Drill] = {
    module.DRILL.name: module.DRILL
    for module in (
        flaky,
        actors,
        node,
        hang,
        poison,
        outage,
        operator,
        features,
        boundaries,
        disk,
        powerloss,
        clock,
        messages,
        storm,
    )
}
