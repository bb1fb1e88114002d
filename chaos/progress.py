"""What a drill says while it runs: a live display on a terminal, one line an event elsewhere. On
standard error.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

import msgspec

EVENTS_SHOWN = 8
BAR_CHARS = 30
PLAIN_EVERY_S = 2.0


class State(msgspec.Struct, kw_only=True):
    """The numbers that the display shows; the drill sets them."""

    workflows: int
    effects_wanted: int
    completed: int = 0
    effects: int = 0
    kills: int = 0
    kills_wanted: int = 0
    restarts: int = 0
    restarts_wanted: int = 0
    runs: int = 0
    redelivered: int = 0
    stale_refused: int = 0


class Progress:
    """Shows `state`, and the last events. A context manager."""

    def __init__(self, title: str, state: State, *, live: bool | None = None) -> None:
        self.state = state
        self._title = title
        self._live_wanted = sys.stderr.isatty() if live is None else live
        self._live: Any = None
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
        line = f"{self._elapsed():>5.1f} s  {text}"
        self._events.append(line)
        if self._live is None:
            self._line(line)

    def tick(self) -> None:
        """The numbers may have changed."""
        if self._live is None and time.monotonic() - self._said > PLAIN_EVERY_S:
            state = self.state
            self._line(
                f"{self._elapsed():>5.1f} s  {state.completed} of {state.workflows} workflows, "
                f"{state.effects} of {state.effects_wanted} effects, {state.runs} attempts"
            )

    def _line(self, text: str) -> None:
        self._said = time.monotonic()
        print(text, file=sys.stderr, flush=True)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        state = self.state
        lines = [
            Text(self._title, style="bold"),
            Text(""),
            _bar("workflows", state.completed, state.workflows, "green"),
            _bar("effects", state.effects, state.effects_wanted, "green"),
            _bar("worker kills", state.kills, state.kills_wanted, "red"),
            _bar("node kills", state.restarts, state.restarts_wanted, "red"),
            Text(
                f"  {'attempts':<14}{state.runs}, {state.redelivered} cut off by a kill and run "
                f"again; {state.stale_refused} reports of dead attempts refused"
            ),
            Text(""),
            *(Text(line, style="dim") for line in self._events),
        ]
        return Group(*lines)


def _bar(name: str, done: int, wanted: int, colour: str) -> Any:
    from rich.text import Text

    filled = BAR_CHARS if wanted == 0 else min(BAR_CHARS, BAR_CHARS * done // wanted)
    text = Text(f"  {name:<14}")
    text.append("━" * filled, style=colour)
    text.append("━" * (BAR_CHARS - filled), style="dim")
    text.append(f" {done} of {wanted}")
    return text
