"""Logging: structlog to standard error, pretty on a terminal, one JSON object a line otherwise."""

from __future__ import annotations

import os
import sys
from typing import Any

import structlog

from perdure.streams import LossyWriter

LEVEL_VARIABLE = "PERDURE_LOG_LEVEL"
LEVELS = ("debug", "info", "warning", "error")


def level() -> str:
    """The least level that is logged, as the environment says. Raises ValueError."""
    given = os.environ.get(LEVEL_VARIABLE, "info")
    if given not in LEVELS:
        raise ValueError(f"{LEVEL_VARIABLE} is {given!r:.80}, not one of {', '.join(LEVELS)}")
    return given


def configure(json: bool) -> None:
    """Set up logging for this process, whose children inherit the level with the environment.

    `json`: one object a line; else aligned and, on a terminal, in colour. Raises ValueError where
    the environment names a level that there is not; commands have `output.check_log_level` first.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _tell_lost,
    ]
    if json:
        tail: list[Any] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        tail = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[*shared, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(level()),
        # A line leaves in one write: the processes of a node share their standard error.
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def logger(**fields: Any) -> Any:
    """A logger whose lines all carry `fields`. Its methods take a LogName and further fields."""
    return structlog.get_logger(**fields)


def _tell_lost(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
    """Say in the next line that gets through how many before it did not."""
    writer = getattr(sys.stderr, "buffer", None)
    if isinstance(writer, LossyWriter) and writer.lost > writer.told:
        event["lost_lines"] = writer.lost - writer.told
        writer.telling = writer.lost
    return event
