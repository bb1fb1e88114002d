"""The projection side of the commit log: start from the open state, follow the feed, read the log
where it has a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from actors.mailbox import Mailbox
from perdure.core.limits import PROTOCOL_VERSION
from perdure.core.links import HISTORY, Feed, FromHistory, Hello, Newest, Welcome
from perdure.core.records import Group, decode_body
from perdure.core.state import Execution
from perdure.crash_points import CrashPoint, reached
from perdure.store.protocol import Damaged, Reader, StoreError

COMMITS_A_READ = 1_000
# Either our hello or its answer got lost: without them nothing of the log would ever come.
HELLO_AGAIN_MS = 1_000
# A history that is there and says nothing for so long does not know us: what a predecessor of ours
# had left on its own connection may be read behind our greeting, and take its place.
SILENT_MS = 3_000
EXIT_STORE_DAMAGED = 2
from_history = msgspec.msgpack.Decoder(list[FromHistory])


class Follower(Mailbox):
    """An actor whose state is a fold of the commit log, plus what only it knows."""

    peers_wanted = (HISTORY,)
    only_dead_letters: ClassVar[bool] = False
    patient: ClassVar[bool] = False

    reader: Reader

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reached = 0  # The newest commit that was applied.
        self._loaded = False
        self._hello_ms: int | None = None  # When history is greeted again, if it says nothing.
        self._welcomed_by = ""
        self._early: list[Feed] = []

    # --- what subclasses override -------------------------------------------
    def on_open_state(self, n: int, executions: list[Execution]) -> None:
        """Everything that is open, as of commit `n`; the first thing to hear."""

    def on_commit(self, n: int, at_ms: int, groups: Sequence[Group]) -> None:
        """What commit `n` states, by workflow; nothing was missed since the last one."""

    def on_history(self, incarnation: str) -> None:
        """History is there and may be asked: send again what is unanswered."""

    def on_beat(self, message: Newest) -> None:
        """History lives."""

    def on_other(self, sender: str, head: bytes, message: Any) -> None:
        """A message that is not about the feed."""

    # --- the feed -----------------------------------------------------------
    def on_peer(self, role: str, incarnation: str) -> None:
        """Greet a new history; everything else waits for its Welcome."""
        if role == HISTORY:
            self._greet()

    def _greet(self) -> None:
        self._hello_ms = self.now_ms() + HELLO_AGAIN_MS
        hello = Hello(
            self.role,
            self.boot.incarnation,
            self.boot.node,
            PROTOCOL_VERSION,
            follow=True,
            only_dead_letters=self.only_dead_letters,
            patient=self.patient,
        )
        self.send(HISTORY, hello)

    def next_timer_ms(self) -> int | None:
        """When to greet history again."""
        return self._hello_ms

    def on_timer(self, now_ms: int) -> None:
        """Greet history again, if it has said nothing for so long."""
        if self._hello_ms is None or self._hello_ms > now_ms:
            return
        self._hello_ms = None
        if HISTORY in self.peers:
            self._greet()

    def on_message(self, sender: str, head: bytes, message: Any) -> None:
        """Take what belongs to the feed, pass on the rest."""
        match message:
            case Feed():
                self._on_feed(message)
            case Newest(n=n, sent=sent):
                if sender == self.peers.get(HISTORY) and self._welcomed_by == sender:
                    self._hello_ms = self.now_ms() + SILENT_MS
                self.on_beat(message)
                if self._loaded and sent > self.reached:
                    self._read_log()
                if self._loaded and n > self.reached:
                    self.reached = n  # What lies between does not concern us.
            case Welcome():
                self._on_welcome(message)
            case _:
                self.on_other(sender, head, message)

    def _on_welcome(self, message: Welcome) -> None:
        if message.incarnation != self.peers.get(HISTORY):
            return  # Of one that has died meanwhile.
        self.base_ms = message.base_ms
        self._hello_ms = self.now_ms() + SILENT_MS
        if not self._loaded:
            self.reader = self.host.reader(self.boot.data_dir)
            try:
                n, executions = self.reader.open_state()
            except Damaged as error:
                self.fail(EXIT_STORE_DAMAGED, f"{error}; see `perdure doctor`")
            reached(CrashPoint.PROJECTION_STATE_READ_NOT_LOADED)
            self.reached = n
            self._loaded = True
            self.on_open_state(n, executions)
            reached(CrashPoint.PROJECTION_STATE_LOADED_NOT_FOLLOWED)
            early, self._early = self._early, []
            for feed in early:
                self._on_feed(feed)
            self.ready()
        if message.n > self.reached:
            self._read_log()
        if message.incarnation != self._welcomed_by:
            self._welcomed_by = message.incarnation
            self.on_history(message.incarnation)

    def _on_feed(self, message: Feed) -> None:
        if not self._loaded:
            self._early.append(message)
            return
        if message.n <= self.reached:
            return
        if message.previous > self.reached:
            self._read_log()
            if message.n <= self.reached:
                return
        self._apply(message.body)

    def _read_log(self) -> None:
        """Catch up from the store: what was lost on the way, or committed before we followed."""
        while True:
            rows = self.reader.commits(self.reached, COMMITS_A_READ)
            if rows and rows[0].n > self.reached + 1:
                raise StoreError(
                    f"the log begins with commit {rows[0].n}, {self.reached + 1} was pruned: this"
                    " process has been away for too long and begins anew"
                )
            for row in rows:
                self._apply(row.body)
            if len(rows) < COMMITS_A_READ:
                reached(CrashPoint.PROJECTION_GAP_READ)
                return

    def _apply(self, raw: bytes) -> None:
        body = decode_body(raw)
        reached(CrashPoint.PROJECTION_COMMIT_HEARD_NOT_APPLIED)
        self.on_commit(body.n, body.at_ms, body.groups)
        self.reached = body.n
        reached(CrashPoint.PROJECTION_COMMIT_APPLIED)
