"""What outlives a process, and what a run reports: plain data, which goes from process to process.

A crash point is the world as it stood there. All instants are of the manual clock, in ms.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Hashable

from perdure.verifying.kept import Picture

RUNNING = "Running"


class Killed(enum.StrEnum):
    """What dies at a crash point."""

    WORKER = "worker"
    NODE = "node"

    @property
    def reason(self) -> str:
        """How history's record of the lease's end calls it."""
        return "worker_died" if self is Killed.WORKER else "node_restart"


class StepKind(enum.StrEnum):
    """What a step of a schedule is; a reader sees those that concern what went wrong."""

    BEGINS = "begins"
    EFFECT = "effect"
    ENDS = "ends"
    COMMIT = "commit"
    CRASH = "crash"
    OPERATOR = "operator"


@dataclasses.dataclass(frozen=True, slots=True)
class Who:
    """Whose code: an attempt of an activity, or the workflow's (then all is empty)."""

    activity_id: str = ""
    activity_type: str = ""
    attempt: int = 0

    def __str__(self) -> str:
        if not self.activity_id:
            return "the workflow's code"
        return f"{shown_activity(self.activity_type, self.activity_id)}, attempt {self.attempt}"


def shown_activity(activity_type: str, activity_id: str) -> str:
    """An activity for a reader: its type, and its id where that says more."""
    if activity_id == activity_type:
        return activity_type
    return f"{activity_type} ({activity_id})"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """One application of an effect. Without a key every one is another effect."""

    name: str
    key: str | None
    who: Who


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened. `applied` is set where it is an effect."""

    kind: StepKind
    who: Who
    text: str
    applied: Applied | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """All that a process begins from: what was durable when the one before it died.

    `is_leased`: an attempt was running, so it matters whether its worker died or the whole node.
    """

    store: Picture | None = None  # None: history has nothing yet.
    now_ms: int = 0
    receivers: dict[str, bytes] = dataclasses.field(default_factory=dict)
    outside: bytes | None = None
    applied: tuple[Applied, ...] = ()
    steps: tuple[Step, ...] = ()
    crashes: int = 0
    redrives: int = 0
    is_leased: bool = False

    def beginning(self, killed: Killed | None) -> Hashable:
        """Equal for equal beginnings: what goes on from them is the same, chance apart."""
        return (
            self.store and (self.store.count, self.store.newest),
            self.now_ms,
            tuple(self.receivers.items()),
            self.outside,
            tuple((one.name, one.key, one.who) for one in self.applied),
            self.crashes,
            self.redrives,
            killed if self.is_leased else None,
        )


@dataclasses.dataclass(slots=True)
class Point:
    """A crash point: where it stands in the run, and the world there."""

    place: str
    who: Who
    world: World


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went.

    `status` is the workflow's; "Running" where it stands still, and `why` says for what reason.
    `dead` are the activities (type, id) that became dead letters. `is_parked`: it waits for an
    operator, who is not played. `bad_input`: the workflow's input does not fit it.
    """

    status: str
    why: str
    applied: tuple[Applied, ...]
    steps: tuple[Step, ...]
    points: list[Point]
    dead: tuple[tuple[str, str], ...] = ()
    is_parked: bool = False
    bad_input: bool = False

    def after(self, begun: World, instead: World) -> Outcome:
        """This outcome of a run from `begun`, as that of one from the equal world `instead`."""
        return dataclasses.replace(
            self,
            applied=(*instead.applied, *self.applied[len(begun.applied) :]),
            steps=(*instead.steps, *self.steps[len(begun.steps) :]),
        )

    @property
    def is_open(self) -> bool:
        """Whether the workflow has not ended."""
        return self.status == RUNNING
