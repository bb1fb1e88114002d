"""What runs on the stage beside workflow tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable

from perdure.failures import Failure
from perdure.worker.replay import Replayer


class Errand(ABC):
    """Something with a workflow's code that history is told nothing of."""

    workflow_id: str

    @abstractmethod
    def run(self, copies: OrderedDict[str, Replayer], moved: Callable[[], None]) -> None:
        """Do it, on the stage. `copies` are workflows that no task is run on, by their id.

        It calls `moved` as it gets on: who does not for long is `blocked`.
        """

    @abstractmethod
    def blocked(self, why: Failure) -> None:
        """It was ended: the code gave its loop no turn, or raised what no code may (SystemExit)."""

    @abstractmethod
    def over(self, now_ms: int) -> None:
        """It has run, or was ended. On the main loop."""
