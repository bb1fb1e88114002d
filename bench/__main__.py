"""`python -m bench`: runs every measure, or those named with --only, and prints min, median and max
of the runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from bench.measures import MEASURES, QUICK, Figure, Settings, machine


def main(args: list[str] | None = None) -> int:
    """Runs the bench; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small run of each: a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=list(MEASURES), help=", ".join(MEASURES)
    )
    parser.add_argument("--runs", type=int, help="how many runs of each")
    asked = parser.parse_args(args)
    settings = QUICK if asked.quick else Settings()
    if asked.runs:
        settings = _with_runs(settings, asked.runs)
    figures: list[Figure] = []
    for name in asked.only or MEASURES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        figures += MEASURES[name](settings)
    if asked.json:
        facts = {**machine(), "workers": settings.workers, "slots": settings.slots}
        print(json.dumps({"machine": facts, "figures": [_plain(each) for each in figures]}))
    else:
        _print(figures, settings)
    return 0


def _with_runs(settings: Settings, runs: int) -> Settings:
    import msgspec

    return msgspec.structs.replace(settings, runs=max(1, runs))


def _plain(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "unit": figure.unit,
        "min": round(min(figure.values), 3),
        "median": round(figure.median, 3),
        "max": round(max(figure.values), 3),
        "runs": len(figure.values),
        "note": figure.note,
    }


def _print(figures: list[Figure], settings: Settings) -> None:
    facts = machine()
    print(
        f"{facts['cores']} cores, {facts['memory_mib']} MiB, Python {facts['python']}; "
        f"{settings.workers} workers of {settings.slots} slots"
    )
    print(f"{'':<42}{'min':>10}{'median':>10}{'max':>10}")
    for each in figures:
        numbers = "".join(f"{value:>10.{_digits(value)}f}" for value in _three(each))
        print(f"{each.name:<42}{numbers} {each.unit:<4} {each.note}")


def _three(figure: Figure) -> tuple[float, float, float]:
    return min(figure.values), figure.median, max(figure.values)


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


if __name__ == "__main__":
    sys.exit(main())
