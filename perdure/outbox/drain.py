"""Bringing the rows of an outbox to a node: which ones, in which order, and what becomes of each.

It knows neither the database nor the node: a Source has the rows, `submit` carries requests out.
Nothing is remembered here that matters: whoever begins anew asks again what was asked already, and
the request ids, which are the rows' ids, make that harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from perdure import wire
from perdure.clock import boottime_ms, wall_ms
from perdure.crash_points import CrashPoint, reached
from perdure.errors import FailedPrecondition, InvalidArgument, PerdureError, Unavailable
from perdure.outbox.table import DONE, FAILED, Row, Trouble

PAGE = 500
PAGE_BYTES = 8 * 1024 * 1024
# So many that are put off all at once are put off by the node (its disk is full, say).
MANY = 20
KEEP_DONE_MS = 86_400_000
PRUNE_EVERY_MS = 600_000
PRUNE_ROWS = 1_000
STUCK_FIRST_MS, STUCK_MAX_MS = 1_000, 60_000
MESSAGE_CHARS_MAX = 1_000
ARGS_BYTES_MAX = wire.REQUEST_BYTES_MAX - 1_024  # Beside them stand the operation and a number.

# What says nothing about the request itself, or may pass: it is asked again. All else is final.
PASSING = wire.UNKNOWN_OUTCOME | {"DEADLINE_EXCEEDED", "UNAUTHENTICATED"}

Submit = Callable[[Sequence[wire.Args]], Sequence[Any | PerdureError]]
"""Carries the requests out: of each what came of it, or its error."""

_args_of: dict[str, type[wire.Args]] = {
    "StartWorkflow": wire.StartWorkflow,
    "SignalWorkflow": wire.SignalWorkflow,
}


class End(NamedTuple):
    """What became of a row: `state` is DONE, FAILED, or None where it is asked again later."""

    id: str
    state: str | None
    code: str | None = None
    message: str | None = None


class Source(Protocol):
    """The rows of one outbox. Every method raises Trouble where the database can't be used now."""

    def pending(self, after: int, limit: int) -> list[Row]:
        """Rows that nobody has dealt with, in order, with a number above `after`: `limit` at most,
        and fewer where they are large; none only where there is none.
        """
        ...

    def end(self, ends: Iterable[End], at_ms: int) -> None:
        """Write down what became of these, in one transaction."""
        ...

    def prune(self, before_ms: int, limit: int) -> int:
        """Delete rows that were done before then, `limit` at most; how many they were."""
        ...


class _Stuck:
    __slots__ = ("delay_ms", "until_ms")

    def __init__(self) -> None:
        self.delay_ms = STUCK_FIRST_MS
        self.until_ms = 0


class Drain:
    """Drains one outbox. `on_failed` hears of each row that was refused for good.

    `source` may be exchanged between two sweeps for a new connection to the same rows.
    """

    def __init__(
        self,
        source: Source,
        submit: Submit,
        on_failed: Callable[[Row, str, End], None] = lambda row, workflow_id, end: None,
        *,
        clock: Callable[[], int] = boottime_ms,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        self.source = source
        self._submit = submit
        self._on_failed = on_failed
        self._clock = clock
        self._wall = wall
        # Of rows whose outcome is known and not yet written down: they are not asked again.
        self._known: dict[str, End] = {}
        self._stuck: dict[str, _Stuck] = {}  # By workflow.
        self._held: set[str] = set()  # Workflows of which a row was passed over in this sweep.
        self._prune_at_ms = 0

    def sweep(self) -> int:
        """Deal with all rows there are; in how many milliseconds to look again, even if none comes.

        What was asked about one workflow is asked in order, and waits where an earlier request has
        to be repeated. Trouble, with what was learnt so far kept for the next sweep.
        """
        self._flush()
        self._held.clear()
        after = 0
        while rows := self.source.pending(after, PAGE):
            reached(CrashPoint.OUTBOX_ROWS_READ_NOT_ASKED)
            after = rows[-1].seq
            for wave in _waves(self._requests(rows)):
                self._carry_out(wave)
            self._flush()
        self._prune()
        until_ms = min([self._prune_at_ms, *(it.until_ms for it in self._stuck.values())])
        return max(0, until_ms - self._clock())

    def _requests(self, rows: Sequence[Row]) -> list[tuple[Row, wire.Args, str]]:
        found = []
        for row in rows:
            try:
                args = request_of(row)
            except InvalidArgument as problem:
                self._ended(row, "", problem)
                continue
            workflow_id: str = args.workflow_id  # type: ignore[attr-defined]
            found.append((row, args, workflow_id))
        return found

    def _carry_out(self, wave: Sequence[tuple[Row, wire.Args, str]]) -> None:
        due = [it for it in wave if self._is_due(it[2])]
        if not due:
            return
        outcomes = self._submit([args for _, args, _ in due])
        put_off = [it for it in outcomes if isinstance(it, PerdureError) and it.code in PASSING]
        is_node = all(isinstance(it, Unavailable) for it in put_off) or len(due) >= MANY
        if len(put_off) == len(due) and is_node:
            # All are asked again once it is back.
            raise Trouble(f"the node takes nothing now: {put_off[-1].message}")
        reached(CrashPoint.OUTBOX_ANSWERED_NOT_WRITTEN)
        for (row, _, workflow_id), outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, PerdureError) and outcome.code in PASSING:
                self._put_off(row, workflow_id, outcome)
                continue
            self._stuck.pop(workflow_id, None)
            if isinstance(outcome, PerdureError):
                self._ended(row, workflow_id, outcome)
            else:
                self._known[row.id] = End(row.id, DONE)

    def _put_off(self, row: Row, workflow_id: str, error: PerdureError) -> None:
        self._held.add(workflow_id)
        stuck = self._stuck.setdefault(workflow_id, _Stuck())
        stuck.until_ms = self._clock() + stuck.delay_ms
        stuck.delay_ms = min(stuck.delay_ms * 2, STUCK_MAX_MS)
        if not isinstance(error, Unavailable):
            # For people: what it waits for.
            message = error.message[:MESSAGE_CHARS_MAX]
            self._known[row.id] = End(row.id, None, error.code, message)

    def _is_due(self, workflow_id: str) -> bool:
        stuck = self._stuck.get(workflow_id)
        if stuck is not None and stuck.until_ms > self._clock():
            self._held.add(workflow_id)
        return workflow_id not in self._held

    def _ended(self, row: Row, workflow_id: str, error: PerdureError) -> None:
        end = End(row.id, FAILED, error.code, error.message[:MESSAGE_CHARS_MAX])
        self._known[row.id] = end
        self._on_failed(row, workflow_id, end)

    def _flush(self) -> None:
        if self._known:
            self.source.end(self._known.values(), self._wall())
            self._known.clear()
            reached(CrashPoint.OUTBOX_ROWS_ENDED)

    def _prune(self) -> None:
        if self._clock() >= self._prune_at_ms:
            more = self.source.prune(self._wall() - KEEP_DONE_MS, PRUNE_ROWS) == PRUNE_ROWS
            self._prune_at_ms = self._clock() + (0 if more else PRUNE_EVERY_MS)


def _waves(
    requests: Iterable[tuple[Row, wire.Args, str]],
) -> list[list[tuple[Row, wire.Args, str]]]:
    """Those that may be under way together: of each workflow one, the earlier ones first."""
    waves: list[list[tuple[Row, wire.Args, str]]] = []
    of_workflow: dict[str, int] = {}
    for request in requests:
        at = of_workflow.get(request[2], 0)
        of_workflow[request[2]] = at + 1
        if at == len(waves):
            waves.append([])
        waves[at].append(request)
    return waves


def request_of(row: Row) -> wire.Args:
    """The request that a row asks for, under the row's id. InvalidArgument where it is none."""
    kind = _args_of.get(row.op)
    if kind is None:
        known = ", ".join(_args_of)
        raise InvalidArgument(f"op: an outbox knows {known}, not {row.op[:128]!r}", field="op")
    if len(row.args) > ARGS_BYTES_MAX:
        raise InvalidArgument(
            f"args: {len(row.args)} bytes; the limit is {ARGS_BYTES_MAX}", field="args"
        )
    try:
        given = row.args
        if wire.form_of(given) is wire.JSON:
            given = msgspec.msgpack.encode(msgspec.json.decode(given))
        args = msgspec.msgpack.decode(given, type=kind)
        wire.MSGPACK.payload(args.input, "input")  # type: ignore[attr-defined]
        args = msgspec.structs.replace(args, request_id=row.id)
    except (msgspec.MsgspecError, OverflowError, RecursionError, ValueError) as problem:
        told = wire.described(problem, "args")
        raise InvalidArgument(f"args: {told.message}", field=told.field or "args") from problem
    return args


def drain(path: str, client: Any) -> int:
    """Drain the outbox in the SQLite database `path` once, by hand: how many rows were dealt with.

    `client` is a Client, or a LocalEngine's: for tests, and for programs without a node of their
    own to do it. FailedPrecondition where the database can't be used.
    """
    from perdure.outbox.sqlite import SqliteSource

    count = 0

    def submit(calls: Sequence[wire.Args]) -> Sequence[Any | PerdureError]:
        nonlocal count
        outcomes: Sequence[Any | PerdureError] = client.call_many(calls)
        count += len(outcomes)
        return outcomes

    source = None
    try:
        source = SqliteSource(path)
        Drain(source, submit).sweep()
    except Trouble as problem:
        raise FailedPrecondition(f"the outbox in {path}: {problem}") from problem
    finally:
        if source is not None:
            source.close()
    return count
