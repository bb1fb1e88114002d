"""What a drill found, as data: the object that `perdure drill run --json` ends with."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one run. `keys`: one for each activity that history says completed."""

    drill: str
    seed: int
    verdict: Verdict
    workflows: int
    completed: int
    keys: int
    applied_once: int
    delivered_more_than_once: int
    lost: int
    doubled: int
    kills: int
    server_restarts: int
    stale_refused: int
    recovery_ms: Spread
    violations: tuple[str, ...]
    redelivered_by_kills: int
    took_ms: int


def spread(lengths_ms: list[int]) -> Spread:
    """The median and the maximum of `lengths_ms`."""
    if not lengths_ms:
        return Spread(None, None)
    ordered = sorted(lengths_ms)
    return Spread(ordered[len(ordered) // 2], ordered[-1])


def write(report: Report, directory: Path, evidence: dict[str, Any]) -> Path:
    """Writes the report with its evidence as one JSON file into `directory`, and says where."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{report.drill}-seed-{report.seed}.json"
    body = {"report": report, "evidence": evidence}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n")
    return path
