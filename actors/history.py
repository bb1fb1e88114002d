"""History: the only writer, and the only one that says no.

Owns the store. Receives commands from gateways (their clients' and their workers'), proposals from
scheduler and lease keeper, and watches from gateways. Answers, and publishes every commit to its
followers. Nothing leaves before the sync: all that was drained is judged and written in one
transaction, and only then are answers and feed sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn, assert_never

import msgspec

from actors import history_answers, history_points
from actors.answered import Answered
from actors.clock_watch import ClockWatch
from actors.feed import Followers
from actors.hiring import HIRING, tasks
from actors.history_asked import Asked, AskedFor
from actors.history_updates import UpdateWatches
from actors.history_waiting import AGAIN_MS, Waiting, take_over, wait
from actors.host import Host
from actors.lending import Loans, may_wait
from actors.mailbox import Mailbox, run
from perdure.core.batch import Aside, Batch, Unfit
from perdure.core.boot import Boot
from perdure.core.bounds import Bounds
from perdure.core.change import Change
from perdure.core.closings import closed
from perdure.core.commands import Done
from perdure.core.ledger import Ledger
from perdure.core.limits import (
    AUDIT_MS,
    FEED_BEAT_MS,
    PROTOCOL_VERSION,
    RETENTION_MS,
)
from perdure.core.links import (
    DLQ,
    GATEWAY,
    HISTORY,
    LEASE_KEEPER,
    SCHEDULER,
    WORKER,
    Answer,
    Ask,
    Hello,
    Lend,
    Lent,
    ToHistory,
    Unwatch,
    Watch,
    Welcome,
)
from perdure.core.records import WorkflowFailed
from perdure.core.rules import Rules
from perdure.core.state import Status
from perdure.core.update_answers import Places
from perdure.crash_points import CrashPoint, reached
from perdure.log_names import LogName
from perdure.store.asides import aside_row
from perdure.store.protocol import (
    Contradiction,
    DiskFailed,
    NoRoom,
    Opened,
    Retention,
    StoreBehind,
    StoreError,
    Writer,
)
from perdure.store.room import too_little

EXIT_COMMIT_FAILED = 71
EXIT_NO_ROOM = 72
EXIT_STORE_UNUSABLE = 2
EXIT_STORE_BEHIND = 6

_to_history = msgspec.msgpack.Decoder(list[ToHistory])


# --- state ------------------------------------------------------------------
class _Watcher(msgspec.Struct, frozen=True, gc=False):
    sender: str
    n: int


# --- handle -----------------------------------------------------------------
class History(Mailbox):
    """The actor. One turn: drain, judge, commit, answer."""

    role = HISTORY
    decoders: ClassVar[dict[str, msgspec.msgpack.Decoder[Any]]] = dict.fromkeys(
        (GATEWAY, SCHEDULER, LEASE_KEEPER, DLQ, WORKER), _to_history
    )

    def __init__(self, boot: Boot, host: Host | None = None) -> None:
        super().__init__(boot, host)
        self._writer: Writer
        self._ledger: Ledger
        self._epoch = 0
        self._answered = Answered(self.send)
        self._asked = AskedFor(self._answered)
        self._hellos: list[tuple[str, Hello]] = []
        self._new_watches: list[tuple[str, Watch]] = []
        self._watches: dict[str, list[_Watcher]] = {}
        self._watched: dict[tuple[str, int], str] = {}
        self._updates: UpdateWatches
        self._followers = Followers(self.send)
        self._loans = Loans(self.host.transmit)
        self._beat_ms = 0
        self._reserve_bytes: int = boot.options.get("reserve_bytes", 0)
        self._clock_watch = ClockWatch()
        self._waiting: Waiting | None = None  # While there is no room for an epoch.

    def on_begin(self) -> None:
        """Take the store over.

        Nobody is answered before this epoch's first commit is on the disk, but readers where there
        is no room for it.
        """
        try:
            self._writer, opened = take_over(self, self._reserve_bytes)
            if opened is None and self._waiting is None:
                self._waiting = wait(self)
        except DiskFailed as error:
            self._end(error, 0)
        except StoreError as error:
            is_behind = isinstance(error, StoreBehind)
            self.fail(EXIT_STORE_BEHIND if is_behind else EXIT_STORE_UNUSABLE, str(error))
        if opened is not None:
            self._go_on(opened)
        elif self._waiting is not None:
            self.base_ms = self._waiting.there.base_ms
            self.ready()

    def _go_on(self, opened: Opened) -> None:
        """There is an epoch: decide from now on."""
        host = self.host
        reached(CrashPoint.HISTORY_EPOCH_OPENED_NOT_READY)
        self.stalls.sum_ms = opened.stall_ms
        options = self.boot.options
        self.base_ms = opened.base_ms
        self._epoch = opened.epoch
        self._ledger = Ledger(
            self._writer,
            epoch=opened.epoch,
            n=opened.n,
            last_hash=opened.last_hash,
            key=opened.key,
            draw=host.draws(options.get("seed")),
            dlq_after_attempts=options.get("dlq_after_attempts") or 5,
            rules=msgspec.convert(options.get("rules", {}), Rules),
            ready=self._writer.ready_count(),
            bounds=Bounds(**options.get("bounds", {})),
            began_ms=opened.base_ms + host.boottime_ms(),
            recovery_grace_ms=self.boot.recovery_grace_ms,
        )
        ledger = self._ledger
        places = Places(ledger.newest, ledger.execution, self._writer.requested_event)
        self._updates = UpdateWatches(self.send, places)
        self._writer.retain(
            Retention(options.get("retention_ms", RETENTION_MS), options.get("audit_ms", AUDIT_MS))
        )
        self._look_for_room()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()
            self._beat_ms = 0  # Now, for those who wait.
            for sender, head, message in waiting.kept:
                self.on_message(sender, head, message)
        self.ready()

    def on_message(self, sender: str, head: bytes, message: Any) -> None:
        """Keep it for the end of the drain: the whole batch is judged at once."""
        if not self._epoch:
            if self._waiting is not None:
                self._waiting.take(sender, head, message)
            return
        match message:
            case Ask():
                refusal = self._asked.put(sender, head, message)
                if refusal is not None:
                    self.send(sender, Answer(message.n, self._ledger.n, refusal), head)
            case Watch():
                self._new_watches.append((sender, message))
            case Unwatch(n=n):
                self._unwatch(sender, n)
            case Lend():
                self._borrow(sender, head, message)
            case Hello():
                self._hellos.append((sender, message))
            case _:
                assert_never(message)

    def on_drained(self, now_ms: int) -> None:
        """Judge and commit all that came in, then let the answers go."""
        if not self._epoch:
            return
        self._ledger.stall_ms = self.stalls.sum_ms
        for sender, hello in self._hellos:
            self._greet(sender, hello)
        self._hellos.clear()
        if self._asked:
            self._commit(self._asked.take(), now_ms)
        if self._new_watches:
            self._look_at_watches()

    def next_timer_ms(self) -> int | None:
        """The newest number is repeated, so that a lost tail of the feed is noticed."""
        due_ms = self._followers.due_ms
        return self._beat_ms if due_ms is None else min(self._beat_ms, due_ms)

    def on_timer(self, now_ms: int) -> None:
        """Repeat the newest number; look after what the store keeps, and its log."""
        if not self._epoch:
            self._beat_ms = now_ms + AGAIN_MS
            self.on_begin()  # There may be room by now.
            return
        due_ms = self._followers.due_ms
        if due_ms is not None and due_ms <= now_ms:
            self._followers.send_late()
        if now_ms < self._beat_ms:
            return
        self._beat_ms = now_ms + FEED_BEAT_MS
        self._followers.beat(self._ledger.n, self.stalls.sum_ms)
        self.flush()
        ahead_ms = self._clock_watch.look(now_ms, self.host.wall_ms())
        if ahead_ms is not None:
            self.log.warning(LogName.CLOCK_OFF, ahead_ms=ahead_ms)
        try:
            self._look_for_room()
            self._writer.tidy(now_ms)
            self._writer.maybe_checkpoint()
        except Exception as error:  # noqa: BLE001 - as for a commit
            self._end(error, self._ledger.n)

    def _look_for_room(self) -> None:
        """Whether new work is refused from now on."""
        if self._writer.is_short() != bool(self._ledger.full):
            text = too_little(self.boot.data_dir, self._reserve_bytes)
            self._ledger.full = "" if self._ledger.full else text
            self.log.warning(LogName.LITTLE_ROOM, refuses_new_work=bool(self._ledger.full))

    def on_orderly_stop(self, grace_ms: int) -> None:
        """Everything acknowledged is on the disk already."""
        self._writer.close()

    # --- peers --------------------------------------------------------------
    def _greet(self, sender: str, hello: Hello) -> None:
        if hello.version != PROTOCOL_VERSION or hello.node != self.boot.node:
            self.log.warning(
                LogName.PEER_REFUSED, sender=sender, version=hello.version, speaks=PROTOCOL_VERSION
            )
            return
        if sender in self.departed:
            return  # Read behind its successor's, whose place it must not take.
        self._followers.greet(sender, hello, self._ledger.n)
        if hello.role == SCHEDULER:
            self._loans.clear()
        if hello.role == GATEWAY:
            self._watches.clear()
            self._watched.clear()
            self._updates.clear()
        welcome = Welcome(self.boot.incarnation, self._epoch, self._ledger.n, self.base_ms)
        self.send(sender, welcome)

    def _borrow(self, sender: str, head: bytes, message: Lend) -> None:
        if head or not sender.startswith(SCHEDULER) or sender in self.departed:
            return
        answer = self._loans.hear(message)
        if answer is not None:
            self._followers.tell(sender, answer)

    # --- commits ------------------------------------------------------------
    def _commit(self, asked: list[Asked], now_ms: int) -> None:
        reached(CrashPoint.HISTORY_DRAINED_NOT_JUDGED)
        try:
            batch = self._write(asked, now_ms)
        except (Contradiction, Unfit):
            if len(asked) > 1:
                self._commit_singly(asked, now_ms)
                return
            batch = self._ledger.set_aside(asked[0].ask.command)
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unknown
            self._end(error, self._ledger.n + 1)
        if batch.aside:
            self._set_aside(batch.aside, now_ms)
        self._ledger.committed(batch)
        for workflow_id in batch.long:
            self.log.warning(LogName.HISTORY_LONG, workflow_id=workflow_id)
        history_points.committed(batch)
        change = batch.change
        # First to whom somebody waits for: a new workflow for the scheduler, else its worker.
        starts = change is not None and bool(change.started)
        if change is not None and starts:
            self._publish(
                batch, change, now_ms, self._loans.send_first_tasks(batch, self._ledger.is_held)
            )
            reached(CrashPoint.HISTORY_PUBLISHED_NOT_ANSWERED)
        for one, answer in zip(asked, batch.answers, strict=True):
            self._answered.say(one.sender, Answer(one.ask.n, batch.n, answer), one.head)
            if type(answer) is Done and type(one.ask.command) in HIRING:
                for task in tasks(one.ask.command, self._ledger, now_ms):
                    self.send(one.sender, task, one.head)
        self._updates.committed(batch)
        if batch.closings:
            self._tell_watchers(batch)
        if change is not None and not starts:
            self._publish(batch, change, now_ms)

    def _write(self, asked: list[Asked], now_ms: int) -> Batch:
        """Judge these and make what follows durable. After Contradiction or Unfit nothing has
        happened, in the store or here.
        """
        self._writer.begin()
        try:
            batch = self._ledger.judge([one.ask.command for one in asked], now_ms)
            history_points.judged(batch)
            if batch.change is None:
                self._writer.abandon()
            else:
                self._writer.commit(batch.change)
        except (Contradiction, Unfit):
            self._writer.abandon()
            self._ledger.forget(self._writer.ready_count())
            raise
        return batch

    def _commit_singly(self, asked: list[Asked], now_ms: int) -> None:
        """One of these makes a commit that can't be: the others must not suffer for it."""
        self.log.warning(LogName.COMMIT_SPLIT, n=self._ledger.n + 1, commands=len(asked))
        for one in asked:
            self._commit([one], now_ms)

    def _set_aside(self, asides: list[Aside], now_ms: int) -> None:
        for aside in asides:
            self.log.error(
                LogName.COMMAND_SET_ASIDE, command=type(aside.command).__name__, error=aside.error
            )
        try:
            self._writer.set_aside([aside_row(aside, now_ms) for aside in asides])
        except Exception as error:  # noqa: BLE001 - as for a commit
            self._end(error, self._ledger.n + 1)

    def _end(self, error: Exception, n: int) -> NoReturn:
        """Unknown, not refused: answer nobody, and never use this connection again."""
        self.log.error(LogName.COMMIT_FAILED, n=n, exc_info=error)
        self.host.exit(EXIT_NO_ROOM if isinstance(error, NoRoom) else EXIT_COMMIT_FAILED)

    def _publish(
        self, batch: Batch, change: Change, now_ms: int, lent: Sequence[Lent] = ()
    ) -> None:
        self._followers.publish(
            batch.n,
            change.body,
            now_ms,
            dead_letters=batch.dead_letters,
            may_wait=self._loans.is_some_left and may_wait(batch, self._ledger, lent),
            lent=lent,
        )

    # --- watches ------------------------------------------------------------
    def _look_at_watches(self) -> None:
        for sender, watch in self._new_watches:
            if watch.update_id:
                self._updates.put(sender, watch, self._ledger.n)
                continue
            execution = self._ledger.execution(watch.workflow_id)
            answer = history_answers.ended(watch.workflow_id, execution, self._writer.event)
            if answer is None:
                if (sender, watch.n) not in self._watched:  # Else it was sent twice.
                    watcher = _Watcher(sender, watch.n)
                    self._watches.setdefault(watch.workflow_id, []).append(watcher)
                    self._watched[sender, watch.n] = watch.workflow_id
                continue
            self.send(sender, Answer(watch.n, self._ledger.n, answer))
        self._new_watches.clear()

    def _unwatch(self, sender: str, n: int) -> None:
        if self._updates.unwatch(sender, n):
            return
        workflow_id = self._watched.pop((sender, n), None)
        if workflow_id is None:  # It may have come in this very drain.
            self._new_watches = [
                one for one in self._new_watches if (one[0], one[1].n) != (sender, n)
            ]
            return
        left = [one for one in self._watches[workflow_id] if (one.sender, one.n) != (sender, n)]
        if left:
            self._watches[workflow_id] = left
        else:
            del self._watches[workflow_id]

    def _tell_watchers(self, batch: Batch) -> None:
        for workflow_id, record in batch.closings.items():
            if isinstance(record, WorkflowFailed):
                self.log.warning(
                    LogName.WORKFLOW_FAILED, workflow_id=workflow_id, failure=record.failure.type
                )
            watchers = self._watches.pop(workflow_id, None)
            if watchers is None:
                continue
            answer = closed(Status.RUNNING, record)
            for watcher in watchers:
                del self._watched[watcher.sender, watcher.n]
                self.send(watcher.sender, Answer(watcher.n, batch.n, answer))


def main(boot: Boot) -> None:
    """Be history until the root says stop."""
    run(History, boot)
