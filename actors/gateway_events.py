"""Clients that wait for what happens next. While there are any, history's feed is followed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from actors.gateway_clients import ClientSide
from actors.gateway_requests import Open
from perdure import event_feed, wire
from perdure.core.links import Feed, Newest
from perdure.core.records import CommitBody, decode_body
from perdure.event_feed import END, Page, Position, View, Wanted
from perdure.store.protocol import Reader

# The feed is followed for so long after the last who waited: most ask again at once.
KEEP_FOLLOWING_MS = 60_000
WAIT_MAX_MS = 600_000


class _Waiter:
    __slots__ = ("entry", "limit", "place", "wanted")

    def __init__(self, entry: Open, place: Position, wanted: Wanted, limit: int) -> None:
        self.entry = entry
        self.place = place
        self.wanted = wanted
        self.limit = limit


class _Fresh(NamedTuple):
    previous: int
    n: int
    body: CommitBody


class Events:
    """ReadEvents. `follow` greets history anew, with the wish that `is_following` says."""

    def __init__(
        self, side: ClientSide, reader: Callable[[], Reader | None], follow: Callable[[], None]
    ) -> None:
        self._side = side
        self._reader = reader
        self._follow = follow
        self._waiters: list[_Waiter] = []
        self._fresh: list[_Fresh] = []
        self._newest = 0  # Of the feed.
        self._behind = False  # Something of the feed got lost: the log has it.
        self._idle_ms: int | None = None
        self.is_following = False

    # --- requests ----------------------------------------------------------------
    def ask(self, entry: Open, args: wire.ReadEvents) -> None:
        """Answer with what is there, or wait for the first."""
        reader = self._reader()
        assert reader is not None
        wanted = event_feed.wanted_of(args)
        limit = args.limit or event_feed.LIMIT
        page = event_feed.read(reader, event_feed.start_of(args.after, reader), wanted, limit)
        if page.events or not page.is_end or not args.wait_ms:
            self._side.answer(entry, page.as_answer())
            return
        self._waiters.append(_Waiter(entry, page.next, wanted, limit))
        self._side.set_deadline(entry, min(args.wait_ms, WAIT_MAX_MS))
        self._idle_ms = None
        if not self.is_following:
            self.is_following = True
            self._follow()

    def time_is_up(self, entry: Open) -> None:
        """Nothing that it listens to has happened; it may ask on from here."""
        for waiter in self._waiters:
            if waiter.entry is entry:
                page = Page([], waiter.place, is_end=True)
                self._side.answer(entry, page.as_answer())
                break
        self._tidy()

    # --- the feed ----------------------------------------------------------------
    def on_message(self, message: Any) -> None:
        """Of history's feed: a commit, or the number of one that may have got lost."""
        match message:
            # Looked at when all that lies in the inbox was taken.
            case Feed():
                self._newest = max(self._newest, message.n)
                if self._waiters:
                    body = decode_body(message.body)
                    self._fresh.append(_Fresh(message.previous, message.n, body))
            case Newest(sent=sent) if sent > self._newest:
                self._newest = sent
                self._behind = True
            case _:
                pass

    def on_welcome(self, n: int) -> None:
        """History sends each commit after `n`; what came before that is in the log."""
        self._newest = n
        self._behind = self.is_following

    def on_drained(self, now_ms: int) -> None:
        """Answer those for whom something has happened."""
        reader = self._reader()
        if reader is None or not (self._fresh or self._behind):
            return
        fresh, self._fresh = self._fresh, []
        is_whole = not self._behind and all(
            later.previous == earlier.n for earlier, later in itertools.pairwise(fresh)
        )
        self._behind = False
        for waiter in self._waiters:
            if waiter.entry.is_done:
                continue
            if is_whole and waiter.place >= (fresh[0].previous, END):
                page = _page_of(fresh, waiter)
            else:
                page = event_feed.read(reader, waiter.place, waiter.wanted, waiter.limit)
            waiter.place = page.next
            if page.events or not page.is_end:
                self._side.answer(waiter.entry, page.as_answer())
        self._tidy()

    def _tidy(self) -> None:
        self._waiters = [waiter for waiter in self._waiters if not waiter.entry.is_done]
        if not self._waiters and self.is_following and self._idle_ms is None:
            self._idle_ms = self._side.now_ms() + KEEP_FOLLOWING_MS

    # --- time ----------------------------------------------------------------------
    def next_ms(self) -> int | None:
        """When `on_timer` has something to do."""
        return self._idle_ms

    def on_timer(self, now_ms: int) -> None:
        """Nobody has waited for long: history need not send its feed."""
        if self._idle_ms is not None and self._idle_ms <= now_ms:
            self._idle_ms = None
            self.is_following = False
            self._fresh.clear()
            self._follow()


def _page_of(fresh: list[_Fresh], waiter: _Waiter) -> Page:
    found: list[View] = []
    for commit in fresh:
        for index, view in event_feed.events_of(commit.body, waiter.wanted):
            if (commit.n, index) > waiter.place:
                found.append(view)
                if len(found) == waiter.limit:
                    return Page(found, Position(commit.n, index), is_end=False)
    return Page(found, max(waiter.place, Position(fresh[-1].n, END)), is_end=True)
