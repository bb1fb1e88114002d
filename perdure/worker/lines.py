"""Where in an author's code something happened, past the frames of the engine and the library."""

from __future__ import annotations

import functools
import os
from types import CodeType, FrameType

from perdure import workflow

OURS = tuple((file or "").rpartition("/")[0] + "/" for file in (__file__, workflow.__file__))
LIBRARY = (os.__file__.rpartition("/")[0] + "/", "<frozen ")
INSTALLED = "-packages/"  # Below the standard library, where there is no virtual environment.
EDGE = "run_until_idle"  # What the loop runs by itself, a timer for instance, has no line.


@functools.cache
def is_authors(filename: str) -> bool:
    """Whether a file is none of the engine's and none of the standard library's."""
    if filename.startswith(OURS):
        return False
    return INSTALLED in filename or not filename.startswith(LIBRARY)


def author_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame from `frame` outwards that is the author's; None if there is none."""
    while frame is not None and not is_authors(frame.f_code.co_filename):
        frame = None if frame.f_code.co_name == EDGE else frame.f_back
    return frame


def author_line(frame: FrameType | None) -> str:
    """The author's file and line, as FILE:LINE; empty where there is none."""
    found = author_frame(frame)
    return "" if found is None else f"{found.f_code.co_filename}:{found.f_lineno}"


def line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction; worked out only when it is shown."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
