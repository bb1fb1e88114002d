"""Who waits for the answers to updates."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.core.batch import Batch
from perdure.core.commands import Updated
from perdure.core.ids import of_execution
from perdure.core.links import Answer, Message, Watch
from perdure.core.records import UpdateEnded, decode_event
from perdure.core.update_answers import Places, answer_or_place, never_answered, of_record

_KIND = UpdateEnded.__name__

Send = Callable[[str, Message], None]


class _Watcher(msgspec.Struct, frozen=True, gc=False):
    sender: str
    n: int


class UpdateWatches:
    """Watches of updates; `places` is where they are looked for."""

    def __init__(self, send: Send, places: Places) -> None:
        self._send = send
        self._places = places
        self._open: dict[str, dict[str, list[_Watcher]]] = {}  # By execution, by update.
        self._known: dict[tuple[str, int], tuple[str, str]] = {}

    def clear(self) -> None:
        """A new gateway: nobody waits any more."""
        self._open.clear()
        self._known.clear()

    def put(self, sender: str, watch: Watch, n: int) -> None:
        """Answer at once (as of commit `n`), or when the update is done."""
        found = answer_or_place(self._places, watch.workflow_id, watch.update_id)
        if not isinstance(found, str):
            self._send(sender, Answer(watch.n, n, found))
            return
        if (sender, watch.n) in self._known:
            return  # It was sent twice.
        self._known[sender, watch.n] = (found, watch.update_id)
        watchers = self._open.setdefault(found, {}).setdefault(watch.update_id, [])
        watchers.append(_Watcher(sender, watch.n))

    def unwatch(self, sender: str, n: int) -> bool:
        """Whether this was a watch of an update; it is none any more."""
        found = self._known.pop((sender, n), None)
        if found is None:
            return False
        execution, update_id = found
        updates = self._open[execution]
        updates[update_id] = [
            one for one in updates[update_id] if (one.sender, one.n) != (sender, n)
        ]
        if not updates[update_id]:
            del updates[update_id]
        if not updates:
            del self._open[execution]
        return True

    def committed(self, batch: Batch) -> None:
        """Tell those whose answer is in this commit, or will never come."""
        if not self._open or batch.change is None:
            return
        for event in batch.change.events:
            if event.kind == _KIND and event.workflow_id in self._open:
                record = decode_event(event.body)
                assert isinstance(record, UpdateEnded)
                self._tell(event.workflow_id, record.request_id, of_record(record), batch.n)
        for execution in batch.closings:
            for update_id in list(self._open.get(execution, ())):
                self._ended_without(execution, update_id, batch.n)

    def _ended_without(self, execution: str, update_id: str, n: int) -> None:
        """A run has ended and not answered; the next one may have been given the update."""
        found = answer_or_place(self._places, of_execution(execution)[0], update_id)
        if not isinstance(found, str):
            known = found if isinstance(found, Updated) else never_answered()
            self._tell(execution, update_id, known, n)
            return
        updates = self._open[execution]
        moved = updates.pop(update_id)
        if not updates:
            del self._open[execution]
        self._open.setdefault(found, {}).setdefault(update_id, []).extend(moved)
        for one in moved:
            self._known[one.sender, one.n] = (found, update_id)

    def _tell(self, execution: str, update_id: str, answer: Updated, n: int) -> None:
        updates = self._open.get(execution, {})
        for one in updates.pop(update_id, ()):
            del self._known[one.sender, one.n]
            self._send(one.sender, Answer(one.n, n, answer))
        if not updates:
            self._open.pop(execution, None)
