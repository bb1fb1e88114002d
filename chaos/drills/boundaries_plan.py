"""Which crash points the drill `boundaries` visits, in which order. Pure.

A boundary is a point in one of the roles that reach it. Boundaries are visited along journeys: one
node on one directory, where the next boundary is armed as soon as somebody has died at the one
before. So what is reached at a start only is visited while its process recovers, and a journey is
as good as many nodes that were started anew.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.crash_points import CrashPoint as P

LEGS = 8
NTH_MAX = 3

# Reached once in the life of a process, or of a directory: always the first time.
AT_START = frozenset(
    {
        P.STORE_EPOCH_WRITTEN_NOT_COMMITTED,
        P.STORE_EPOCH_COMMITTED,
        P.HISTORY_EPOCH_OPENED_NOT_READY,
        P.ACTOR_BOUND_NOT_GREETED,
        P.PROJECTION_STATE_READ_NOT_LOADED,
        P.PROJECTION_STATE_LOADED_NOT_FOLLOWED,
        P.GATEWAY_DOORS_OPEN,
        P.GATEWAY_WORKER_WELCOMED,
        P.CHILD_LOCKED_NOT_BEGUN,
        P.WORKER_APPLICATION_LOADED,
        P.WORKER_WELCOMED_NOT_READY,
    }
)
ROOT_STARTS = (
    P.SUPERVISOR_DIRECTORY_HELD,
    P.SUPERVISOR_CHILD_STARTED_NOT_RECORDED,
    P.SUPERVISOR_CHILD_HEARD_NOT_TOLD,
    P.SUPERVISOR_ALL_READY_NOT_ANNOUNCED,
    P.SUPERVISOR_ANNOUNCED_NOT_SAID,
)
ROOT_STOPS = (P.SUPERVISOR_STOP_BEGUN, P.SUPERVISOR_TREE_STOPPED)
# Reached when another process has died: a worker, or history.
AFTER_WORKER = (P.SUPERVISOR_DEATH_SEEN, P.SUPERVISOR_RESTART_DECIDED, P.SUPERVISOR_SESSION_ENDING)
AFTER_HISTORY = (P.PROJECTION_GAP_READ,)
# Of history's and a worker's, those that are reached only when there is work to do, and so when
# everybody is there to hear of the death.
AT_WORK = frozenset(
    {
        P.STORE_TRANSACTION_BEGUN,
        P.STORE_COMMIT_ROW_WRITTEN,
        P.STORE_EXECUTIONS_WRITTEN,
        P.STORE_EVENTS_WRITTEN,
        P.STORE_ACTIVITIES_WRITTEN,
        P.STORE_ALL_WRITTEN_NOT_COMMITTED,
        P.HISTORY_DRAINED_NOT_JUDGED,
        P.HISTORY_JUDGED_NOT_WRITTEN,
        P.HISTORY_COMMITTED_NOT_PUBLISHED,
        P.HISTORY_PUBLISHED_NOT_ANSWERED,
        P.WORKER_WORKFLOW_TASK_TAKEN,
        P.WORKER_WORKFLOW_RUN_NOT_REPORTED,
        P.WORKER_WORKFLOW_REPORT_MADE,
        P.WORKER_ACTIVITY_TASK_TAKEN,
        P.WORKER_ACTIVITY_BEGUN,
        P.WORKER_EFFECT_WRITTEN_NOT_COMMITTED,
        P.WORKER_EFFECT_APPLIED_NOT_RETURNED,
        P.WORKER_ACTIVITY_ENDED_NOT_REPORTED,
        P.WORKER_REPORT_MADE,
    }
)
# Reached when the log has grown by some megabytes.
CHECKPOINTS = frozenset(
    {
        P.STORE_DATABASE_PAGE_WRITTEN,
        P.STORE_DATABASE_WRITTEN_NOT_SYNCED,
        P.STORE_DATABASE_SYNCED,
        P.STORE_CHECKPOINTED,
    }
)
# Of these things a commit is on its way to the disk, or just there.
COMMITS = (
    "UPDATE_TAKEN",
    "UPDATE_ANSWERED",
    "SCHEDULE_FIRED",
    "CHILD_STARTED",
    "SIGNAL_FORWARDED",
    "RUN_CONTINUED",
    "ATTEMPT_LEFT",
    "WORKFLOW_RESET",
    "GATE_MOVED",
)
# Reached by what a Sundry and its people do (see boundaries_sundry), and not by errands.
SUNDRY = frozenset(
    {
        P.SCHEDULER_RUN_DUE_NOT_ASKED_FOR,
        P.WORKER_PROGRAM_ORDERED_NOT_HEARD,
        P.WORKER_ATTEMPT_LEFT_NOT_REPORTED,
        P.OUTBOX_ROWS_READ_NOT_ASKED,
        P.OUTBOX_ANSWERED_NOT_WRITTEN,
        P.OUTBOX_ROWS_ENDED,
        *(P[f"HISTORY_{what}_{how}"] for what in COMMITS for how in ("NOT_WRITTEN", "NOT_TOLD")),
    }
)
CLIENT = "client"
ROOT = "root"
OUTBOX = "outbox"


class Leg(msgspec.Struct, frozen=True):
    """One boundary: a process of this role dies when it reaches `point` for the `nth` time."""

    role: str
    point: P
    nth: int = 1

    @property
    def boundary(self) -> tuple[str, P]:
        """What is visited."""
        return self.role, self.point

    @property
    def armed(self) -> str:
        """As the environment says it."""
        return f"{self.role}/{self.point.name}:{self.nth}"

    @property
    def name(self) -> str:
        """As people read it."""
        return f"{self.role} at {self.point.name}"

    @property
    def is_sundry(self) -> bool:
        """Whether errands do not lead to it."""
        return self.point in SUNDRY or self.role == OUTBOX


class Journey(msgspec.Struct, frozen=True):
    """Boundaries that one directory sees die one after the other."""

    name: str
    legs: tuple[Leg, ...]

    @property
    def armed(self) -> str:
        """As the environment says it."""
        return ">".join(leg.armed for leg in self.legs)

    @property
    def is_sundry(self) -> bool:
        """Whether its node has an outbox to drain."""
        return any(leg.is_sundry for leg in self.legs)

    def again(self, visited: int) -> Journey:
        """What is left when only so many were visited: from the last of those on, which may be what
        led to the next one, each the first time that it is reached.
        """
        legs = tuple(Leg(leg.role, leg.point) for leg in self.legs[max(0, visited - 1) :])
        return Journey(f"{self.name}, again", legs)


def boundaries() -> list[tuple[str, P]]:
    """Every point in every role that reaches it."""
    return [(role, point) for point in P for role in point.roles]


def journeys(dice: random.Random) -> list[Journey]:
    """Journeys that visit every boundary."""
    every = boundaries()
    left = {
        role: _alternating([it for it in every if it[0] == role and not _is_apart(it[1])], dice)
        for role in dict.fromkeys(role for role, _ in every)
    }
    found = [
        Journey("the first start", (Leg("history", P.STORE_LOG_STRETCHED), *_at(ROOT_STARTS))),
        Journey("after a worker", (*_after(left["worker"], _at(AFTER_WORKER)), *_at(ROOT_STOPS))),
        Journey("after history", _after(left["history"], _gaps())),
    ]
    sundry = _sundry([leg for legs in left.values() for leg in legs if leg.is_sundry], dice)
    left = {role: [leg for leg in legs if not leg.is_sundry] for role, legs in left.items()}
    for role, legs in [*left.items(), ("sundry", sundry)]:
        for number, at in enumerate(range(0, len(legs), LEGS), start=1):
            found.append(Journey(f"{role} {number}", tuple(legs[at : at + LEGS])))
    return found


def _is_apart(point: P) -> bool:
    apart = (*ROOT_STARTS, *ROOT_STOPS, *AFTER_WORKER, *AFTER_HISTORY, P.STORE_LOG_STRETCHED)
    return point in apart


def _at(points: Sequence[P]) -> list[Leg]:
    return [Leg(ROOT, point) for point in points]


def _gaps() -> list[Leg]:
    """Whoever follows the log reads the gap that the next history has made."""
    return [Leg(role, point) for point in AFTER_HISTORY for role in point.roles]


def _after(legs: list[Leg], seconds: Iterable[Leg]) -> tuple[Leg, ...]:
    """Before each of `seconds` one of `legs`, which is taken from there: its death leads to it."""
    found: list[Leg] = []
    for second in seconds:
        first = next(leg for leg in legs if leg.point in AT_WORK)
        legs.remove(first)
        found += [first, second]
    return tuple(found)


def _alternating(of: Sequence[tuple[str, P]], dice: random.Random) -> list[Leg]:
    """What is reached at work and what is reached at a start in turn: a death leads to the next
    start, which is to be seen ready before it is tried again, or it waits.
    """
    starts = [Leg(role, point) for role, point in of if point in AT_START]
    work = [Leg(role, point, _nth(point, dice)) for role, point in of if point not in AT_START]
    dice.shuffle(starts)
    dice.shuffle(work)
    found: list[Leg] = []
    while work or starts:
        if work:
            found.append(work.pop())
        if starts:
            found.append(starts.pop())
    return found


def _sundry(legs: list[Leg], dice: random.Random) -> list[Leg]:
    """In any order; what is reached at the start of an outbox comes behind a death of one."""
    dice.shuffle(legs)
    starts = [leg for leg in legs if leg.point in AT_START]
    found = [leg for leg in legs if leg not in starts]
    first = next(at for at, leg in enumerate(found) if leg.role == OUTBOX)
    return [*found[: first + 1], *starts, *found[first + 1 :]]


def _nth(point: P, dice: random.Random) -> int:
    return 1 if point in CHECKPOINTS | SUNDRY else dice.randint(1, NTH_MAX)


def chains(dice: random.Random, depth: int) -> Iterator[Journey]:
    """Endless journeys of `depth` boundaries of any roles: one dies while the one before
    recovers.
    """
    reachable = [it for it in boundaries() if it[0] not in (CLIENT, ROOT) and not _is_apart(it[1])]
    number = 0
    while True:
        number += 1
        first = dice.choice([it for it in reachable if it[1] not in AT_START])
        legs = [Leg(*first, _nth(first[1], dice))]
        while len(legs) < depth:
            # What starts again next, or what is at work beside it.
            role = legs[-1].role
            near = [it for it in reachable if it[0] == role or it[1] not in AT_START]
            legs.append(Leg(*dice.choice([it for it in near if it != legs[-1].boundary])))
        yield Journey(f"chain {number}", tuple(legs))
