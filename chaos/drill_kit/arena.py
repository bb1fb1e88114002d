"""Where a drill takes place: its scratch directory, its nodes, what was done to them and seen."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.auditor import AuditReport, History
from chaos.client_history import Recorder, RecordingClient
from chaos.drill_kit.base import Options
from chaos.drill_kit.load import Load, Start
from chaos.drill_kit.progress import Progress
from chaos.drill_kit.spreads import Measured
from chaos.drill_kit.timeline import NODE, Applied, Attempt, Event, Fault
from chaos.harness import NodeProcess, flat
from chaos.history_audit import Counts
from perdure.client import Client
from perdure.clock import boottime_ms


class Arena:
    """Everything that one run of a drill has. `close()` ends every node and client of it."""

    def __init__(self, options: Options, directory: Path, *, name: str, live: bool | None) -> None:
        self.options = options
        self.directory = directory
        self.name = name
        self.began_ms = boottime_ms()
        self.faults: list[Fault] = []
        self.events: list[Event] = []
        self.violations: list[str] = []
        self.figures: dict[str, Any] = {}
        self.recoveries_ms: list[int] = []
        self.attempts: list[Attempt] = []
        """Attempts that no ledger knows, for the picture."""
        self.effects: list[Applied] = []
        self.counted: list[Counts] = []
        """What a drill has compared itself, beside its loads."""
        self.workflows = 0
        self.completed = 0
        """Workflows that no load started, and those of them that are at their end."""
        self.spreads: list[Measured] = []
        """Measured lengths, to be drawn against an even spread."""
        self.audits: list[AuditReport] = []
        """Of stores that are no node's here; those of the nodes are added at the end."""
        self.nodes: list[NodeProcess] = []
        self.loads: list[Load] = []
        self.roles: dict[int, str] = {}
        self.progress = Progress(_title(name, options), live=live, heard=self._heard)
        self._recorders: list[tuple[NodeProcess, Recorder]] = []
        self._noted: list[tuple[NodeProcess, Path]] = []
        self._clients = 0
        self._stack = contextlib.ExitStack()
        self._deadline = time.monotonic() + options.time_s

    # --- time and chance ---------------------------------------------------------
    def dice(self, name: str) -> random.Random:
        """A stream of chance of its own: the same for the same seed and name."""
        return self.dice_of(self.options.seed, name)

    @staticmethod
    def dice_of(seed: int, name: str) -> random.Random:
        """The stream of chance that an arena of this seed has under that name."""
        return random.Random(f"{seed}/{name}")

    def over(self) -> bool:
        """Whether the time limit of the drill is reached."""
        return self.left_s() <= 0

    def left_s(self) -> float:
        """How long the drill may still take."""
        return max(0.0, self._deadline - time.monotonic())

    # --- what takes part -----------------------------------------------------------
    def node(
        self,
        *,
        apps: tuple[str, ...] = ("perdure.demo",),
        workers: int = 2,
        slots: int = 24,
        name: str = NODE,
        environment: dict[str, str] | None = None,
        only_ours: bool = False,
    ) -> NodeProcess:
        """A node of the drill's own, not started yet. Its store is audited at the end.

        `only_ours`: nobody asks anything of it but through `client` and `load`, so that the auditor
        may miss the request for what it finds.
        """
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        node = NodeProcess(
            directory,
            apps=apps,
            workers=workers,
            slots=slots,
            environment=environment,
            seed=self.options.seed,
        )
        self.nodes.append(node)
        self._stack.callback(node.stop)
        recorder = Recorder(directory / "clients.jsonl", all_clients=only_ours)
        self._recorders.append((node, recorder))
        self._stack.callback(recorder.close)
        return node

    def client(
        self, node: NodeProcess, *, timeout_ms: int = 10_000, endpoint: str | None = None
    ) -> Client:
        """A client that notes what it is answered. It finds this node again after each of its
        restarts, unless it is given an `endpoint`, such as a relay's before the node.
        """
        [recorder] = [each for of, each in self._recorders if of is node]
        self._clients += 1
        where: dict[str, Any] = {"endpoint": endpoint} if endpoint else {"data_dir": node.data}
        name = f"client-{self._clients}"
        client = RecordingClient(recorder, name, timeout_ms=timeout_ms, **where)
        self._stack.callback(client.close)
        return client

    def noted(self, node: NodeProcess, path: Path) -> None:
        """Clients in other processes write there what this node tells them."""
        self._noted.append((node, path))

    def histories(self, node: NodeProcess) -> list[Path | History]:
        """What the drill's clients of this node were told."""
        return [
            *(recorder.history() for of, recorder in self._recorders if of is node),
            *(path for of, path in self._noted if of is node and path.exists()),
        ]

    def load(self, node: NodeProcess, start: Start, *, workflows: int | None = None) -> Load:
        """Workflows for the node, not started yet: as many as the options say. See Load."""
        count = self.options.workflows if workflows is None else workflows
        load = Load(self, node, start, count)
        self.loads.append(load)
        self._stack.callback(load.ledger.close)
        return load

    # --- what happens ----------------------------------------------------------------
    def fault(
        self,
        kind: str,
        target: str,
        *,
        pids: tuple[int, ...] = (),
        at_ms: int | None = None,
        note: str = "",
    ) -> Fault:
        """Notes a fault that was done; set its `until_ms` where it ends.

        `pids`: the processes that it ended. What they did is looked up in the loads' ledgers.
        """
        at_ms = boottime_ms() if at_ms is None else at_ms
        fault = Fault(kind=kind, target=target, pids=pids, at_ms=at_ms, note=note)
        self.faults.append(fault)
        for load in self.loads if pids else ():
            load.cut_off(fault)
        return fault

    @property
    def faults_by_kind(self) -> Counter[str]:
        """How many faults there were of each kind so far."""
        return Counter(fault.kind for fault in self.faults)

    def say(self, text: str) -> None:
        """An event, for the display and the report."""
        self.progress.event(text)

    def violate(self, text: str) -> None:
        """What must not be, in a sentence: the drill's verdict is "violated"."""
        self.violations.append(text)
        self.say(f"violated: {text}")

    def learn_roles(self, node: NodeProcess) -> dict[str, int]:
        """Asks the tree who is who: the processes by role. Their names stand in the picture."""
        found = {
            str(each["name"]): int(each["pid"]) for each in flat(node.tree()) if each.get("pid")
        }
        self.roles |= {pid: role for role, pid in found.items()}
        return found

    def close(self) -> None:
        """Ends every node and client, whatever state they are in."""
        self._stack.close()

    def _heard(self, text: str) -> None:
        self.events.append(Event(at_ms=boottime_ms(), text=text))


def _title(name: str, options: Options) -> str:
    said = {
        "workflows": options.workflows,
        "kills": options.kills,
        "node kills": options.server_restarts,
        "minutes": f"{options.minutes:g}" if options.minutes else 0,
    }
    counts = ", ".join(f"{count} {what}" for what, count in said.items() if count)
    return f"drill {name}, seed {options.seed}" + (f": {counts}" if counts else "")
