"""The drills, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chaos.drills import flaky
from chaos.drills.flaky_plan import Options
from chaos.report import Report

Evidence = dict[str, Any]


class Drill(msgspec.Struct, frozen=True):
    """One drill: its name, what it does, when it proves nothing, its defaults and its function."""

    name: str
    does: str
    inconclusive: str
    defaults: Options
    run: Callable[[Options], tuple[Report, Evidence]]


DRILLS: dict[str, Drill] = {
    drill.name: drill
    for drill in (
        Drill(
            "flaky",
            "flaky workflows run to their end while workers, and the whole node, are SIGKILLed",
            "no kill made the node deliver an activity again",
            Options(),
            flaky.run,
        ),
    )
}
