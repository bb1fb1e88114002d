"""Writes a report to a directory: report.json for machines, report.html for people, and the picture
alone as timeline.svg.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from chaos.drill_kit import chart
from chaos.drill_kit.page import page
from chaos.drill_kit.perform import Performance
from chaos.drill_kit.timeline import Timeline

ATTEMPTS_MAX = 20_000


def write(found: Performance, directory: Path) -> list[Path]:
    """Writes the files, into a directory that is made if need be, and says where.

    Of a long soak the attempts are left out of the JSON: the picture has them all.
    """
    directory.mkdir(parents=True, exist_ok=True)
    body = {
        "report": found.report,
        "options": found.options,
        "timeline": _without_a_crowd(found.timeline),
        "spreads": found.spreads,
    }
    data = msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"
    files = {
        "report.json": data,
        "report.html": page(found).encode(),
        "timeline.svg": chart.alone(found.timeline).encode(),
    }
    paths = []
    for name, content in files.items():
        (directory / name).write_bytes(content)
        paths.append(directory / name)
    return paths


def _without_a_crowd(timeline: Timeline) -> Timeline:
    if len(timeline.attempts) <= ATTEMPTS_MAX:
        return timeline
    return msgspec.structs.replace(timeline, attempts=(), effects=())
