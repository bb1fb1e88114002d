"""Queries: a question of a client, answered by a worker that has the workflow's type."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from actors.gateway_clients import ClientSide
from actors.gateway_requests import Open
from actors.gateway_workers import Workers
from perdure import errors, reads, waiting, wire
from perdure.core.links import Query, QueryAnswer
from perdure.core.state import Execution
from perdure.store.protocol import Reader

WAIT_MS = 10_000
WAIT_MAX_MS = 600_000
# So long after the gateway's start workers may still be on their way to it.
SETTLING_MS = 2_000


class Queries:
    """Every query that a worker was asked and has not answered."""

    def __init__(
        self, side: ClientSide, workers: Workers, reader: Callable[[], Reader | None]
    ) -> None:
        self._side = side
        self._workers = workers
        self._reader = reader
        self._open: dict[int, tuple[Open, bytes]] = {}
        self._settled_ms = side.host.boottime_ms() + SETTLING_MS

    def ask(self, entry: Open, args: wire.QueryWorkflow) -> None:
        """Pass it on to the worker that was asked about this workflow before, if it is there."""
        reader = self._reader()
        assert reader is not None
        found = reads.execution(reader, args.workflow_id, args.run)
        payload = entry.request.form.payload(args.input, "input")
        heads = self._workers.that_have(found.workflow_type, found.task_queue)
        if not heads:
            raise self._nobody(found)
        head = _chosen(heads, found.workflow_id)
        entry.n = self._side.next_number()
        self._open[entry.n] = (entry, head)
        wait_ms = WAIT_MS if args.wait_ms is None else min(args.wait_ms, WAIT_MAX_MS)
        self._side.set_deadline(entry, wait_ms)
        query = Query(
            entry.n,
            found.workflow_id,
            found.workflow_type,
            args.name,
            payload,
            found.consumed,
            found.last_event_id,
        )
        self._workers.say(head, query)

    def _nobody(self, found: Execution) -> errors.PerdureError:
        text = waiting.sentence(
            "workflow", found.workflow_type, found.task_queue, self._workers.offers
        )
        if self._side.host.boottime_ms() < self._settled_ms:
            return errors.Unavailable(f"the query waits for {text}")
        return errors.FailedPrecondition(f"nobody can answer: the query waits for {text}")

    def answered(self, answer: QueryAnswer) -> None:
        """A worker has answered, or says why not."""
        entry, _ = self._open.pop(answer.n, (None, b""))
        if entry is None:
            return
        if answer.code:
            self._side.refuse(entry, errors.from_code(answer.code, answer.message))
        else:
            self._side.answer(entry, {"result": entry.request.form.render(answer.result)})

    def worker_gone(self, head: bytes) -> None:
        """It will not answer any more. Whoever asks again asks another."""
        lost = errors.Unavailable("the worker that was asked has gone")
        for entry in [it for it, asked in self._open.values() if asked == head]:
            del self._open[entry.n]
            self._side.refuse(entry, lost)

    def time_is_up(self, entry: Open) -> None:
        """No worker has answered in time."""
        self._open.pop(entry.n, None)
        args = entry.request.args
        assert isinstance(args, wire.QueryWorkflow)
        wait_ms = WAIT_MS if args.wait_ms is None else min(args.wait_ms, WAIT_MAX_MS)
        text = f"no worker answered the query {args.name!r} within {wait_ms} ms"
        self._side.refuse(entry, errors.DeadlineExceeded(text))


def _chosen(heads: Sequence[bytes], workflow_id: str) -> bytes:
    """The same one for a workflow while it is there: it has the workflow in memory then."""
    key = workflow_id.encode()
    return max(heads, key=lambda head: (zlib.crc32(key + head), head))
