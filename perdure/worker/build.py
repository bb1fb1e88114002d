"""What an application's code is called: a digest of its source files, so that two builds differ."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

DIGITS = 12
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def build_of(cwd: str, apps: Iterable[str]) -> str:
    """The name of the code that is loaded now: of the modules named, and of all others that lie
    below `cwd` and are not installed.

    The same files give the same name, wherever they lie.
    """
    folder = Path(os.path.abspath(cwd))
    named = set(apps)
    digest = hashlib.blake2b()
    for name, path in sorted(_files()):
        is_below = path.is_relative_to(folder) and _INSTALLED.isdisjoint(path.parts)
        if not is_below and name not in named:
            continue
        try:
            content = path.read_bytes()
        except OSError:
            continue  # It was loaded from there, and is gone.
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:DIGITS]


def _files() -> Iterable[tuple[str, Path]]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            yield name, Path(file)
