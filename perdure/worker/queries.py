"""Queries: a copy of the workflow is replayed as far as there are events, and asked.

The copy is none that a workflow task runs on: whatever a query's code does to it is seen by no
task. Where the replay has run ahead of history (an event came that no task has worked off yet) the
copy is let go of, for history may take another course; otherwise it stays for the next query.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure import errors
from perdure.core import links
from perdure.core.records import Event, Payload, WorkflowReset, decode_event
from perdure.core.state import Execution
from perdure.errors import FailedPrecondition, PerdureError
from perdure.failures import Failure
from perdure.worker.asks import TO_GATEWAY, Asks
from perdure.worker.errand import Errand
from perdure.worker.notes import notes_in
from perdure.worker.replay import Replayer
from perdure.workflow import Definition, NonDeterminism

if TYPE_CHECKING:
    from perdure.worker.sockets import GatewayLink

COPIES_MAX = 100
CHUNK = 500


def asked(replayer: Replayer, name: str, payload: Payload | None) -> Payload:
    """What the query handler `name` of a replayed workflow returns.

    NotFound where there is none; FailedPrecondition where it raises, or would have scheduled
    something; InvalidArgument where the input does not fit it.
    """
    try:
        return replayer.query(name, payload)
    except NonDeterminism as problem:
        raise FailedPrecondition(f"query {name!r}: {problem}") from problem


def ask_fresh(
    definition: Definition,
    execution: Execution,
    events: Sequence[Event],
    name: str,
    payload: Payload | None,
) -> Payload:
    """As `asked`, of a copy made for it from all `events` of the execution."""
    for last in (events[-1].event_id, execution.consumed):
        replayer = Replayer(definition, execution.workflow_id)
        try:
            if feed_copy(replayer, events, events, execution.consumed, last):
                return asked(replayer, name, payload)
        finally:
            replayer.close()
    raise FailedPrecondition(AHEAD)


AHEAD = "the workflow has only just begun, and is about to record a side effect: ask again"


def feed_copy(
    replayer: Replayer, notes: Sequence[Event], events: Iterable[Event], consumed: int, last: int
) -> bool:
    """Feed a copy up to event `last`; False where a side effect stopped it: it is good for nothing.

    `notes`: what Replayer.learn wants of all events. FailedPrecondition where the code does not
    agree with history.
    """
    replayer.known.is_copy = True
    replayer.learn(notes, consumed)
    try:
        replayer.feed(event for event in events if event.event_id <= last)
    except NonDeterminism as problem:
        if replayer.known.ran_ahead:
            return False
        raise FailedPrecondition(f"the worker can't answer: {problem}") from problem
    return True


class _Query(Errand):
    """One query: its events are fetched, then it runs, then it is answered."""

    def __init__(self, query: links.Query, definition: Definition, done: _Done) -> None:
        self.query = query
        self.workflow_id = query.workflow_id
        self.after = 0  # The copy that is to be fed has seen so much.
        self.events: list[msgspec.Raw] = []
        self.reached = 0  # What the copy has seen by now; 0: it is gone.
        self.is_missing = False  # There was no such copy: all of it from the beginning.
        self.is_cautious = False  # Only what workflow tasks have worked off is fed.
        self.answer = links.QueryAnswer(query.n, None, errors.Internal.code, "it did not run")
        self._definition = definition
        self._done = done

    def run(self, copies: OrderedDict[str, Replayer], moved: Callable[[], None]) -> None:
        """Feed the copy and ask it."""
        id_ = self.workflow_id
        copy = copies.pop(id_, None)
        self.is_missing, self.reached = False, 0
        notes = notes_in(self.events)
        is_reset = any(isinstance(note, WorkflowReset) for note in notes)
        if copy is not None and (copy.consumed != self.after or is_reset):
            copy.close()  # It has seen what does not count any more.
            copy = None
        if copy is None:
            if self.after:
                self.is_missing = True
                return
            copy = Replayer(self._definition, id_)
        n = self.query.n
        is_kept = False
        try:
            if not self._feed(copy, notes, moved):
                self.is_cautious = True
                if self.after:
                    self.is_missing = True
                    return
                copy.close()
                copy = Replayer(self._definition, id_)
                self._feed(copy, notes, moved)
            is_kept = copy.commands == copy.matched
            result = asked(copy, self.query.name, self.query.input)
            self.answer = links.QueryAnswer(n, result)
        except PerdureError as problem:
            self.answer = links.QueryAnswer(n, None, problem.code, problem.message)
        finally:
            if is_kept and not copy.is_broken:
                self.reached = copy.consumed
                copies[id_] = copy
            else:
                copy.close()
        while len(copies) > COPIES_MAX:
            copies.popitem(last=False)[1].close()

    def _feed(self, copy: Replayer, notes: Sequence[Event], moved: Callable[[], None]) -> bool:
        query = self.query
        if self.is_cautious and not query.consumed:
            raise errors.Unavailable(AHEAD)  # Clients ask again by themselves.
        last = query.consumed if self.is_cautious else query.last_event_id
        for start in range(0, len(self.events), CHUNK):
            moved()  # A long history is no code that blocks.
            part = map(decode_event, self.events[start : start + CHUNK])
            if not feed_copy(copy, notes if start == 0 else (), part, query.consumed, last):
                return False
        return True

    def blocked(self, why: Failure) -> None:
        """Say so."""
        self.reached = 0
        self.is_missing = False
        code = FailedPrecondition.code
        text = f"the query {self.query.name!r} was ended: {why.message}"
        self.answer = links.QueryAnswer(self.query.n, None, code, text)

    def over(self, now_ms: int) -> None:
        """Back on the main loop."""
        self._done(self, now_ms)


_Done = Callable[[_Query, int], None]


class Queries:
    """The queries of a worker. `submit` has an errand run on the stage."""

    def __init__(
        self,
        definitions: Mapping[str, Definition],
        submit: Callable[[Errand], None],
        asks: Asks,
        gateway: GatewayLink,
    ) -> None:
        self._definitions = definitions
        self._submit = submit
        self._asks = asks
        self._gateway = gateway
        self._fetching: dict[int, _Query] = {}
        self._reached: OrderedDict[str, int] = OrderedDict()  # What each copy has seen.

    def ask(self, query: links.Query, now_ms: int) -> None:
        """A query came."""
        definition = self._definitions.get(query.workflow_type)
        if definition is None:
            text = f"the worker has no workflow {query.workflow_type!r}"
            self._say(links.QueryAnswer(query.n, None, FailedPrecondition.code, text))
            return
        one = _Query(query, definition, self._done)
        one.after = self._reached.get(query.workflow_id, 0)
        self._go_on(one, one.after, now_ms)

    def page(self, page: links.Page, now_ms: int) -> bool:
        """Events came; False where they are for another."""
        one = self._fetching.pop(page.n, None)
        if one is None:
            return False
        self._asks.close(page.n)
        if page.events is None:
            text = f"there is no workflow {one.workflow_id!r}"
            self._say(links.QueryAnswer(one.query.n, None, errors.NotFound.code, text))
            return True
        one.events.extend(page.events)
        last = decode_event(bytes(page.events[-1])).event_id if page.events else 0
        if last and not page.complete:
            self._go_on(one, last, now_ms)
        else:
            self._submit(one)
        return True

    def _go_on(self, one: _Query, after: int, now_ms: int) -> None:
        if after >= one.query.last_event_id:
            self._submit(one)
            return
        n = self._asks.next_n()
        fetch = links.Fetch(n, one.workflow_id, after)
        self._fetching[n] = one
        self._asks.add(n, TO_GATEWAY, fetch, self, now_ms)
        self._gateway.send(TO_GATEWAY, fetch)

    def _done(self, one: _Query, now_ms: int) -> None:
        if one.is_missing:
            one.after, one.events = 0, []
            self._reached.pop(one.workflow_id, None)
            self._go_on(one, 0, now_ms)
            return
        if one.reached:
            self._reached[one.workflow_id] = one.reached
            self._reached.move_to_end(one.workflow_id)
            if len(self._reached) > COPIES_MAX:
                self._reached.popitem(last=False)
        else:
            self._reached.pop(one.workflow_id, None)
        self._say(one.answer)

    def _say(self, answer: links.QueryAnswer) -> None:
        self._gateway.send(TO_GATEWAY, answer)
