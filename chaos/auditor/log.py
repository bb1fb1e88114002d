"""The commit log as a chain: dense, linked, one writer at a time."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple, Protocol

import msgspec

from chaos.auditor import interactions, names
from chaos.auditor.findings import Findings
from chaos.auditor.fold import Fold
from chaos.auditor.retries import GRACE_MS

HASH_BYTES = 32
GENESIS = bytes(HASH_BYTES)
OPENED_AT = names.BODY.index("opened")
GRACE_AT = names.BODY.index("recovery_grace_ms")

_decode = msgspec.msgpack.Decoder().decode


class CommitRow(Protocol):
    """One row of the commit log, whoever holds it."""

    @property
    def n(self) -> int:
        """Its number."""

    @property
    def epoch(self) -> int:
        """The life of history that wrote it."""

    @property
    def at_ms(self) -> int:
        """History's clock."""

    @property
    def previous_hash(self) -> bytes:
        """The hash of the commit before."""

    @property
    def hash(self) -> bytes:
        """Over that and the body."""

    @property
    def body(self) -> bytes:
        """What was decided."""


class Base(NamedTuple):
    """What a pruned log begins after; commit 0 where it is whole."""

    n: int = 0
    hash: bytes = GENESIS


class Opening(NamedTuple):
    """The commit that began an epoch."""

    n: int
    at_ms: int
    incarnation: str


def link(previous: bytes, body: bytes) -> bytes:
    """The hash of a commit with this body behind the commit with hash `previous`."""
    digest = hashlib.blake2b(previous, digest_size=HASH_BYTES)
    digest.update(body)
    return digest.digest()


class Log:
    """Reads rows in order, and hands to the fold what they state."""

    def __init__(self, found: Findings, fold: Fold, base: Base) -> None:
        self._found = found
        self._fold = fold
        self.base = base
        self.n = base.n
        self.hash = base.hash
        self.epoch: int | None = None if base.n else 0
        self.at_ms: int | None = None
        self.commits = 0
        self.unread = 0  # Commits whose body made no sense: the fold does not know what they did.
        self.openings: dict[int, Opening] = {}
        self._seen: dict[int, tuple[bytes, str]] = {}

    def seen(self, n: int, link: bytes, by: str) -> None:
        """`by` says that commit `n` was durable with this hash; to be called before it is fed."""
        if n > self.base.n:
            self._seen[n] = (link, by)

    def lost(self) -> None:
        """At the end: report what was seen elsewhere and is not here."""
        newest = {by: n for n, (_, by) in sorted(self._seen.items())}
        for by, n in newest.items():
            text = f"the log ends at commit {self.n}; {by} has seen commit {n}"
            self._found.add(9, by, text)

    def feed(self, row: CommitRow) -> None:
        """The next row."""
        self.commits += 1
        try:
            body = self._chained(row)
        except (TypeError, ValueError, AttributeError) as problem:
            self._found.add(13, f"commit {row.n}", f"its columns make no sense: {problem!r}")
            body = None
        if body is None:
            self.unread += 1
            return
        incarnation = body[OPENED_AT] if len(body) > OPENED_AT else None
        if incarnation is not None or row.epoch != self.epoch:
            self._opened(row, body, incarnation)
        fold = self._fold
        fold.n, fold.at_ms = row.n, row.at_ms
        stall_ms = getattr(row, "stall_ms", 0)
        if stall_ms < fold.stall_ms:
            text = f"history stood still for {fold.stall_ms} ms in all, and now for {stall_ms}"
            self._found.add(21, f"commit {row.n}", text)
        fold.stall_ms = stall_ms
        groups = [group for group in body[3] if _is_group(group)]
        if len(groups) < len(body[3]):
            self.unread += len(body[3]) - len(groups)
            self._found.add(13, f"commit {row.n}", "a group of its records makes no sense")
        gates = [record for group in groups if not group[0] for record in group[1]]
        if gates:
            fold.set_gates(gates, before=True)
        for group in groups:
            if group[0]:
                fold.group(group[0], group[1])
        if fold.left_behind:
            interactions.check_left_behind(fold)
        if gates:
            fold.set_gates(gates, before=False)

    def _chained(self, row: CommitRow) -> list[Any] | None:
        where = f"commit {row.n}"
        if row.n != self.n + 1:
            text = f"stands where commit {self.n + 1} belongs"
            self._found.add(1, where, text)
        elif row.previous_hash != self.hash:
            self._found.add(2, where, f"does not link to the hash of commit {self.n}")
        if link(row.previous_hash, row.body) != row.hash:
            self._found.add(2, where, "its hash is not that of its body")
        seen = self._seen.pop(row.n, None)
        if seen is not None and seen[0] != row.hash:
            self._found.add(9, where, f"it is not the commit {row.n} that {seen[1]} has seen")
        self.n, self.hash = row.n, row.hash
        body = _body_of(row.body)
        if isinstance(body, str):
            self._found.add(13, where, body)
            return None
        if body[0] != row.n:
            self._found.add(1, where, f"its body says that it is commit {body[0]}")
        if body[1] != row.epoch:
            self._found.add(3, where, f"stands under epoch {row.epoch}, its body says {body[1]}")
        if body[2] != row.at_ms:
            self._found.add(10, where, f"stands under {row.at_ms}, its body says {body[2]}")
        if self.at_ms is not None and row.at_ms < self.at_ms:
            text = f"the clock went back by {self.at_ms - row.at_ms} ms"
            self._found.add(21, where, text)
        self.at_ms = row.at_ms
        return body

    def _opened(self, row: CommitRow, body: list[Any], incarnation: Any) -> None:
        where = f"commit {row.n}"
        before, self.epoch = self.epoch, row.epoch
        if incarnation is None:
            if before is not None and row.epoch != before:
                text = f"epoch {row.epoch} follows epoch {before} and was not opened"
                self._found.add(3, where, text)
            return
        if before is not None and row.epoch != before + 1:
            self._found.add(3, where, f"opens epoch {row.epoch} after epoch {before}")
        if body[3]:
            self._found.add(3, where, "opens an epoch and states something else as well")
        self.openings[row.epoch] = Opening(row.n, row.at_ms, str(incarnation))
        self._fold.began_ms = row.at_ms
        said = body[GRACE_AT] if len(body) > GRACE_AT else None
        self._fold.grace_ms = GRACE_MS if said is None else said


def _is_group(group: Any) -> bool:
    return (
        type(group) is list and len(group) >= 2 and type(group[0]) is str and type(group[1]) is list
    )


def _body_of(raw: bytes) -> list[Any] | str:
    """The decoded body, or what is wrong with it."""
    try:
        body = _decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        return f"its body can't be read: {problem}"
    if not isinstance(body, list) or len(body) < names.BODY_REQUIRED:
        return "its body is no commit"
    if not isinstance(body[3], list):
        return "its body holds no groups"
    return body
