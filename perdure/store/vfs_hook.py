"""Where a test puts itself between the writing connection and the disk.

Set ``PERDURE_TEST_VFS=module:function`` in the environment of the node. History, and nobody else,
then calls ``function(data_dir)`` once in its own process, with the data directory as a Path,
before it opens the database. The function registers an ``apsw.VFS`` (and keeps it alive: SQLite
does not) and returns its name, under which the database is opened; or None, to leave the disk as
it is and only be called.

    def record(data_dir: Path) -> str:
        global _kept  # for the life of the process
        _kept = RecordingVFS("recording", data_dir)  # an apsw.VFS; its base "" is the default one
        return "recording"

The module is found by its name alone, so that nothing of the library depends on a test. Without
the variable this is one look at the environment. What the function raises ends history before it
has touched the store.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path

from perdure.store.protocol import StoreError

VARIABLE = "PERDURE_TEST_VFS"


def asked_for(data_dir: Path) -> str | None:
    """The name of the VFS that a test wants the database opened with; None: the system's own.

    Raises StoreError where the variable does not name a function.
    """
    target = os.environ.get(VARIABLE)
    if not target:
        return None
    module, _, name = target.partition(":")
    try:
        register: Callable[[Path], str | None] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as cause:
        raise StoreError(
            f"{VARIABLE} is {target!r}, which is no module:function ({cause}); unset it"
        ) from cause
    return register(data_dir)
