"""Logging: structlog to standard error, pretty on a terminal, one JSON object a line otherwise."""

from __future__ import annotations

import sys
from typing import Any

import structlog

from perdure.streams import LossyWriter


def configure(json: bool) -> None:
    """Set up logging for this process.

    `json`: one object a line; else aligned and, on a terminal, in colour.
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
        wrapper_class=structlog.make_filtering_bound_logger("info"),
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
