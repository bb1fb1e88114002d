"""A drill, and how hard it is asked to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from chaos.drill_kit.arena import Arena

LIMIT_S = 110.0
RECOVERY = "from a kill to the next attempt"
SOAK_KILLS_A_MINUTE = 12
SOAK_RESTARTS_A_MINUTE = 1


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How hard. `kills` are of single processes, `server_restarts` kills of the whole node.

    `minutes` above 0 makes a soak: work and kills go on for so long. `depth`: how many faults in
    one run, where a drill visits places one by one. `limit_s`: until then faults may go on
    and work is waited for; a soak's minutes come on top.
    """

    seed: int = 0
    workflows: int = 0
    kills: int = 0
    server_restarts: int = 0
    minutes: float = 0.0
    depth: int = 1
    limit_s: float = LIMIT_S

    @property
    def time_s(self) -> float:
        """How long a run may take in all."""
        return self.limit_s + 60 * self.minutes


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """One drill.

    `does`: what it hurts, in half a sentence. `inconclusive`: when it proves nothing. `run` returns
    whether its fault bit. `takes`: the options beside the seed that mean something to it.
    `recovery`: what its `recovery_ms` measures.
    """

    name: str
    does: str
    inconclusive: str
    run: Callable[[Arena], bool]
    defaults: Options = Options()
    takes: tuple[str, ...] = ()
    recovery: str = RECOVERY

    def options(self, given: Mapping[str, Any]) -> Options:
        """The defaults, and in their place what is given. In a soak the number of kills follows
        from the minutes where it is not given.
        """
        minutes = given.get("minutes") or 0
        soak = {}
        if minutes:
            soak = {
                "kills": max(1, int(minutes * SOAK_KILLS_A_MINUTE)),
                "server_restarts": max(1, int(minutes * SOAK_RESTARTS_A_MINUTE)),
            }
        asked = {name: value for name, value in soak.items() if name in self.takes} | dict(given)
        return msgspec.structs.replace(self.defaults, **asked)
