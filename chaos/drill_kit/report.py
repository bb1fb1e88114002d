"""What a drill found, as data: the object that `perdure drill run --json` ends with."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec


class Verdict(StrEnum):
    """What a drill says at its end."""

    PROVED = "proved"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"  # The drill's own fault did not bite: the run proves nothing.


EXIT_CODES: dict[Verdict, int] = {
    Verdict.PROVED: 0,
    Verdict.VIOLATED: 1,
    Verdict.INCONCLUSIVE: 3,
}


class Spread(msgspec.Struct, frozen=True):
    """Median and maximum of lengths in milliseconds; None where there were none."""

    median: int | None
    max: int | None


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """What the drill's clients were answered. `unknown`: nothing definite came in time."""

    ok: int = 0
    refused: int = 0
    unknown: int = 0


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What the independent auditor read, over the stores of all nodes of the drill."""

    stores: int = 0
    commits: int = 0
    records: int = 0
    violations: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one run. `keys`: one for each activity that history says completed.

    `figures` are the drill's own: a name as a person reads it, and a number or a short text.
    """

    drill: str
    seed: int
    verdict: Verdict
    workflows: int = 0
    completed: int = 0
    keys: int = 0
    applied_once: int = 0
    delivered_more_than_once: int = 0
    lost: int = 0
    doubled: int = 0
    kills: int = 0
    server_restarts: int = 0
    stale_refused: int = 0
    recovery_ms: Spread = Spread(None, None)
    violations: tuple[str, ...] = ()
    redelivered_by_kills: int = 0
    attempts: int = 0
    audited_effects: int = 0
    faults_fired: dict[str, int] = {}
    operations: Operations = Operations()
    audit: Audit = Audit()
    figures: dict[str, Any] = {}
    took_ms: int = 0


def spread(lengths_ms: Sequence[int]) -> Spread:
    """The median and the maximum of `lengths_ms`."""
    if not lengths_ms:
        return Spread(None, None)
    ordered = sorted(lengths_ms)
    return Spread(ordered[len(ordered) // 2], ordered[-1])


def verdict(*, violations: Sequence[str], bit: bool) -> Verdict:
    """A violation is one whether the fault bit or not; without a bite nothing is proved."""
    if violations:
        return Verdict.VIOLATED
    return Verdict.PROVED if bit else Verdict.INCONCLUSIVE
