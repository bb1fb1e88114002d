"""Writes a report to a directory: report.json for machines, report.html for people."""

from __future__ import annotations

from pathlib import Path

import msgspec

from chaos.drill_kit.page import page
from chaos.drill_kit.perform import Performance


def write(found: Performance, directory: Path) -> list[Path]:
    """Writes both files, made if need be, and says where."""
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / "report.json"
    body = {
        "report": found.report,
        "options": found.options,
        "timeline": found.timeline,
        "spreads": found.spreads,
    }
    data.write_bytes(msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n")
    shown = directory / "report.html"
    shown.write_text(page(found), encoding="utf-8")
    return [data, shown]
