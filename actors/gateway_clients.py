"""The gateway's side towards clients: their sockets, their open requests, the answers they get.

What a request asks for is carried out by the subclass; here is only how it comes and how it goes.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from actors.gateway_requests import Connection, Open, Requests
from actors.host import Door, Host
from actors.mailbox import Mailbox
from perdure import errors, wire
from perdure.core import limits
from perdure.core.boot import Boot
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.errors import PerdureError
from perdure.store.protocol import StoreError

DEADLINES_MIN = 1_000
# Answers from this size on are refused to those who do not read.
LARGE_BYTES = 16 * 1024


class ClientSide(Mailbox):
    """An actor with doors for clients."""

    def __init__(self, boot: Boot, host: Host | None = None) -> None:
        super().__init__(boot, host)
        self.requests = Requests()
        self.unreadable = 0  # Requests that were no map: nothing can be answered.
        self.undelivered = 0  # Answers to clients that are gone or do not read; they ask again.
        self._doors: list[Door] = []
        self._answers: list[tuple[Door, bytes, bool, bytes]] = []
        self._numbers = itertools.count(1)
        self._deadlines: list[tuple[int, int, Open]] = []
        self._deadlines_max = DEADLINES_MIN  # Of the list, before it is tidied.

    # --- what the subclass does -------------------------------------------------
    @abstractmethod
    def carry_out(self, entry: Open) -> None:
        """Do what is asked, now or by and by; in the end `answer` or `refuse` it, or raise."""

    @abstractmethod
    def asked_again(self, entry: Open) -> None:
        """The client has sent the very same request again: it has heard nothing."""

    # --- requests ---------------------------------------------------------------
    def open_door(self, endpoint: str) -> None:
        """Listen for clients there; gateway_sockets.CannotBind where that is not possible."""
        take = functools.partial(self._take_request, len(self._doors))
        self._doors.append(self.host.public_door(endpoint, self.inbox, take))

    def next_number(self) -> int:
        """A number never given out before by this incarnation."""
        return next(self._numbers)

    def _take_request(self, door: int, frames: list[bytes]) -> None:
        # A REQ socket puts an empty delimiter before the body, and wants it back.
        is_delimited = len(frames) == 3 and not frames[1]
        identity, body = frames[0], frames[-1]
        form = wire.form_of(body) if is_delimited or len(frames) == 2 else None
        if form is None:
            self.unreadable += 1
            return
        connection = self.requests.connection(door, identity)
        same = connection.open.get(body)
        if same is not None:
            self.asked_again(same)
            return
        try:
            request = form.read(body)
        except wire.Refused as refused:
            refusal = refused.form.error(refused.id, refused.error)
            self._transmit_to(door, identity, is_delimited, refusal)
            return
        entry = self.requests.admit(connection, body, request, is_delimited)
        if entry is None:
            error = errors.ResourceExhausted(
                f"this connection has {limits.CLIENT_REQUESTS_MAX} requests open"
            )
            self._transmit_to(door, identity, is_delimited, form.error(request.id, error))
            return
        self.move(connection)

    def move(self, connection: Connection) -> None:
        """Carry out what may go now; what is answered at once may free the next."""
        if connection.is_moving:
            return
        connection.is_moving = True
        while (entry := self.requests.next_to_go(connection)) is not None:
            if ARMED:
                reached(CrashPoint.GATEWAY_REQUEST_TAKEN_NOT_PASSED_ON)
            try:
                self.carry_out(entry)
            except PerdureError as problem:
                self.refuse(entry, problem)
            except (StoreError, apsw.Error, msgspec.MsgspecError, RecursionError) as problem:
                self.refuse(entry, errors.Internal(f"the store can't be read: {problem}"))
        connection.is_moving = False

    # --- time -------------------------------------------------------------------
    def set_deadline(self, entry: Open, wait_ms: int) -> None:
        """Have `overdue` name this request when `wait_ms` have passed and it is still open."""
        deadlines = self._deadlines
        if len(deadlines) >= self._deadlines_max:
            # Of requests that are done, which would stay for as long as they were ready to wait.
            deadlines[:] = [it for it in deadlines if not it[2].is_done]
            heapq.heapify(deadlines)
            self._deadlines_max = max(DEADLINES_MIN, 2 * len(deadlines))
        heapq.heappush(deadlines, (self.now_ms() + wait_ms, self.next_number(), entry))

    def next_deadline_ms(self) -> int | None:
        """When `overdue` may have something; too early where that request is done by then."""
        return self._deadlines[0][0] if self._deadlines else None

    def overdue(self, now_ms: int) -> Iterator[Open]:
        """The requests whose deadline has passed, each once."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, entry = heapq.heappop(self._deadlines)
            if not entry.is_done:
                yield entry

    # --- answers ----------------------------------------------------------------------
    def answer(self, entry: Open, ok: Any, commit: int = 0) -> None:
        """Answer that it was done, as of `commit`. Nothing if it was closed."""
        form, request_id = entry.request.form, entry.request.id
        try:
            body = form.ok(request_id, ok, commit)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as problem:
            text = f"the answer can't be written as {form.name}: {problem}"
            body = form.error(request_id, errors.InvalidArgument(text), commit)
        if len(body) < LARGE_BYTES:
            self._finish(entry, body)
            return
        connection = entry.connection
        if not self._doors[connection.door].has_room(connection.identity, len(body)):
            text = "this connection has too much unread: take what was answered before"
            body = form.error(request_id, errors.ResourceExhausted(text), commit)
        self._finish(entry, body)
        self.flush()  # What is not sent yet counts for nobody.

    def refuse(self, entry: Open, error: PerdureError, commit: int = 0) -> None:
        """Answer that it was not done, and why. Nothing if it was closed."""
        form, request_id = entry.request.form, entry.request.id
        self._finish(entry, form.error(request_id, error, commit))

    def _finish(self, entry: Open, body: bytes) -> None:
        if not self.requests.finish(entry):
            return
        connection = entry.connection
        self._transmit_to(connection.door, connection.identity, entry.is_delimited, body)
        if connection.waiting:
            self.move(connection)

    def _transmit_to(self, door: int, identity: bytes, is_delimited: bool, body: bytes) -> None:
        self._answers.append((self._doors[door], identity, is_delimited, body))

    def flush(self) -> None:
        """Answers leave together: each alone would wake ZeroMQ's thread anew."""
        super().flush()
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        for door, identity, is_delimited, body in answers:
            if not door.send(identity, body, is_delimited=is_delimited):
                self.undelivered += 1
            if ARMED:
                reached(CrashPoint.GATEWAY_ANSWERED_IN_PART)
