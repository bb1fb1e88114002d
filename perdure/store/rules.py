"""What every store decides alike: the clock of an epoch, the link of a commit, a page's token."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from perdure.core.chain import next_hash
from perdure.core.change import Change
from perdure.core.ids import execution_id, of_execution
from perdure.core.limits import GRACE_MS
from perdure.core.more import More
from perdure.core.records import CommitBody, encode_body
from perdure.core.start import Attribute
from perdure.errors import InvalidArgument
from perdure.store.protocol import CommitRow, EpochLost, StoreError, WorkflowFilter

KEY_BYTES = 32


def more_fits(more: More | None, where: WorkflowFilter) -> bool:
    """Whether an execution that has `more` is what the filter asks for there."""
    if not where.attributes and where.parent is None:
        return True
    if more is None:
        return False
    if where.parent is not None and (
        more.parent is None or of_execution(more.parent.workflow_id)[0] != where.parent
    ):
        return False
    return all(_same(more.attributes.get(name), value) for name, value in where.attributes)


def _same(has: Attribute | None, wanted: Attribute) -> bool:
    """True is not 1."""
    return has == wanted and isinstance(has, bool) == isinstance(wanted, bool)


class Newest(NamedTuple):
    """The end of the commit log, and who owns it."""

    epoch: int  # 0 in a store that nobody has opened.
    n: int
    at_ms: int
    hash: bytes
    stall_ms: int = 0


class Boot(NamedTuple):
    """The clock of an epoch: within this boot it is `base_ms` plus the boot time."""

    boot_id: str
    base_ms: int


_encode = msgspec.msgpack.Encoder().encode
_decode_page = msgspec.msgpack.Decoder(int).decode


def base_ms(newest: Newest, earlier: Boot | None, wall_ms: int, boot_id: str, boot_ms: int) -> int:
    """What history adds to the boot time to get its clock, which never goes back.

    `earlier` is the newest epoch's. In the same boot its base carries on, whatever the wall clock
    says; in another, and where the boot has no name, the clock starts at the larger of the last
    commit's instant and the wall clock.
    """
    if earlier is not None and is_same_boot(earlier, boot_id):
        # Boot time itself may be shifted, in a container with its own time namespace.
        return max(earlier.base_ms, newest.at_ms - boot_ms)
    return max(newest.at_ms, wall_ms) - boot_ms


def is_same_boot(earlier: Boot | None, boot_id: str) -> bool:
    """Whether the machine has been up since the epoch of `earlier` began."""
    return earlier is not None and bool(boot_id) and earlier.boot_id == boot_id


def epoch_commit(
    newest: Newest, at_ms: int, incarnation: str, grace_ms: int = GRACE_MS
) -> CommitRow:
    """The row that takes the store over for the next epoch."""
    n, epoch = newest.n + 1, newest.epoch + 1
    said = None if grace_ms == GRACE_MS else grace_ms
    body = encode_body(CommitBody(n, epoch, at_ms, (), incarnation, said))
    link = next_hash(newest.hash, body)
    return CommitRow(n, epoch, at_ms, newest.hash, link, body, newest.stall_ms)


def check_link(change: Change, owned: int, newest: Newest) -> None:
    """Nothing, when `change` is what the owner of epoch `owned` may write next.

    Raises EpochLost where the store has another owner, StoreError where the change does not follow
    the newest commit.
    """
    check_owner(owned, newest)
    if change.epoch != owned:
        raise StoreError(f"commit {change.n} names epoch {change.epoch}, its writer has {owned}")
    if change.n != newest.n + 1:
        raise StoreError(f"commit {change.n} does not follow commit {newest.n}")
    if change.previous_hash != newest.hash:
        raise StoreError(f"commit {change.n} does not link to the hash of commit {newest.n}")
    if change.hash != next_hash(change.previous_hash, change.body):
        raise StoreError(f"commit {change.n} bears a hash that is not its body's")
    if change.at_ms < newest.at_ms:
        raise StoreError(
            f"commit {change.n} is of {change.at_ms}, before commit {newest.n} of {newest.at_ms}"
        )


def check_owner(owned: int, newest: Newest) -> None:
    """Raise EpochLost where epoch `owned` is not the store's."""
    if newest.epoch != owned:
        raise EpochLost(f"epoch {owned} is over, the store is at {newest.epoch}; stop this history")


def page_token(position: int) -> str:
    """The token of the page that goes on after `position`, a store's own number of an execution."""
    return base64.urlsafe_b64encode(_encode(position)).decode("ascii")


def page_start(page: str) -> int:
    """The position that `page_token` made `page` from. Raises InvalidArgument on any other text."""
    try:
        return _decode_page(base64.b64decode(page.encode("ascii"), altchars=b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidArgument("page is not a token that a list gave", field="page") from None


def newest_run(is_known: Callable[[str], bool], workflow_id: str) -> int:
    """The number of the newest of a workflow's runs, which follow each other without a gap; 0 where
    there is none. `is_known` says whether there is an execution of an id; it is asked O(log n)
    times.
    """
    if not is_known(workflow_id):
        return 0
    known, unknown = 1, 2
    while is_known(execution_id(workflow_id, unknown)):
        known, unknown = unknown, unknown * 2
    while unknown - known > 1:
        middle = (known + unknown) // 2
        if is_known(execution_id(workflow_id, middle)):
            known = middle
        else:
            unknown = middle
    return known
