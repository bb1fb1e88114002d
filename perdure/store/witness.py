"""The witness: the newest commit's number and hash, kept beside the database.

SQLite takes a damaged middle of its log for the end of it, without an error, and knows nothing of a
file that was deleted or put back from yesterday. So after each commit (number, hash) is written
here, alternately into two slots. Not synced, because it need not be newer than the store, and
written only once the commit is durable, so that it is never ahead of a store that is whole.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from perdure.store.protocol import StoreBehind
from perdure.store.room import BALLAST_NAME

WITNESS_NAME = "witness"
# A slot is within one sector: what a disk writes of it is all or nothing.
SLOT_BYTES = 512
SLOTS = 2
# What stands here while a restore moves files, so that no node starts on a half of them.
_MOVING_N = 2**62
_MAGIC = b"PWT1"
_SLOT = struct.Struct("<4sQ32s")
_CHECK_BYTES = 16
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Seen(NamedTuple):
    """A commit that was durable once."""

    n: int
    hash: bytes


class Witness:
    """The file `witness` in a data directory, open for writing; made where it is missing.

    Call it with the number and the hash of each commit. Raises OSError where the disk fails.
    """

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / WITNESS_NAME
        if not path.exists():
            _replace(path, [])
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def __call__(self, n: int, link: bytes) -> None:
        """Remember commit `n`, which is durable."""
        try:
            os.pwrite(self._fd, _packed(Seen(n, link)), n % SLOTS * SLOT_BYTES)
        except OSError as cause:
            # Where a file system wants room even to overwrite: an old witness is a true one.
            if cause.errno not in _NO_ROOM:
                raise

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read(data_dir: Path) -> list[Seen]:
    """What the readable slots of the directory's witness say, the newest first.

    Nothing where there is no witness. Raises StoreBehind where there is one and it cannot be read.
    """
    try:
        raw = (data_dir / WITNESS_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    slots = [raw[at * SLOT_BYTES :][: _SLOT.size + _CHECK_BYTES] for at in range(SLOTS)]
    found = [seen for seen in map(_unpacked, slots) if seen is not None]
    # New, both are empty; a write that was cut short by a power loss can have harmed one.
    if not found and any(slot.strip(b"\0") for slot in slots):
        raise StoreBehind(
            f"the witness in {data_dir} is damaged, so nobody knows whether the store is whole;"
            f" {_advice(data_dir)}"
        )
    return sorted(found, reverse=True)


def check(
    data_dir: Path, seen: list[Seen], newest: Seen, hash_of: Callable[[int], bytes | None]
) -> None:
    """Nothing, when a store that ends in `newest` has every commit that was seen.

    `hash_of` gives a commit's hash, or None for one that was pruned. Raises StoreBehind.
    """
    for one in seen:
        if is_moving([one]):
            raise StoreBehind(
                f"a perdure restore in {data_dir} was interrupted: run it again (what was there"
                f" before is in {data_dir}/aside)"
            )
        if one.n > newest.n:
            raise StoreBehind(
                f"the store in {data_dir} ends at commit {newest.n}, but commit {one.n} was there:"
                f" {one.n - newest.n} commits are lost; {_advice(data_dir)}"
            )
        found = newest.hash if one.n == newest.n else hash_of(one.n)
        if found is not None and found != one.hash:
            raise StoreBehind(
                f"commit {one.n} of the store in {data_dir} is not the commit {one.n} that was"
                f" there (the store ends at {newest.n}); {_advice(data_dir)}"
            )


def check_new(data_dir: Path) -> None:
    """Nothing, when there never was a store here, as far as its ballast can tell, which history has
    only once it has a store. Raises StoreBehind: who deletes a store and its witness must say so.
    """
    if (data_dir / BALLAST_NAME).exists():
        raise StoreBehind(
            f"there was a store in {data_dir} (its {BALLAST_NAME} is there), and neither it nor its"
            " witness is there any more; nothing was changed: put the files back, or restore a"
            f" backup (perdure restore SRC --data {data_dir}), or delete the whole directory to"
            " begin anew without what was in it"
        )


def reset(data_dir: Path, newest: Seen | None) -> None:
    """A new witness of `newest` alone, durable; the caller has put the old one aside."""
    _replace(data_dir / WITNESS_NAME, [] if newest is None else [newest])


def moving(data_dir: Path) -> None:
    """From now on, until `reset`, no node starts here: the store's files are being moved."""
    _replace(data_dir / WITNESS_NAME, [Seen(_MOVING_N, bytes(32))])


def is_moving(seen: list[Seen]) -> bool:
    """Whether a restore was interrupted while it moved files."""
    return any(one.n == _MOVING_N for one in seen)


def _advice(data_dir: Path) -> str:
    return (
        "nothing was changed: put the right files back, or restore a backup"
        f" (perdure restore SRC --data {data_dir}), or accept what is there"
        f" (perdure restore --accept --data {data_dir})"
    )


def _packed(seen: Seen) -> bytes:
    body = _SLOT.pack(_MAGIC, seen.n, seen.hash)
    return body + blake2b(body, digest_size=_CHECK_BYTES).digest()


def _unpacked(slot: bytes) -> Seen | None:
    body, check_ = slot[: _SLOT.size], slot[_SLOT.size :]
    if len(body) < _SLOT.size or blake2b(body, digest_size=_CHECK_BYTES).digest() != check_:
        return None
    _, n, link = _SLOT.unpack(body)
    return Seen(n, link)


def _replace(path: Path, seen: list[Seen]) -> None:
    """A whole new file under this name, durable."""
    raw = bytearray(SLOTS * SLOT_BYTES)
    for one in seen:
        packed = _packed(one)
        at = one.n % SLOTS * SLOT_BYTES
        raw[at : at + len(packed)] = packed
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, raw)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(fresh, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
