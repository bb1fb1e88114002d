"""Outbox: brings what applications wrote into their own databases to the node.

Receives: the root's words. Sends: the states of its databases (root); starts and signals go over
the public endpoint, as any client's. Each database has a thread, which may wait for it as long as
it likes; a database that can't be used is tried again, ever slower, and hurts nobody.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import zmq

from perdure import logs
from perdure.client import Client
from perdure.core import links
from perdure.core.boot import Boot
from perdure.log_names import LogName
from perdure.outbox.drain import Drain, End
from perdure.outbox.places import POSTGRES, SQLITE, Place, place_of
from perdure.outbox.postgres import PostgresSource
from perdure.outbox.sqlite import SqliteSource
from perdure.outbox.table import Row, Trouble
from perdure.worker.sockets import ControlLink
from perdure.worker.stopping import leave

RUNNING, WAITING = "running", "waiting"
# For 500 requests; whatever is not answered by then is asked again.
TIMEOUT_MS = 5_000
RETRY_FIRST_MS = 100
RETRY_MAX_MS = {SQLITE: 1_000, POSTGRES: 5_000}
EXIT_CRASHED = 1


class Feeder(threading.Thread):
    """Drains one database until `stopping`. `tell(state, why)` hears of every change."""

    def __init__(
        self,
        place: Place,
        client: Client,
        stopping: threading.Event,
        tell: Callable[[Place, str, str], None],
    ) -> None:
        super().__init__(name=f"outbox {place}", daemon=True)
        self._place = place
        self._client = client
        self._stopping = stopping
        self._tell = tell
        self._log = logs.logger(outbox=str(place))
        self._state = ("", "")
        self._retry_ms = RETRY_FIRST_MS

    def run(self) -> None:
        """The life of the thread; what it did not expect ends the process, which begins anew."""
        try:
            self._run()
        except Exception:  # noqa: BLE001 - the host of this thread: it ends the process
            self._log.exception(LogName.ACTOR_CRASHED, role=links.OUTBOX)
            leave(EXIT_CRASHED)

    def _run(self) -> None:
        drain: Drain | None = None
        while not self._stopping.is_set():
            source = None
            try:
                source = self._opened()
                if drain is None:
                    drain = Drain(source, self._submit, self._refused)
                drain.source = source
                self._drain(drain, source)
            except Trouble as trouble:
                self._say(WAITING, str(trouble))
                self._stopping.wait(self._retry_ms / 1_000)
                self._retry_ms = min(self._retry_ms * 2, RETRY_MAX_MS[self._place.kind])
            finally:
                if source is not None:
                    source.close()

    def _opened(self) -> SqliteSource | PostgresSource:
        of = SqliteSource if self._place.kind == SQLITE else PostgresSource
        return of(self._place.address, exclusive=True)

    def _drain(self, drain: Drain, source: SqliteSource | PostgresSource) -> None:
        while not self._stopping.is_set():
            wait_ms = drain.sweep()
            self._say(RUNNING, "")
            self._retry_ms = RETRY_FIRST_MS
            source.wait(wait_ms, self._pause)

    def _pause(self, ms: int) -> bool:
        return self._stopping.wait(ms / 1_000)

    def _submit(self, calls: Any) -> Any:
        if self._stopping.is_set():
            raise Trouble("the node stops")
        return self._client.call_many(calls, TIMEOUT_MS)

    def _refused(self, row: Row, workflow_id: str, end: End) -> None:
        self._log.warning(
            LogName.OUTBOX_REFUSED,
            id=row.id,
            op=row.op,
            workflow_id=workflow_id,
            code=end.code,
            message=end.message,
        )

    def _say(self, state: str, why: str) -> None:
        if self._state == (state, why) or self._stopping.is_set():
            return
        self._state = (state, why)
        if state == WAITING:
            self._log.warning(LogName.OUTBOX_WAITING, why=why)
        else:
            self._log.info(LogName.OUTBOX_RUNNING)
        self._tell(self._place, state, why)


class Outbox:
    """The main thread: the root's questions, and what the feeders say."""

    def __init__(self, boot: Boot) -> None:
        options = boot.options
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._control = ControlLink(self._context, boot)
        self._client = Client(boot.public_endpoints[0], timeout_ms=TIMEOUT_MS)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = threading.Event()
        places = dict.fromkeys(place_of(url, options["cwd"]) for url in options["outboxes"])
        self._states = {place: (WAITING, "it is being opened") for place in places}
        self._feeders = [Feeder(it, self._client, self._stopping, self._heard) for it in places]
        self._heard_peers = 0

    def run(self) -> None:
        """Serve until the root says Stop."""
        self._control.hello()
        for feeder in self._feeders:
            feeder.start()
        self._control.ready()
        self._report()
        poller = zmq.Poller()
        poller.register(self._control.socket, zmq.POLLIN)
        poller.register(self._bell, zmq.POLLIN)
        while not self._stopping.is_set():
            for ready, _ in poller.poll():
                if ready == self._bell:
                    os.eventfd_read(self._bell)
                    self._report()
                else:
                    for order in self._control.receive():
                        self._obey(order)

    def _heard(self, place: Place, state: str, why: str) -> None:
        """From a feeder's thread."""
        self._states[place] = (state, why)
        os.eventfd_write(self._bell, 1)

    def _report(self) -> None:
        states = [(str(place), *state) for place, state in list(self._states.items())]
        self._control.say(links.Outboxes(tuple(states)))

    def _obey(self, order: links.FromRoot) -> None:
        match order:
            case links.Ping():
                if not order.is_greeted:
                    self._control.hello()
                if not order.is_ready:
                    self._control.ready()
                    self._report()
                self._control.say(links.Pong(order.n, self._heard_peers))
            case links.Stop():
                self._stopping.set()
            case links.Peers(n=n):
                self._heard_peers = max(self._heard_peers, n)
            case links.SessionDead() | links.Sessions():
                pass  # Said to every child.


def main(boot: Boot) -> None:
    """Be the outbox until told to stop. Does not return: a feeder may wait for its database, and
    whatever it has under way may be done again.
    """
    logs.configure(boot.log_json)
    Outbox(boot).run()
    leave(0)
