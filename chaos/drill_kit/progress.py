"""What a drill says while it runs: a live display on a terminal, one line an event elsewhere. On
standard error.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

EVENTS_SHOWN = 8
BAR_CHARS = 30
NAME_CHARS = 16
PLAIN_EVERY_S = 2.0


class Progress:
    """Shows bars, a line of text and the last events. A context manager.

    `heard` is called with every event.
    """

    def __init__(
        self,
        title: str,
        *,
        live: bool | None = None,
        heard: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._title = title
        self._live_wanted = sys.stderr.isatty() if live is None else live
        self._heard = heard
        self._live: Any = None
        self._bars: dict[str, tuple[int, int, str]] = {}
        self._text = ""
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._began = time.monotonic()
        self._said = 0.0

    def __enter__(self) -> Progress:
        if self._live_wanted:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True, highlight=False),
                get_renderable=self._picture,
                refresh_per_second=10,
            )
            self._live.start()
        else:
            self._line(self._title)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, text: str) -> None:
        """Something happened."""
        self._heard(text)
        line = f"{self._elapsed():>5.1f} s  {text}"
        self._events.append(line)
        if self._live is None:
            self._line(line)

    def bar(self, name: str, done: int, wanted: int, *, colour: str = "green") -> None:
        """How far something is. `colour` is one of a terminal's; red is for faults."""
        self._bars[name] = (done, wanted, colour)
        self._tick()

    def text(self, text: str) -> None:
        """What is worth knowing beside the bars."""
        self._text = text
        self._tick()

    def _tick(self) -> None:
        if self._live is None and time.monotonic() - self._said > PLAIN_EVERY_S:
            counts = [
                f"{done} of {wanted} {name}" for name, (done, wanted, _) in self._bars.items()
            ]
            self._line(
                f"{self._elapsed():>5.1f} s  " + ", ".join([*counts, self._text]).strip(", ")
            )

    def _line(self, text: str) -> None:
        self._said = time.monotonic()
        print(text, file=sys.stderr, flush=True)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        bars = dict(self._bars)
        return Group(
            Text(self._title, style="bold"),
            Text(""),
            *(_bar(name, *bar) for name, bar in bars.items()),
            Text(f"  {self._text}"),
            Text(""),
            *(Text(line, style="dim") for line in list(self._events)),
        )


def _bar(name: str, done: int, wanted: int, colour: str) -> Any:
    from rich.text import Text

    filled = BAR_CHARS if wanted == 0 else min(BAR_CHARS, BAR_CHARS * done // wanted)
    text = Text(f"  {name:<{NAME_CHARS}}")
    text.append("━" * filled, style=colour)
    text.append("━" * (BAR_CHARS - filled), style="dim")
    text.append(f" {done} of {wanted}")
    return text
