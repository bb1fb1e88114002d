"""Wall clocks that jump: in one process of a node, or in all, while they run or between two starts.

See clock_site/sitecustomize.py for what jumps and what does not.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "PERDURE_TEST_CLOCK"
SITE = Path(__file__).parent / "clock_site"

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class Clocks:
    """The wall clocks of processes that are started with `environment`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {VARIABLE: str(directory), "PYTHONPATH": os.pathsep.join(paths)}

    def shift(self, by_ms: int, pid: int | None = None) -> None:
        """From now on the wall clock of that process, or of all, is off by so much."""
        self._write("all" if pid is None else str(pid), str(by_ms))

    def reset(self, pid: int) -> None:
        """That process has everybody's clock again."""
        (self._directory / str(pid)).unlink(missing_ok=True)

    def boot(self, name: str) -> None:
        """From now on the machine calls its boot so: what starts next believes in a reboot."""
        self._write("boot", name)

    def _write(self, name: str, text: str) -> None:
        fresh = self._directory / f"{name}.new"
        fresh.write_text(text)
        fresh.replace(self._directory / name)  # Nobody ever reads half of it.
