"""The files of a node: its data directory, the locks in it, the directory of its sockets,
node.json.

Two locks. root.lock is the root's own, for its life. children.lock is shared by all children: a new
root takes it exclusively once, so that it knows that nobody of an earlier, killed node is left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import select
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from perdure.clock import boottime_ms
from perdure.node_client import NODE_FILE, NodeInfo
from perdure.process import CHILDREN_LOCK
from perdure.store.room import BEGINNING_BYTES, Room

ROOT_LOCK = "root.lock"
RUN = "run"
# One name over all starts: clients and workers elsewhere that know an endpoint find the next node.
RUN_NAME = "node"
FALLBACK_PREFIX = "perdure-"
LEFT_OVERS_MS = 2_000
SOCKET_PATH_MAX = 107
# The longest name in the directory of sockets: a forkserver's "listener-" and 8 characters, and the
# slash.
SOCKET_NAME_MAX = 20

# struct flock, as 64-bit Linux has it; elsewhere holders are not named.
_FLOCK = struct.Struct("hhqqi4x")
_CAN_ASK = sys.platform == "linux" and struct.calcsize("P") == 8


class Refused(Exception):
    """The node is not started, for the reason in `message` (one line); `exit_code` is the process's
    status.
    """

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message


def lock_holders(fd: int, low: int = 0, length: int = 0) -> set[int]:
    """PIDs of other processes that hold a lock on this file in the range (length 0: to its end)."""
    if not _CAN_ASK:
        return set()
    ask = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, low, length, 0)
    kind, _, start, size, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, ask))
    if kind == fcntl.F_UNLCK:
        return set()
    found = {pid}
    # The kernel names any one lock: look on both sides of it.
    if start > low:
        found |= lock_holders(fd, low, start - low)
    if size:
        after = start + size
        if length == 0:
            found |= lock_holders(fd, after, 0)
        elif low + length > after:
            found |= lock_holders(fd, after, low + length - after)
    return found


def lock_file(path: Path) -> tuple[int | None, str]:
    """Take an exclusive lock on the file and write our PID and start time into it: (descriptor,
    "").

    Where another process has it: (None, that process's PID as text). Raises OSError where it can't
    be opened.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                os.close(fd)
                raise
            holders = lock_holders(fd)
            written = os.pread(fd, 64, 0).decode("ascii", "replace").split()
            os.close(fd)
            return None, ", ".join(map(str, sorted(holders))) or (written or ["unknown"])[0]
        if _is_still(fd, path):
            break
        os.close(fd)  # Its holder removed it while we waited: lock the new one.
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()} {psutil.Process().create_time()}\n".encode("ascii"), 0)
    return fd, ""


def _is_still(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


class NodeFiles:
    """The data directory of one node start.

    Raises Refused with 2 (unusable) or 6 (held by another).
    """

    def __init__(self, data_dir: str) -> None:
        # Where a symbolic link leads today: one that is turned elsewhere later, as deploys do, must
        # not have an actor that begins again open another store.
        self.data_dir = Path(os.path.realpath(data_dir))
        self.run_dir = Path()
        self._created: list[Path] = []
        self._link: Path | None = None
        self._root_lock: int | None = None

    def open(self) -> None:
        """Make the directory, take root.lock, wait for left-overs of a killed node, make the run
        directory.
        """
        self.hold()
        with self._undone():
            self._remove_old_runs()
            self._make_run_dir()

    def hold(self) -> None:
        """Make the directory, and have it for us alone: no node runs on it, nothing of one is left.

        Until `close`, `undo` or `release`.
        """
        with self._undone():
            self._make_data_dir()
            fd, holder = lock_file(self.data_dir / ROOT_LOCK)
            if fd is None:
                kill = f" (kill {holder})" if holder.isdecimal() else ""
                raise Refused(
                    6,
                    f"data directory {self.data_dir} is held by process {holder}: stop that node"
                    f"{kill}, or give another directory with --data",
                )
            self._root_lock = fd
            self._await_left_overs()
            self._make_room()

    def _make_room(self) -> None:
        """On a full disk the ballast goes first: a start needs a few small files."""
        room = Room(self.data_dir)
        if room.free_bytes() < BEGINNING_BYTES:
            room.drop()

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        """Leaves nothing behind where what is done within fails."""
        try:
            yield
        except OSError as error:
            self.undo()
            raise self._unusable(error) from error
        except Refused:
            self.undo()
            raise

    def _unusable(self, error: OSError) -> Refused:
        where = f" ({error.filename})" if str(error.filename) != str(self.data_dir) else ""
        why = error.strerror or str(error)
        return Refused(
            2,
            f"cannot use data directory {self.data_dir}: {why}{where}; "
            "give another with --data, one that can be written",
        )

    def _make_data_dir(self) -> None:
        missing = []
        path = self.data_dir
        while not path.exists():
            missing.append(path)
            path = path.parent
        if not self.data_dir.is_dir() and not missing:
            raise NotADirectoryError(errno.ENOTDIR, "It is a file", str(self.data_dir))
        for path in reversed(missing):
            path.mkdir(mode=0o700)
            self._created.insert(0, path)

    def _await_left_overs(self) -> None:
        fd = os.open(self.data_dir / CHILDREN_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline_ms = boottime_ms() + LEFT_OVERS_MS
            while True:
                try:
                    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.EACCES):
                        raise
                else:
                    return  # Closing the file gives the lock up: children share it from now on.
                holders = lock_holders(fd)
                left_ms = deadline_ms - boottime_ms()
                if left_ms <= 0:
                    named = ", ".join(map(str, sorted(holders))) or "unknown"
                    raise Refused(
                        6,
                        f"data directory {self.data_dir} is held by left-over processes {named}: "
                        "end them, or give another directory with --data",
                    )
                _await_exit(holders, left_ms)
        finally:
            os.close(fd)

    def _remove_old_runs(self) -> None:
        run = self.data_dir / RUN
        run.mkdir(mode=0o700, exist_ok=True)
        for old in run.iterdir():
            if old.is_symlink():
                target = Path(os.readlink(old))
                if target.name.startswith(FALLBACK_PREFIX) and _is_ours(target):
                    shutil.rmtree(target)
                old.unlink()
            elif old.is_dir():
                shutil.rmtree(old)
        (self.data_dir / NODE_FILE).unlink(missing_ok=True)

    def _make_run_dir(self) -> None:
        name = self.data_dir / RUN / RUN_NAME
        if _fits(name):
            name.mkdir(mode=0o700)
            self.run_dir = name
            return
        for place in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
            if _fits(Path(place) / f"{FALLBACK_PREFIX}12345678"):
                self.run_dir = self._make_fallback(place)
                # So that a later node finds what a killed one left in the other place.
                name.symlink_to(self.run_dir)
                self._link = name
                return
        length = len(os.fsencode(name)) + SOCKET_NAME_MAX
        raise Refused(
            2, f"socket path too long: {name} needs {length} bytes, the limit is {SOCKET_PATH_MAX}"
        )

    def _make_fallback(self, place: str) -> Path:
        """A short directory that belongs to this data directory and to no other."""
        found = self.data_dir.stat()
        identity = f"{found.st_dev} {found.st_ino} {os.fspath(self.data_dir)}"
        digest = hashlib.blake2b(os.fsencode(identity), digest_size=4).hexdigest()
        path = Path(place) / f"{FALLBACK_PREFIX}{digest}"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return Path(tempfile.mkdtemp(prefix=FALLBACK_PREFIX, dir=place))
        return path

    def write_node(self, info: NodeInfo) -> None:
        """Tell tools where the node is: node.json, whole or not at all."""
        path = self.data_dir / NODE_FILE
        fresh = path.with_suffix(".json.new")
        fresh.write_bytes(msgspec.json.encode(info) + b"\n")
        os.replace(fresh, path)

    def close(self) -> None:
        """The orderly end: node.json and the sockets go, the locks are given up."""
        (self.data_dir / NODE_FILE).unlink(missing_ok=True)
        self._remove_run_dir()
        self._unlock()

    def release(self) -> None:
        """What `hold` took is given up; no node was started."""
        self._unlock()

    def undo(self) -> None:
        """The node was not started: leave nothing that was not there before."""
        self._remove_run_dir()
        if self._created:
            for name in (ROOT_LOCK, CHILDREN_LOCK):
                (self.data_dir / name).unlink(missing_ok=True)
            run = self.data_dir / RUN
            for path in (run, *self._created):
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
        self._unlock()

    def _remove_run_dir(self) -> None:
        if self.run_dir != Path():
            shutil.rmtree(self.run_dir, ignore_errors=True)
            self.run_dir = Path()
        if self._link is not None:
            self._link.unlink(missing_ok=True)
            self._link = None

    def _unlock(self) -> None:
        if self._root_lock is not None:
            os.close(self._root_lock)
            self._root_lock = None


def _fits(run_dir: Path) -> bool:
    return len(os.fsencode(run_dir)) + SOCKET_NAME_MAX <= SOCKET_PATH_MAX


def _is_ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return path.is_dir() and not path.is_symlink() and found.st_uid == os.getuid()


def _await_exit(pids: set[int], timeout_ms: int) -> None:
    """Wait until one of them has ended, or the time has passed; a little where they can't be
    watched.
    """
    poll = select.poll()
    fds = []
    for pid in pids:
        try:
            fds.append(os.pidfd_open(pid))
        except (OSError, AttributeError):
            continue
    for fd in fds:
        poll.register(fd, select.POLLIN)
    poll.poll(timeout_ms if len(fds) == len(pids) and fds else min(timeout_ms, 20))
    for fd in fds:
        os.close(fd)
