"""Room on the disk of a store: how much is left, and a ballast that is thrown out when none is."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

BALLAST_NAME = "ballast"
# So much can still be committed when the disk is full: thousands of reports of work that was done.
BALLAST_BYTES = 8 * 1024 * 1024
# Free beyond the reserve before the ballast comes aboard (again), and new work with it: afterwards
# there is as much left once more, so that neither goes and comes with every commit.
LOADING_BYTES = 2 * BALLAST_BYTES
# With so much free a history without ballast begins: less would be over with a few commits.
BEGINNING_BYTES = BALLAST_BYTES // 2


def too_little(data_dir: Path | str, reserve_bytes: int) -> str:
    """Why new work is refused: what it takes for `Room.is_short` to be over."""
    return (
        f"there is too little room on the disk of {data_dir} for new work: it takes"
        f" reserve_bytes ({reserve_bytes}) free, and {LOADING_BYTES} bytes more while no ballast"
        " is there"
    )


class Room:
    """What history asks before it takes on new work, and where it finds room for the old.

    `reserve_bytes`: with less than that free, new work is refused; 0: never.
    """

    def __init__(
        self, data_dir: Path, reserve_bytes: int = 0, *, has_ballast: bool = False
    ) -> None:
        self._data_dir = data_dir
        self._ballast = data_dir / BALLAST_NAME
        self._reserve_bytes = reserve_bytes
        self._has_ballast = has_ballast

    def free_bytes(self) -> int:
        """What may still be written on the disk of the data directory."""
        found = os.statvfs(self._data_dir)
        return found.f_bavail * found.f_frsize

    def is_short(self) -> bool:
        """Whether new work should wait: for more room, or for the ballast to be aboard again, which
        this sees to where there is room.
        """
        if not self._reserve_bytes:
            return False
        free = self.free_bytes()
        if free >= self._reserve_bytes + LOADING_BYTES:
            self.load()
        is_without = self._has_ballast and not self._ballast.exists()
        return is_without or free < self._reserve_bytes

    def is_enough(self) -> bool:
        """Whether a history that begins can hope to commit more than its epoch.

        With the ballast on board it can. Once that is used up, to begin would only mean to end with
        the next commit, again and again.
        """
        if not self._has_ballast or self._ballast.exists():
            return True
        return self.free_bytes() >= BEGINNING_BYTES

    def load(self) -> None:
        """Have the ballast, if there is room for it."""
        if not self._has_ballast or self._ballast.exists():
            return
        try:
            descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, BALLAST_BYTES)
            finally:
                os.close(descriptor)
        except OSError:
            self.drop()  # Half a ballast is in the way of what it is for.

    def drop(self) -> bool:
        """Throw the ballast out; whether there was any."""
        with contextlib.suppress(FileNotFoundError):
            self._ballast.unlink()
            return True
        return False
