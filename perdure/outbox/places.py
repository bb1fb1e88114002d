"""Where outboxes are, as the command line and perdure.toml name them."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import NamedTuple

from perdure.errors import InvalidArgument

SQLITE = "sqlite"
POSTGRES = "postgres"

_password = re.compile(r"(?<=://)([^/@:]*):[^@/]*@|(?<=[?&\s])password=[^&\s]*")
# A path may have a colon; one behind the name of what we know is a URL that lacks its slashes.
_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(?:sqlite|postgres(?:ql)?):").match


class Place(NamedTuple):
    """A database with an outbox. `address`: an absolute path, or what psycopg connects to."""

    kind: str
    address: str

    def __str__(self) -> str:
        """Its URL without a password, for people and logs."""
        if self.kind == SQLITE:
            return f"sqlite:///{self.address}"
        return _password.sub(_hidden, self.address)


def _hidden(match: re.Match[str]) -> str:
    return "password=***" if match[1] is None else f"{match[1]}:***@"


def place_of(text: str, directory: str | os.PathLike[str]) -> Place:
    """The place that a URL names, or a path. InvalidArgument for what is none.

    sqlite:///app.db is relative to `directory`, sqlite:////var/app.db absolute, as in SQLAlchemy.
    """
    scheme = _scheme(text)
    if scheme is None:
        return _sqlite(text, directory, text)
    if scheme[1] in ("postgresql", "postgres"):
        return Place(POSTGRES, text)
    if scheme[1] == "sqlite" and text.startswith("sqlite:///"):
        return _sqlite(text.removeprefix("sqlite:///"), directory, text)
    raise InvalidArgument(
        f"outbox {Place(POSTGRES, text)}: want sqlite:///PATH or postgresql://USER@HOST/DATABASE",
        field="outbox",
    )


def _sqlite(path: str, directory: str | os.PathLike[str], text: str) -> Place:
    if not path or "\0" in path:
        raise InvalidArgument(f"outbox {text}: it needs the path of a file", field="outbox")
    full = Path(directory, path)
    absolute = Path("/", path)
    is_relative = full != absolute and absolute.parent != Path("/")
    if is_relative and not full.parent.is_dir() and absolute.parent.is_dir():
        raise InvalidArgument(
            f"outbox {text}: with three slashes the path is relative, and {full.parent} is not "
            f"there; an absolute one takes four: sqlite:///{absolute}",
            field="outbox",
        )
    return Place(SQLITE, os.path.abspath(full))


def check_driver(place: Place) -> None:
    """InvalidArgument where what is needed to connect there is not installed."""
    if place.kind == POSTGRES and importlib.util.find_spec("psycopg") is None:
        raise InvalidArgument(
            f"outbox {place}: this needs psycopg 3: pip install 'psycopg[binary]'", field="outbox"
        )
