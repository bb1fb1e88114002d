"""What a drill is built from.

A drill is a `Drill`: its name, what it does, when it proves nothing, its default `Options`, and a
function that hurts something and returns whether its fault bit:

    def hurt(arena: Arena) -> bool:
        node = arena.node(workers=2, slots=8)  # a real one; ended for you, whatever happens
        node.start()
        load = arena.load(node, flaky(work_ms=200, seed=arena.options.seed))
        load.submit()  # the workflows that suffer, with a ledger of their effects
        while not load.done() and not arena.over():  # over: the time limit
            load.look()  # reads the ledger, shows the numbers
            ...
            arena.fault("EIO", "history")  # for the report and its picture
        load.await_end()
        return arena.faults_by_kind["EIO"] > 0

    DRILL = Drill(name="disk", does="…", inconclusive="no write failed", run=hurt)

and stands in `chaos.drills.DRILLS`. What went wrong is said with `arena.violate(text)`; numbers of
the drill's own with `arena.figures["syncs that failed"] = 3`; kills are in chaos.drill_kit.kills.
`perform` does the rest: scratch directory, progress, the comparison of history and ledger for each
load, the auditor over the store of every node, verdict, report, picture. Chance comes from
`arena.dice("name")`, the same for the same seed. What a drill does not say is zero in its report;
an option that `Drill.takes` does not name is refused. Instants are boot time in milliseconds
(`perdure.clock.boottime_ms`).
"""

from __future__ import annotations

from chaos.drill_kit.arena import Arena
from chaos.drill_kit.base import Drill, Options
from chaos.drill_kit.load import Load, Start, flaky, mixed
from chaos.drill_kit.perform import perform
from chaos.drill_kit.report import EXIT_CODES, Report, Spread, Verdict, spread
from chaos.drill_kit.timeline import Fault

__all__ = [
    "EXIT_CODES",
    "Arena",
    "Drill",
    "Fault",
    "Load",
    "Options",
    "Report",
    "Spread",
    "Start",
    "Verdict",
    "flaky",
    "mixed",
    "perform",
    "spread",
]
