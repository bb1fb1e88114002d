"""What a power loss may leave on the disk, worked out from what was asked of it. Pure.

Whatever stands before a file's last sync is there; of what was asked since then any part may be,
in any combination. A write in flight is torn at sectors of 512 bytes. So for each moment there are
as many states as there are subsets of what is pending, and of the sectors of the last write.

The witness is never synced: it may be as it was at any earlier moment, each of its two sectors by
itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from chaos.faults.recording_vfs import (
    LOG,
    WITNESS,
    Begun,
    Delete,
    Durable,
    Op,
    Sync,
    Truncate,
    Witnessed,
    Write,
)

SECTOR = 512

Change = Write | Truncate | Delete
Files = dict[str, bytes]


class Moment(msgspec.Struct, frozen=True):
    """The power fails here, right after operation `at`.

    `floor`: the newest commit that may have been acknowledged. `durable`: the files as they are for
    sure. `pending`: what else was asked; of the last `torn` of it at least one is in each state,
    for the states without any belong to an earlier moment. `witnesses`: all that the witness was.
    """

    at: int
    floor: int
    durable: Mapping[str, bytes]
    pending: tuple[Change, ...]
    torn: int
    witnesses: tuple[bytes, ...]

    @property
    def possible(self) -> int:
        """How many states there are, the witness apart."""
        free = 1 << (len(self.pending) - self.torn)
        return free * ((1 << self.torn) - 1) if self.torn else free


class State(msgspec.Struct, frozen=True):
    """What may be found after a power loss at `moment`: these files and no others."""

    at: int
    floor: int
    files: Files


def moments(ops: Sequence[Op]) -> Iterator[Moment]:
    """Every moment at which other states are possible than at the one before."""
    durable: Files = {}
    pending: list[Change] = []
    witnesses: list[bytes] = []
    floor = 0
    for at, op in enumerate(ops):
        torn: list[Change] = []
        match op:
            case Begun():
                continue
            case Witnessed(data=data):
                witnesses.append(data)
            case Durable(n=n):
                floor = n
            case Sync(file=file):
                settled = [each for each in pending if _settles(file, each)]
                pending = [each for each in pending if not _settles(file, each)]
                durable = applied(durable, settled)
            case Delete(file=file, synced=True):
                # Nobody looks at what a file was that is gone for sure.
                pending = [each for each in pending if each.file != file]
                durable = {name: data for name, data in durable.items() if name != file}
            case Write() | Truncate() | Delete():
                torn = list(sectors(op))
        yield Moment(at, floor, durable, (*pending, *torn), len(torn), tuple(witnesses))
        if isinstance(op, Write | Truncate) or (isinstance(op, Delete) and not op.synced):
            pending.append(op)


def _settles(file: str, change: Change) -> bool:
    """Whether a sync of `file` is one of this change. SQLite syncs the directory with a new log."""
    return change.file == file or (file == LOG and isinstance(change, Delete))


def sectors(op: Change) -> Iterator[Change]:
    """A write as the writes of its sectors; anything else as it is."""
    if not isinstance(op, Write):
        yield op
        return
    begin, end = op.offset, op.offset + len(op.data)
    while begin < end:
        until = min(end, (begin // SECTOR + 1) * SECTOR)
        yield Write(op.file, begin, op.data[begin - op.offset : until - op.offset])
        begin = until


def applied(files: Mapping[str, bytes], changes: Iterable[Change]) -> Files:
    """The files after these changes, in their order. What was skipped over reads as zeros."""
    found = dict(files)
    open_: dict[str, bytearray] = {}
    for change in changes:
        if isinstance(change, Delete):
            open_.pop(change.file, None)
            found.pop(change.file, None)
            continue
        data = open_.get(change.file)
        if data is None:
            data = open_[change.file] = bytearray(found.get(change.file, b""))
        if isinstance(change, Truncate):
            del data[change.size :]
            continue
        end = change.offset + len(change.data)
        if len(data) < end:
            data.extend(bytes(end - len(data)))
        data[change.offset : end] = change.data
    return found | {name: bytes(data) for name, data in open_.items()}


def states(moment: Moment, most: int, dice: random.Random) -> Iterator[State]:
    """The states of this moment: every one, or `most` of them if there are more."""
    for mask in _masks(moment, most, dice):
        chosen = [each for bit, each in enumerate(moment.pending) if mask >> bit & 1]
        files = applied(moment.durable, chosen)
        witness = _witness(moment.witnesses, dice)
        if witness is not None:
            files[WITNESS] = witness
        yield State(moment.at, moment.floor, files)


def _masks(moment: Moment, most: int, dice: random.Random) -> Iterable[int]:
    count, torn = len(moment.pending), moment.torn
    last = ((1 << torn) - 1) << (count - torn)
    everything = (1 << count) - 1
    if moment.possible <= most:
        return [mask for mask in range(everything + 1) if not torn or mask & last]
    chosen: dict[int, None] = {}
    # Those that differ least from a loss that is in order, where there is room for others, too.
    near = (everything, last, *(everything & ~(1 << bit) for bit in range(count)))
    tried = iter(near if most > count else ())
    while len(chosen) < most:
        mask = next(tried, None)
        mask = dice.getrandbits(count) if mask is None else mask
        if not torn or mask & last:
            chosen[mask] = None
    return chosen


def _witness(seen: Sequence[bytes], dice: random.Random) -> bytes | None:
    """Each half as it was at some moment, most often the newest."""
    if not seen:
        return None
    halves = [seen[-1] if dice.random() < 0.6 else dice.choice(seen) for _ in range(2)]
    return halves[0][:SECTOR] + halves[1][SECTOR:]


def lied(before: Moment, after: Moment) -> State:
    """What is found when the disk has done nothing since `before`, although it said so when the
    commits up to `after.floor` were synced, and the witness reached it.
    """
    files = {**before.durable, WITNESS: after.witnesses[-1]}
    return State(after.at, after.floor, files)
