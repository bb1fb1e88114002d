"""Importing an application by its name, and saying what is wrong where that fails."""

from __future__ import annotations

import difflib
import importlib
import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from perdure.errors import InvalidArgument

SIMILARITY_MIN = 0.6
_LIBRARY = Path(__file__).parent
_STANDARD = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_INSTALLED = frozenset(("site-packages", "dist-packages"))


def imported(name: str, directory: Path) -> ModuleType:
    """The module of that name. `directory` is where hints look, and what places are relative to.

    InvalidArgument in one line where it is not there (with the nearest that is), or fails while it
    is imported (with the innermost line of the user's own code).
    """
    _check_form(name, directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        missing = problem.name or name
        if name == missing or name.startswith(f"{missing}."):
            near = _nearest(name, directory)
            hint = f"; did you mean {near}?" if near else ""
            raise InvalidArgument(f"there is no module {name!r}{hint}", field="app") from problem
        raise InvalidArgument(
            f"module {name!r} imports {missing!r}, which is not there{_at(problem, directory)}",
            field="app",
        ) from problem
    except (Exception, SystemExit) as problem:
        said = problem.msg if isinstance(problem, SyntaxError) else str(problem)
        what = f"{type(problem).__name__}: {said}" if said else type(problem).__name__
        raise InvalidArgument(
            f"module {name!r} can't be imported: {what}{_at(problem, directory)}", field="app"
        ) from problem


def _check_form(name: str, directory: Path) -> None:
    """Refuse what can't be a module's name: the path of its file, a function in it, nothing."""
    if not name:
        raise InvalidArgument(
            "an application is named by its module, as in orders.flows; this name is empty",
            field="app",
        )
    if _is_dotted(name):
        return
    meant, _, _ = name.partition(":")
    base = directory.absolute()
    meant = os.path.relpath(base / meant, base).removesuffix(".py").replace(os.sep, ".")
    meant = meant.removesuffix(".__init__")
    hint = ""
    if _is_dotted(meant):
        near = meant if _is_there(meant, directory) else _nearest(meant, directory)
        hint = f"; did you mean {near or meant}?"
    raise InvalidArgument(
        f"{name!r} is no module's name, which is like orders.flows{hint}", field="app"
    )


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _is_there(name: str, directory: Path) -> bool:
    folder = directory
    for part in name.split("."):
        if part not in _modules_in(folder):
            return False
        folder /= part
    return True


def _nearest(name: str, directory: Path) -> str | None:
    """The module below `directory` that was most likely meant, or None."""
    folder, found = directory, []
    for part in name.split("."):
        known = {each.casefold(): each for each in sorted(_modules_in(folder), reverse=True)}
        near = difflib.get_close_matches(part.casefold(), known, n=1, cutoff=SIMILARITY_MIN)
        if not near:
            return None
        found.append(known[near[0]])
        folder /= found[-1]
    return ".".join(found)


def _modules_in(folder: Path) -> Iterator[str]:
    """The modules and packages that lie in this folder."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        name = entry.name if entry.is_dir() else entry.name.removesuffix(".py")
        if name.isidentifier() and name != "__pycache__" and (entry.is_dir() or name != entry.name):
            yield name


def _at(problem: BaseException, directory: Path) -> str:
    """The innermost line of the user's own code, as " at FILE:LINE", or nothing."""
    places = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(problem.__traceback__)
    ]
    if isinstance(problem, SyntaxError) and problem.filename:
        places.append((problem.filename, problem.lineno or 1))
    for file, line in reversed(places):
        path = Path(file)
        if _is_users(path):
            base = directory.absolute()
            return f" at {path.relative_to(base) if path.is_relative_to(base) else path}:{line}"
    return ""


def _is_users(path: Path) -> bool:
    """Whether this is a file, and neither ours, nor of the standard library, nor installed."""
    if not path.is_file() or not _INSTALLED.isdisjoint(path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in (_LIBRARY, *_STANDARD))
