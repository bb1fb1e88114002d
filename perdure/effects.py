"""Receivers that ignore a key they have seen, so that a repeated delivery has no second effect.

Delivery is at least once; a receiver that writes the key in the same transaction as the effect
makes the effect exactly once.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import apsw
import msgspec

from perdure import values
from perdure.clock import wall_ms
from perdure.crash_points import CrashPoint, reached
from perdure.errors import FailedPrecondition, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from perdure.directory_effects import DirectoryEffects as DirectoryEffects

BUSY_TIMEOUT_MS = 60_000
KEY_BYTES_MAX = 2_048
HEADER = "Idempotency-Key"

current_activity: Callable[[], tuple[str, int] | None] | None = None
"""Set by perdure.activity: the (idempotency key, attempt) of the activity that runs here, or None
outside of one."""


class Watch(Protocol):
    """Who looks on while effects are applied, and lends the receivers another database for it."""

    def connection(self, path: str) -> apsw.Connection:
        """What stands for the database at `path`; `prepare` has been called on it."""

    def asked(self, path: str, key: str) -> None:
        """An effect is about to be applied, or found applied."""

    def answered(self, path: str, key: str) -> None:
        """It is committed now, or was already."""


watch: Watch | None = None
"""Set by a verification (`perdure verify`), for the time of one run; else None."""

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS perdure_effects (
           key TEXT PRIMARY KEY, result BLOB NOT NULL, at_ms INTEGER NOT NULL
       ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS perdure_deliveries (
           number INTEGER PRIMARY KEY, key TEXT NOT NULL, attempt INTEGER NOT NULL,
           token_hash TEXT, fence INTEGER, payload_hash TEXT,
           applied INTEGER NOT NULL, at_ms INTEGER NOT NULL
       ) STRICT""",
    "CREATE INDEX IF NOT EXISTS perdure_deliveries_by_key ON perdure_deliveries (key)",
)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One call of `apply_once`: whether it applied the key, or found it applied (or failed)."""

    key: str
    attempt: int
    token_hash: str | None
    fence: int | None
    payload_hash: str | None
    applied: bool
    at_ms: int


class SqliteEffects:
    """A receiver in an SQLite database, which may be the one that the effects are written to.

    Any number of threads and processes may use one file, forked ones included. Opens the file
    at the first use; close it, or use it as a context manager.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._path = os.fspath(path)
        self._busy_timeout_ms = busy_timeout_ms
        self._now_ms = now_ms
        self._connection: apsw.Connection | None = None
        # Reentrant, so that a call inside a call is refused and does not wait for itself.
        self._lock = threading.RLock()
        _receivers.add(self)

    def apply_once(
        self,
        key: str | None = None,
        fn: Callable[..., Any] | None = None,
        *,
        attempt: int | None = None,
        token: str | bytes | None = None,
        fence: int | None = None,
        payload: Any = None,
    ) -> Any:
        """The result of the first application of `key`: `fn` is called only if there was none.

        `fn(connection)`, or `fn()` if it can be called without arguments, runs inside the
        transaction that records the key; what it writes through `connection` is committed with it
        or not at all. It may not end the transaction, and returns what values.encode takes. If it
        raises, nothing is applied, the delivery is recorded and the exception goes on.

        Inside an activity `key` and `attempt` default to its own. `token` is kept as a hash, and so
        is `payload`, what the effect was asked for. `fence` is compared: FailedPrecondition if a
        higher one has asked for the key. Unavailable if the database stays locked.
        """
        key, attempt = identity(key, attempt)
        delivery = Delivery(
            key=key,
            attempt=attempt,
            token_hash=_hashed(token),
            fence=fence,
            payload_hash=None if payload is None else values.digest(values.encode(payload)).hex(),
            applied=False,
            at_ms=self._now_ms(),
        )
        with self._lock:
            connection = self._open()
            if connection.in_transaction:
                raise FailedPrecondition("apply_once is called inside apply_once of this receiver")
            if watch is not None:
                watch.asked(self._path, key)
            try:
                result = _applied_once(connection, delivery, fn)
            except apsw.BusyError as problem:
                raise Unavailable(
                    f"the database of effects stayed locked for {self._busy_timeout_ms} ms"
                ) from problem
            if watch is not None:
                watch.answered(self._path, key)
        return values.decode(result)

    def applied(self) -> dict[str, int]:
        """How often each key was applied, by the deliveries: 1 for each, or the proof of a bug."""
        with self._lock:
            rows: list[Any] = (
                self._open()
                .execute(
                    "SELECT key, count(*) FROM perdure_deliveries WHERE applied = 1 GROUP BY key"
                )
                .fetchall()
            )
            return dict(rows)

    def deliveries(self, key: str | None = None) -> list[Delivery]:
        """Every delivery, or those of `key`, in the order in which they came."""
        with self._lock:
            rows = self._open().execute(
                "SELECT key, attempt, token_hash, fence, payload_hash, applied, at_ms "
                "FROM perdure_deliveries WHERE ?1 IS NULL OR key = ?1 ORDER BY number",
                (key,),
            )
            fields = Delivery.__struct_fields__
            return [
                msgspec.convert(dict(zip(fields, row, strict=True)), Delivery, strict=False)
                for row in rows
            ]

    def close(self) -> None:
        """Close the database. A later use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __enter__(self) -> SqliteEffects:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            if not Path(self._path).absolute().parent.is_dir():
                raise InvalidArgument(f"there is no directory for {self._path}", field="path")
            if watch is not None:
                self._connection = watch.connection(self._path)
                return self._connection
            try:
                self._connection = _connect(self._path, self._busy_timeout_ms)
            except apsw.BusyError as problem:
                raise Unavailable(f"{self._path} is locked and can't be opened") from problem
        return self._connection

    def _forget_after_fork(self) -> None:
        """Leave the parent's connection alone: even to close it here would break its locks."""
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            self._connection = None
        self._lock = threading.RLock()  # The old one may be held by a thread that is not here.


_receivers: weakref.WeakSet[SqliteEffects] = weakref.WeakSet()


def _forget_all_after_fork() -> None:
    for receiver in list(_receivers):
        receiver._forget_after_fork()


os.register_at_fork(after_in_child=_forget_all_after_fork)


def _connect(path: str, busy_timeout_ms: int) -> apsw.Connection:
    connection = apsw.Connection(path)
    try:
        connection.set_busy_timeout(busy_timeout_ms)
        _enter_wal(connection, busy_timeout_ms)
        connection.execute("PRAGMA synchronous = FULL")
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: apsw.Connection) -> None:
    """Make the tables of a receiver, where they are not there yet."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute("COMMIT")


def _enter_wal(connection: apsw.Connection, busy_timeout_ms: int) -> None:
    """SQLite does not wait when two processes change the mode at once, so we do."""
    pause, waited_ms = threading.Event(), 0
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except apsw.BusyError:
            if waited_ms >= busy_timeout_ms:
                raise
        else:
            return
        pause.wait(0.01)
        waited_ms += 10


def _applied_once(
    connection: apsw.Connection, delivery: Delivery, fn: Callable[..., Any] | None
) -> bytes:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found: list[Any] = connection.execute(
            "SELECT result FROM perdure_effects WHERE key = ?", (delivery.key,)
        ).fetchall()
        if found:
            _record(connection, delivery)
            result: bytes = found[0][0]
        else:
            result = _apply(connection, delivery, fn)
            _record(connection, msgspec.structs.replace(delivery, applied=True))
            connection.execute(
                "INSERT INTO perdure_effects (key, result, at_ms) VALUES (?, ?, ?)",
                (delivery.key, result, delivery.at_ms),
            )
            reached(CrashPoint.WORKER_EFFECT_WRITTEN_NOT_COMMITTED)
        connection.execute("COMMIT")
        reached(CrashPoint.WORKER_EFFECT_APPLIED_NOT_RETURNED)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _apply(connection: apsw.Connection, delivery: Delivery, fn: Callable[..., Any] | None) -> bytes:
    """Run `fn` in the open transaction. If it fails, commit the delivery without its writes."""
    connection.execute("SAVEPOINT perdure_fn")
    connection.authorizer = _keep_transaction
    try:
        _check_fence(connection, delivery)
        result = values.encode(_call(fn, connection))
    except BaseException as problem:
        connection.authorizer = None
        try:
            connection.execute("ROLLBACK TO perdure_fn")
            _record(connection, delivery)
            connection.execute("COMMIT")
        except apsw.Error as trouble:
            # The effect's own failure is what matters; that the note is missing is said with it.
            problem.add_note(f"the delivery could not be recorded: {trouble}")
        raise
    connection.authorizer = None
    connection.execute("RELEASE perdure_fn")
    return result


def _keep_transaction(action: int, *_: str | None) -> int:
    """What `fn` may do: everything but ending the transaction that makes it happen once."""
    return apsw.SQLITE_DENY if action == apsw.SQLITE_TRANSACTION else apsw.SQLITE_OK


def _call(fn: Callable[..., Any] | None, connection: apsw.Connection) -> Any:
    if fn is None:
        return None
    result = fn(connection) if takes_an_argument(fn) else fn()
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InvalidArgument("fn must be a plain function: a transaction can't wait", field="fn")
    return result


def takes_an_argument(fn: Callable[..., Any]) -> bool:
    """Whether `fn` needs what a receiver hands it.

    A default (`lambda i=i: …`) is not for us to replace.
    """
    try:
        inspect.signature(fn).bind()
    except (TypeError, ValueError):  # ValueError: a builtin that has no signature.
        return True
    return False


def _check_fence(connection: apsw.Connection, delivery: Delivery) -> None:
    if delivery.fence is None:
        return
    rows: list[Any] = connection.execute(
        "SELECT max(fence) FROM perdure_deliveries WHERE key = ?", (delivery.key,)
    ).fetchall()
    newest = rows[0][0]
    if newest is not None and newest > delivery.fence:
        raise FailedPrecondition(
            f"fence {delivery.fence} is stale: {newest} has already asked for this key",
            field="fence",
        )


def _record(connection: apsw.Connection, delivery: Delivery) -> None:
    connection.execute(
        "INSERT INTO perdure_deliveries "
        "(key, attempt, token_hash, fence, payload_hash, applied, at_ms) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        msgspec.structs.astuple(delivery),
    )


def identity(key: str | None, attempt: int | None) -> tuple[str, int]:
    """Key and attempt of an effect, by default those of the activity that runs here (attempt 0
    outside of one). InvalidArgument, naming the key, for one that is missing or can't be.
    """
    if key is None or attempt is None:
        running = None if current_activity is None else current_activity()
        if running is not None:
            key = running[0] if key is None else key
            attempt = running[1] if attempt is None else attempt
    if key is None:
        raise InvalidArgument("outside an activity a key must be given", field="key")
    if not 0 < len(key.encode(errors="replace")) <= KEY_BYTES_MAX:
        raise InvalidArgument(f"key must be a text of 1 to {KEY_BYTES_MAX} bytes", field="key")
    return key, attempt or 0


def http_headers(key: str | None = None) -> dict[str, str]:
    """The header by which many HTTP services tell a repeated request: `Idempotency-Key`.

    Inside an activity `key` defaults to its own, in which what a header can't carry is
    percent-encoded. A `key` that is given must be printable ASCII: InvalidArgument.
    """
    if key is None:
        own, _ = identity(None, None)
        return {HEADER: "".join(one if _fits(one) else _escaped(one) for one in own)}
    identity(key, None)
    if not all(map(_fits, key)):
        raise InvalidArgument("key must be printable ASCII without spaces", field="key")
    return {HEADER: key}


def _fits(one: str) -> bool:
    return "!" <= one <= "~"


def _escaped(one: str) -> str:
    return "".join(f"%{byte:02X}" for byte in one.encode())


def _hashed(token: str | bytes | None) -> str | None:
    if token is None:
        return None
    raw = token.encode() if isinstance(token, str) else token
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def __getattr__(name: str) -> Any:
    """DirectoryEffects, at its first use."""
    if name != "DirectoryEffects":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perdure.directory_effects import DirectoryEffects

    return DirectoryEffects
