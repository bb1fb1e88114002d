"""What clients wait for at history: results, over all runs of a workflow, and updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from actors.gateway_requests import Open
from actors.mailbox import Mailbox
from perdure import errors, reads, wire
from perdure.core.commands import AnyAnswer, Closed, Refusal
from perdure.core.ids import execution_id, of_execution
from perdure.core.links import HISTORY, Unwatch, Watch
from perdure.core.state import Status
from perdure.store.protocol import Reader

# Watches share history's numbers with commands, and are told apart by this.
WATCH_FROM = 2**40
WATCH_AGAIN_MS = 900  # Less than what clients wait before they ask again.


class Watches:
    """Every wait that history was told of. `reader` is there once history has begun."""

    def __init__(self, mailbox: Mailbox, reader: Callable[[], Reader | None]) -> None:
        self._mailbox = mailbox
        self._reader = reader
        self._open: dict[int, Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def put(self, entry: Open, number: int, execution: str, update_id: str = "") -> None:
        """Have history tell when this execution ends, or this update of the workflow."""
        entry.n = WATCH_FROM + number
        entry.watched = (execution, update_id)
        self._open[entry.n] = entry
        self._say(entry)

    def again(self) -> None:
        """History may have forgotten all of them: it keeps one of each number."""
        for entry in self._open.values():
            self._say(entry)

    def asked_again(self, entry: Open) -> None:
        """Its client has heard nothing: the watch may have got lost."""
        # Thousands who ask again at once, always, must not keep history from answering them.
        if entry.n in self._open and self._mailbox.now_ms() - entry.asked_ms >= WATCH_AGAIN_MS:
            self._say(entry)

    def pop(self, n: int) -> Open | None:
        """The wait that this number is of; it is over."""
        return self._open.pop(n, None)

    def give_up(self, entry: Open) -> None:
        """Its time is up."""
        if self._open.pop(entry.n, None) is not None:
            self._mailbox.send(HISTORY, Unwatch(entry.n))

    def drop_all(self) -> Iterator[Open]:
        """History is gone, and what it was told with it."""
        entries = list(self._open.values())
        self._open.clear()
        return iter(entries)

    def follows(self, entry: Open, answer: AnyAnswer) -> str | None:
        """The execution whose end is the answer, where this one's is not: a later run's."""
        args = entry.request.args
        if not isinstance(args, wire.GetResult) or args.run is not None:
            return None
        workflow_id, run = of_execution(entry.watched[0])
        reader = self._reader()
        match answer:
            case Closed(status=Status.CONTINUED_AS_NEW.value):
                newest = 0 if reader is None else reads.newest_run(reader, workflow_id)
                return execution_id(workflow_id, max(run + 1, newest))
            case Refusal(code=errors.NotFound.code) if run == 1 and reader is not None:
                # Retention takes a first run away while a later one goes on.
                newest = reads.newest_run(reader, workflow_id)
                return execution_id(workflow_id, newest) if newest > 1 else None
            case _:
                return None

    def _say(self, entry: Open) -> None:
        entry.asked_ms = self._mailbox.now_ms()
        execution, update_id = entry.watched
        self._mailbox.send(HISTORY, Watch(entry.n, execution, update_id))
