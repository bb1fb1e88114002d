"""A planted bug that does not fit the engine any more proves nothing: it must not be a find."""

from __future__ import annotations

import re

_PATH = re.compile(r'^\s*File "(.+)", line \d+', re.MULTILINE)
_OF_THE_BANK = re.compile(r"[/\\]chaos[/\\]sim[/\\]bugs[/\\]\w+\.py$").search
# What a name, a field or a signature that there is no more leads to. A bug may well be that
# something raises: then it is something else.
_UNFIT = ("TypeError", "AttributeError", "NameError")


class BrokenPlant(BaseException):
    """What was planted raised, where it was to do something else: whoever wrote it has to mend it.

    No process of the simulated machine can take it for a fault of its own.
    """


def check(trace: str) -> None:
    """Raise BrokenPlant where a traceback ends in the bug bank, which used the engine wrongly."""
    paths = _PATH.findall(trace)
    last_line = trace.rstrip().rpartition("\n")[2]
    if paths and _OF_THE_BANK(paths[-1]) and last_line.startswith(_UNFIT):
        raise BrokenPlant(trace)
