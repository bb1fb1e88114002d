"""What history does for others while there is no room on the disk for its first commit.

Everything that was durable may be read: what a killed predecessor wrote has been synced. Nothing
can be decided: clients are told so, and the commands of others are left unanswered, for they ask
again. What cannot be answered before there is an epoch is kept.
"""

from __future__ import annotations

from typing import Any

from actors import history_answers
from actors.mailbox import Mailbox
from perdure.core.commands import Refusal
from perdure.core.limits import PROTOCOL_VERSION
from perdure.core.links import GATEWAY, Answer, Ask, Hello, Unwatch, Watch, Welcome
from perdure.log_names import LogName
from perdure.store.protocol import NoRoom, Opened, Reader, Writer
from perdure.store.room import BEGINNING_BYTES

AGAIN_MS = 1_000


def take_over(mailbox: Mailbox, reserve_bytes: int) -> tuple[Writer, Opened | None]:
    """A writer with an epoch of its own; None where there is no room for it, not even the
    ballast's. Raises StoreError otherwise.
    """
    host, boot = mailbox.host, mailbox.boot
    while True:
        writer = host.writer(boot.data_dir)
        writer.reserve(reserve_bytes)
        try:
            return writer, writer.open_epoch(
                boot.incarnation,
                host.wall_ms(),
                host.boot_id(),
                host.boottime_ms(),
                boot.recovery_grace_ms,
            )
        except NoRoom as error:
            mailbox.log.warning(LogName.NO_ROOM, error=str(error), has_freed=error.has_freed)
            if not error.has_freed:  # True at most once: the ballast is gone then.
                return writer, None


def wait(mailbox: Mailbox) -> Waiting | None:
    """What is there may be read from now on; None where not even that is possible for room."""
    host, data_dir = mailbox.host, mailbox.boot.data_dir
    try:
        there = host.writer(data_dir).make_durable(
            host.wall_ms(), host.boot_id(), host.boottime_ms()
        )
    except NoRoom as error:
        mailbox.log.warning(LogName.NO_ROOM, error=str(error))
        return None
    return Waiting(mailbox, there)


class Waiting:
    """Stands in for a history without an epoch. `there` is what it may show."""

    def __init__(self, mailbox: Mailbox, there: Opened) -> None:
        self._mailbox = mailbox
        self.there = there
        self._reader: Reader = mailbox.host.reader(mailbox.boot.data_dir)
        self.kept: list[tuple[str, bytes, Any]] = []

    def take(self, sender: str, head: bytes, message: Any) -> None:
        """One message."""
        match message:
            case Ask(n=n):
                if not head and sender.startswith(GATEWAY):
                    text = (
                        "there is no room on the node's disk: it only reads until"
                        f" {BEGINNING_BYTES} bytes are free"
                    )
                    answer = Refusal("RESOURCE_EXHAUSTED", text)
                    self._mailbox.send(sender, Answer(n, self.there.n, answer))
            case Watch(update_id=update_id) if update_id:
                self.kept.append((sender, head, message))
            case Watch(n=n, workflow_id=workflow_id):
                execution = self._reader.execution(workflow_id)
                found = history_answers.ended(workflow_id, execution, self._reader.event)
                if found is None:
                    self.kept.append((sender, head, message))
                else:
                    self._mailbox.send(sender, Answer(n, self.there.n, found))
            case Unwatch(n=n):
                self.kept = [
                    one
                    for one in self.kept
                    if not (one[0] == sender and isinstance(one[2], Watch) and one[2].n == n)
                ]
            case Hello():
                self.kept.append((sender, head, message))
                self._greet(sender, message)
            case _:
                pass

    def _greet(self, sender: str, hello: Hello) -> None:
        boot = self._mailbox.boot
        if hello.version == PROTOCOL_VERSION and hello.node == boot.node:
            there = self.there
            self._mailbox.send(
                sender, Welcome(boot.incarnation, there.epoch, there.n, there.base_ms)
            )

    def close(self) -> None:
        """There is room again."""
        self._reader.close()
