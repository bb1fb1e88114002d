"""What the root does about a disk that failed history: nothing that history could do itself.

After an I/O error the page cache may hold what is not on disk, and a new history would read it as
if it were. So the cached pages are dropped first, by this process, which holds no lock of the
database that opening a file could drop.
"""

from __future__ import annotations

import os
from pathlib import Path

# How history ends when a commit failed; tests hold it against the actor's own constant.
EXIT_COMMIT_FAILED = 71
FAILED_TWICE = (
    "history: the disk failed a second time before a commit succeeded (the log says what failed);"
    " look after the disk, then start the node again"
)
FILES = ("perdure.db", "perdure.db-wal")


class StorageFailures:
    """Counts failed commits between successful ones. History is ready when its first commit
    succeeded.
    """

    def __init__(self) -> None:
        self._in_a_row = 0

    def is_final(self, *, exit_code: int | None, was_ready: bool) -> bool:
        """Judge an end of history; True when it must not be started again."""
        if was_ready:
            self._in_a_row = 0
        if exit_code == EXIT_COMMIT_FAILED:
            self._in_a_row += 1
        return self._in_a_row > 1


def drop_cached_pages(data_dir: Path) -> None:
    """Make the kernel forget what it has cached of the database; an absent file is passed over."""
    for name in FILES:
        try:
            fd = os.open(data_dir / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
