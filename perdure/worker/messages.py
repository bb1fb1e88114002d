"""Signals, queries and updates of one workflow: who takes them, and what waits to be taken."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure import values
from perdure.core import commands, records
from perdure.core.limits import SIGNAL_NAMES_NOTED, SIGNALS_DROPPED_KEPT
from perdure.core.records import SignalNotes
from perdure.errors import FailedPrecondition, InvalidArgument, NotFound
from perdure.failures import Failure
from perdure.worker import endings
from perdure.worker.loop import Evicted
from perdure.workflow import NonDeterminism, Update, logger

if TYPE_CHECKING:
    from perdure.worker.workflow_side import WorkflowSide

UNKNOWN_UPDATE = "UnknownUpdate"
WHY_CHARS = 300
NO_NOTES = SignalNotes()


class Messages:
    """The messages of one workflow (perdure.workflow.runtime.Messages).

    A signal goes to its handler, as a task of its own, or waits in a queue of its name, until
    there is a handler or until a box takes it.
    """

    def __init__(self, side: WorkflowSide) -> None:
        self._side = side
        self._queues: dict[str, asyncio.Queue[tuple[int, records.Payload | None]]] = {}
        self._boxed: set[str] = set()
        self._signals: dict[str, tuple[Callable[..., Any], contextvars.Context]] = {}
        self._queries: dict[str, tuple[Callable[..., Any], contextvars.Context]] = {}
        self._updates: dict[str, tuple[Update, contextvars.Context]] = {}
        self._count = 0
        # Given to a handler that has not begun yet.
        self._given: dict[int, tuple[str, records.Payload | None]] = {}
        self._under_way = 0
        self._dropped: list[tuple[int, str, str]] = []

    # --- the workflow's -----------------------------------------------------------
    def handle_signal(self, name: str, function: Callable[..., Any]) -> None:
        """Give the signals of that name, those that wait first, to `function`."""
        if name in self._boxed:
            raise InvalidArgument(f"signal {name!r} is taken by workflow.receive({name!r}) already")
        self._signals[name] = (function, contextvars.copy_context())
        waiting = self._queues.pop(name, None)
        while waiting is not None and not waiting.empty():
            self._deliver(name, *waiting.get_nowait())

    def handle_query(self, name: str, function: Callable[..., Any]) -> None:
        """Have `function` answer the queries of that name."""
        self._queries[name] = (function, contextvars.copy_context())

    def handle_update(self, name: str, update: Update) -> None:
        """Have `update` do the updates of that name."""
        self._updates[name] = (update, contextvars.copy_context())

    def box(self, name: str) -> asyncio.Queue[tuple[int, records.Payload | None]]:
        """The queue of that name, which no handler empties from now on."""
        if name in self._signals:
            raise InvalidArgument(f"signal {name!r} has a handler: workflow.receive would miss it")
        self._boxed.add(name)
        return self._queues.setdefault(name, asyncio.Queue())

    # --- signals ------------------------------------------------------------------
    def signalled(self, name: str, payload: records.Payload | None) -> None:
        """A signal came."""
        self._count += 1
        if name in self._signals:
            self._deliver(name, self._count, payload)
        else:
            self._queues.setdefault(name, asyncio.Queue()).put_nowait((self._count, payload))

    def _deliver(self, name: str, place: int, payload: records.Payload | None) -> None:
        function, context = self._signals[name]
        self._given[place] = (name, payload)
        self._start(self._take(place, name, function, payload), context)

    def _start(self, coroutine: Any, context: contextvars.Context) -> None:
        # Each in a copy: nothing of the worker's, and nothing of another message's, is seen there.
        fresh = context.run(contextvars.copy_context)
        self._under_way += 1
        task = self._side.loop.create_task(coroutine, context=fresh)
        task.add_done_callback(self._finished)

    def _finished(self, _: asyncio.Task[None]) -> None:
        self._under_way -= 1

    def all_finished(self) -> bool:
        """Whether no handler, of a signal or of an update, is under way or about to begin."""
        return not self._under_way

    async def _take(
        self,
        place: int,
        name: str,
        function: Callable[..., Any],
        payload: records.Payload | None,
    ) -> None:
        del self._given[place]
        try:
            args, kwargs = values.bind_input(function, payload)
        except InvalidArgument as problem:
            self.dropped(name, problem.message)
            return
        try:
            result = function(*args, **kwargs)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            return  # Somebody has cancelled this very task: that concerns nobody else.
        except BaseException as problem:
            if self._side.loop.is_closing:
                raise
            self._side.left(problem)

    def dropped(self, name: str, why: str) -> None:
        """A signal could not be handed over: no client can break a workflow."""
        side = self._side
        if not side.is_silent:
            logger.error("a signal %r was dropped: %s", name, why)
            self._dropped.append((side.now_ms, name, why[:WHY_CHARS]))

    def take_notes(self, *, is_over: bool) -> SignalNotes | None:
        """What became of signals, with what was dropped since this was asked last; None: there is
        nothing to say. Where the workflow `is_over`, what waits in a box is taken by nobody.
        """
        dropped, self._dropped = tuple(self._dropped[-SIGNALS_DROPPED_KEPT:]), []
        takes = sorted({*self._signals, *self._boxed})[:SIGNAL_NAMES_NOTED]
        untaken = sorted(
            (name, queue.qsize())
            for name, queue in self._queues.items()
            if queue.qsize() and (is_over or name not in self._boxed)
        )
        notes = SignalNotes(tuple(takes), tuple(untaken[:SIGNAL_NAMES_NOTED]), dropped)
        return None if notes == NO_NOTES else notes

    def waiting(self) -> tuple[tuple[str, records.Payload | None], ...]:
        """Every signal that nobody has taken, in their order; they are taken by this."""
        rest = [(place, *signal) for place, signal in self._given.items()]
        self._given.clear()
        for name, queue in self._queues.items():
            while not queue.empty():
                place, payload = queue.get_nowait()
                rest.append((place, name, payload))
        return tuple((name, payload) for _, name, payload in sorted(rest, key=lambda r: r[0]))

    # --- queries ------------------------------------------------------------------
    def query(self, name: str, payload: records.Payload | None) -> records.Payload:
        """What the handler answers; see Replayer.query, which has the loop run."""
        found = self._queries.get(name)
        if found is None:
            known = ", ".join(sorted(self._queries)) or "none"
            raise NotFound(f"the workflow has no query {name!r}; it has: {known}")
        function, context = found
        args, kwargs = values.bind_input(function, payload)
        try:
            return values.encode_result(context.copy().run(function, *args, **kwargs))
        except (Exception, Evicted, SystemExit, asyncio.CancelledError) as problem:
            is_evicted = isinstance(problem, Evicted)
            why = "it would schedule something" if is_evicted else str(problem)
            raise FailedPrecondition(
                f"query {name!r} failed: {type(problem).__name__}: {why}"
            ) from problem

    # --- updates ------------------------------------------------------------------
    def updated(self, event: records.UpdateReceived) -> None:
        """An update came."""
        found = self._updates.get(event.name)
        if found is None:
            known = ", ".join(sorted(self._updates)) or "none"
            text = f"the workflow has no update {event.name!r}; it has: {known}"
            failure = Failure(UNKNOWN_UPDATE, text)
            self._side.issue(commands.EndUpdate(event.update_id, None, failure, rejected=True))
            return
        update, context = found
        self._start(self._do(update, event), context)

    async def _do(self, update: Update, event: records.UpdateReceived) -> None:
        side, id_ = self._side, event.update_id
        rejected = True
        try:
            args, kwargs = values.bind_input(update.function, event.input)
            if update.check is not None:
                with side.loop.reading("a validator"):
                    update.check(*args, **kwargs)
            rejected = False
            result = update.function(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
            ended = commands.EndUpdate(id_, values.encode_result(result), None)
        except (Exception, asyncio.CancelledError) as problem:
            if side.loop.is_closing:
                raise
            if isinstance(problem, NonDeterminism):
                side.left(problem)
                return
            failure = endings.failure_of(problem)
            ended = commands.EndUpdate(id_, None, failure, rejected=rejected)
        except BaseException as problem:
            if side.loop.is_closing:
                raise
            side.left(problem)
            return
        side.issue(ended)
