"""History: the only writer, and the only one that says no.

Owns the store. Receives commands from gateways (their clients' and their workers'), proposals from
scheduler and lease keeper, and watches from gateways. Answers, and publishes every commit to its
followers. Nothing leaves before the sync: all that was drained is judged and written in one
transaction, and only then are answers and feed sent.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, assert_never

import msgspec

from actors.hiring import HIRING, checked, tasks
from actors.host import Host
from actors.mailbox import Mailbox, run
from perdure.core.batch import Aside, Batch, Unfit
from perdure.core.boot import Boot
from perdure.core.commands import (
    AnyAnswer,
    Closed,
    CompleteActivity,
    CompleteWorkflowTask,
    Done,
    EndLease,
    ExpireLease,
    FailActivity,
    FailWorkflowTask,
    Refusal,
    ReleaseActivity,
)
from perdure.core.ledger import Ledger
from perdure.core.limits import (
    AUDIT_MS,
    FEED_BEAT_MS,
    PATIENT_MS,
    PROTOCOL_VERSION,
    RETENTION_MS,
)
from perdure.core.links import (
    DLQ,
    GATEWAY,
    HISTORY,
    LEASE_KEEPER,
    SCHEDULER,
    Answer,
    Ask,
    Feed,
    Hello,
    Newest,
    ToHistory,
    Unwatch,
    Watch,
    Welcome,
)
from perdure.core.records import Record, WorkflowCompleted, WorkflowFailed, decode_event
from perdure.core.state import Status
from perdure.crash_points import CrashPoint, reached
from perdure.errors import NotFound, no_workflow, removed_workflow
from perdure.log_names import LogName
from perdure.store.asides import aside_row
from perdure.store.protocol import (
    Contradiction,
    DiskFailed,
    Retention,
    StoreBehind,
    StoreError,
    Writer,
)

EXIT_COMMIT_FAILED = 71
EXIT_STORE_UNUSABLE = 2
EXIT_STORE_BEHIND = 6

# What a worker may ask for; anything else that a gateway passes on for one is refused.
WORKER_COMMANDS = (
    CompleteActivity,
    FailActivity,
    ReleaseActivity,
    CompleteWorkflowTask,
    FailWorkflowTask,
)
_to_history = msgspec.msgpack.Decoder(list[ToHistory])


# --- state ------------------------------------------------------------------
class _Asked(msgspec.Struct, frozen=True, gc=False):
    """A command with the way back to whoever asked."""

    sender: str
    head: bytes
    ask: Ask


class _Watcher(msgspec.Struct, frozen=True, gc=False):
    sender: str
    n: int


# --- handle -----------------------------------------------------------------
class History(Mailbox):
    """The actor. One turn: drain, judge, commit, answer."""

    role = HISTORY
    decoders: ClassVar[dict[str, msgspec.msgpack.Decoder[Any]]] = dict.fromkeys(
        (GATEWAY, SCHEDULER, LEASE_KEEPER, DLQ), _to_history
    )

    def __init__(self, boot: Boot, host: Host | None = None) -> None:
        super().__init__(boot, host)
        self._writer: Writer
        self._ledger: Ledger
        self._epoch = 0
        # In the order in which they are taken: gateways, proposals, expiries and ends of sessions.
        self._asked: tuple[list[_Asked], list[_Asked], list[_Asked]] = ([], [], [])
        self._hellos: list[tuple[str, Hello]] = []
        self._new_watches: list[tuple[str, Watch]] = []
        self._watches: dict[str, list[_Watcher]] = {}
        self._watched: dict[tuple[str, int], str] = {}
        self._followers: dict[str, int] = {}  # routing id -> newest commit sent to it
        self._selective: set[str] = set()  # Those that follow dead letters only.
        self._late: dict[str, list[Feed]] = {}  # What the patient have not been sent yet.
        self._late_ms: int | None = None
        self._beat_ms = 0

    def on_begin(self) -> None:
        """Take the store over.

        Nobody is answered before this epoch's first commit is on the disk.
        """
        host = self.host
        try:
            self._writer = host.writer(self.boot.data_dir)
            opened = self._writer.open_epoch(
                self.boot.incarnation, host.wall_ms(), host.boot_id(), host.boottime_ms()
            )
        except DiskFailed:
            self._disk_failed(0)
        except StoreError as error:
            is_behind = isinstance(error, StoreBehind)
            self.fail(EXIT_STORE_BEHIND if is_behind else EXIT_STORE_UNUSABLE, str(error))
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
            ready=self._writer.ready_count(),
            began_ms=opened.base_ms + host.boottime_ms(),
        )
        self._writer.retain(
            Retention(options.get("retention_ms", RETENTION_MS), options.get("audit_ms", AUDIT_MS))
        )
        self.ready()

    def on_message(self, sender: str, head: bytes, message: Any) -> None:
        """Keep it for the end of the drain: the whole batch is judged at once."""
        match message:
            case Ask(command=command):
                asked = _Asked(sender, head, message)
                if head and isinstance(command, HIRING):
                    asked = _Asked(sender, head, checked(message, head))
                if head and not isinstance(command, WORKER_COMMANDS):
                    answer = Refusal("INVALID_ARGUMENT", "not for workers to ask")
                    self.send(sender, Answer(message.n, self._ledger.n, answer), head)
                elif sender.startswith(GATEWAY):
                    self._asked[0].append(asked)
                elif isinstance(command, ExpireLease | EndLease):
                    self._asked[2].append(asked)
                else:
                    self._asked[1].append(asked)
            case Watch():
                self._new_watches.append((sender, message))
            case Unwatch(n=n):
                self._unwatch(sender, n)
            case Hello():
                self._hellos.append((sender, message))
            case _:
                assert_never(message)

    def on_drained(self, now_ms: int) -> None:
        """Judge and commit all that came in, then let the answers go."""
        self._ledger.stall_ms = self.stalls.sum_ms
        for sender, hello in self._hellos:
            self._greet(sender, hello)
        self._hellos.clear()
        first, second, third = self._asked
        if first or second or third:
            asked = [*first, *second, *third]
            for part in self._asked:
                part.clear()
            self._commit(asked, now_ms)
        if self._new_watches:
            self._look_at_watches()

    def next_timer_ms(self) -> int | None:
        """The newest number is repeated, so that a lost tail of the feed is noticed."""
        return self._beat_ms if self._late_ms is None else min(self._beat_ms, self._late_ms)

    def on_timer(self, now_ms: int) -> None:
        """Repeat the newest number; look after what the store keeps, and its log."""
        if self._late_ms is not None:
            self._send_late()
        if now_ms < self._beat_ms:
            return
        self._beat_ms = now_ms + FEED_BEAT_MS
        for follower, sent in self._followers.items():
            self.send(follower, Newest(self._ledger.n, sent, self.stalls.sum_ms))
        self.flush()
        try:
            self._writer.tidy(now_ms)
            self._writer.maybe_checkpoint()
        except Exception:  # noqa: BLE001 - as for a commit
            self._disk_failed(self._ledger.n)

    def on_orderly_stop(self, grace_ms: int) -> None:
        """Everything acknowledged is on the disk already."""
        self._writer.close()

    # --- peers --------------------------------------------------------------
    def _greet(self, sender: str, hello: Hello) -> None:
        if hello.version != PROTOCOL_VERSION or hello.node != self.boot.node:
            self.log.warning(LogName.PEER_REFUSED, sender=sender, version=hello.version)
            return
        role = hello.role + "."
        for known in [known for known in self._followers if known.startswith(role)]:
            del self._followers[known]
            self._selective.discard(known)
            self._late.pop(known, None)
        if hello.follow:
            self._followers[sender] = self._ledger.n
            if hello.only_dead_letters:
                self._selective.add(sender)
            if hello.patient:
                self._late[sender] = []
        if hello.role == GATEWAY:
            self._watches.clear()
            self._watched.clear()
        welcome = Welcome(self.boot.incarnation, self._epoch, self._ledger.n, self.base_ms)
        self.send(sender, welcome)

    # --- commits ------------------------------------------------------------
    def _commit(self, asked: list[_Asked], now_ms: int) -> None:
        reached(CrashPoint.HISTORY_DRAINED_NOT_JUDGED)
        try:
            batch = self._write(asked, now_ms)
        except (Contradiction, Unfit):
            if len(asked) > 1:
                self._commit_singly(asked, now_ms)
                return
            batch = self._ledger.set_aside(asked[0].ask.command)
        except Exception:  # noqa: BLE001 - whatever it was, the outcome is unknown
            self._disk_failed(self._ledger.n + 1)
        if batch.aside:
            self._set_aside(batch.aside, now_ms)
        self._ledger.committed(batch)
        reached(CrashPoint.HISTORY_COMMITTED_NOT_PUBLISHED)
        if batch.change is not None:
            self._publish(batch.n, batch.change.body, batch.dead_letters, now_ms)
        reached(CrashPoint.HISTORY_PUBLISHED_NOT_ANSWERED)
        for one, answer in zip(asked, batch.answers, strict=True):
            self.send(one.sender, Answer(one.ask.n, batch.n, answer), one.head)
            if isinstance(one.ask.command, HIRING) and type(answer) is Done:
                for task in tasks(one.ask.command, self._ledger, now_ms):
                    self.send(one.sender, task, one.head)
        if batch.closings:
            self._tell_watchers(batch)

    def _write(self, asked: list[_Asked], now_ms: int) -> Batch:
        """Judge these and make what follows durable. After Contradiction or Unfit nothing has
        happened, in the store or here.
        """
        self._writer.begin()
        try:
            batch = self._ledger.judge([one.ask.command for one in asked], now_ms)
            reached(CrashPoint.HISTORY_JUDGED_NOT_WRITTEN)
            if batch.change is None:
                self._writer.abandon()
            else:
                self._writer.commit(batch.change)
        except (Contradiction, Unfit):
            self._writer.abandon()
            self._ledger.forget(self._writer.ready_count())
            raise
        return batch

    def _commit_singly(self, asked: list[_Asked], now_ms: int) -> None:
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
        except Exception:  # noqa: BLE001 - as for a commit
            self._disk_failed(self._ledger.n + 1)

    def _disk_failed(self, n: int) -> NoReturn:
        """While an error is being handled: unknown, not refused. Answer nobody, and never use this
        connection again.
        """
        self.log.exception(LogName.COMMIT_FAILED, n=n)
        self.host.exit(EXIT_COMMIT_FAILED)

    def _publish(self, n: int, body: bytes, dead_letters: bool, now_ms: int) -> None:
        for follower, previous in self._followers.items():
            if follower in self._selective and not dead_letters:
                continue  # Waking a process costs more than all that it would do with this.
            late = self._late.get(follower)
            if late is None:
                self.send(follower, Feed(previous, n, body))
            else:
                late.append(Feed(previous, n, body))
                if self._late_ms is None:
                    self._late_ms = now_ms + PATIENT_MS
            self._followers[follower] = n

    def _send_late(self) -> None:
        self._late_ms = None
        for follower, late in self._late.items():
            for feed in late:
                self.send(follower, feed)
            late.clear()

    # --- watches ------------------------------------------------------------
    def _look_at_watches(self) -> None:
        for sender, watch in self._new_watches:
            execution = self._ledger.execution(watch.workflow_id)
            if execution is None:
                answer: AnyAnswer = _not_found(no_workflow(watch.workflow_id))
            elif execution.status is Status.REMOVED:
                answer = _not_found(removed_workflow(watch.workflow_id))
            elif execution.is_open:
                if (sender, watch.n) not in self._watched:  # Else it was sent twice.
                    watcher = _Watcher(sender, watch.n)
                    self._watches.setdefault(watch.workflow_id, []).append(watcher)
                    self._watched[sender, watch.n] = watch.workflow_id
                continue
            else:
                raw = self._writer.event(watch.workflow_id, execution.last_event_id)
                answer = _closed(execution.status, None if raw is None else decode_event(raw))
            self.send(sender, Answer(watch.n, self._ledger.n, answer))
        self._new_watches.clear()

    def _unwatch(self, sender: str, n: int) -> None:
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
            answer = _closed(Status.RUNNING, record)
            for watcher in watchers:
                del self._watched[watcher.sender, watcher.n]
                self.send(watcher.sender, Answer(watcher.n, batch.n, answer))


def _not_found(error: NotFound) -> Refusal:
    return Refusal(error.code, error.message)


def _closed(status: Status, event: Record | None) -> AnyAnswer:
    match event:
        case WorkflowCompleted(result=result):
            return Closed(Status.COMPLETED.value, result, None)
        case WorkflowFailed(failure=failure):
            return Closed(Status.FAILED.value, None, failure)
        case _:
            return Closed(status.value, None, None)


def main(boot: Boot) -> None:
    """Be history until the root says stop."""
    run(History, boot)
