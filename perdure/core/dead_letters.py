"""The index of dead letters: activities whose last attempt failed and that wait for an operator.

A projection of history's records: they say when to look, the state that is stored says what is
there. It answers lists; what becomes of a dead letter, history decides.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from perdure.core.records import (
    ActivityCancelRequested,
    ActivityDeadLettered,
    ActivityRedriven,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    Record,
)
from perdure.core.state import Activity, ActivityState, Execution
from perdure.errors import InvalidArgument

Position = tuple[int, str, str]  # (dead_ms, workflow id, activity id)

# What makes a dead letter, changes one, or may take one away; the closing of a workflow may, too.
_TOUCHING: frozenset[type[Record]] = frozenset(
    {ActivityDeadLettered, ActivityRedriven, ActivityTaskCancelled, ActivityCancelRequested}
)
_ENDS: frozenset[type[Record]] = frozenset({ActivityTaskCompleted, ActivityTaskFailed})
_position_decoder = msgspec.msgpack.Decoder(Position)


class DeadLetterFilter(msgspec.Struct, frozen=True):
    """What a list is narrowed to; None matches all. `older_than_ms`: dead for longer than this."""

    workflow_id: str | None = None
    activity_id: str | None = None
    activity_type: str | None = None
    failure_type: str | None = None
    older_than_ms: int | None = None


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """One entry: the activity as it stands, with every failure that is kept of it."""

    workflow_id: str
    workflow_type: str
    activity: Activity


def may_touch(record: Record) -> bool:
    """Whether this record about an activity may make or take away a dead letter.

    True too often does no harm. An attempt's own end has `started_ms`: it was leased, not dead.
    """
    if type(record) in _ENDS:
        return record.started_ms is None  # type: ignore[attr-defined]
    return type(record) in _TOUCHING


class DeadLetters:
    """Every dead letter, oldest first. It keeps nothing of workflows without any."""

    def __init__(self) -> None:
        self._workflows: dict[str, dict[str, DeadLetter]] = {}  # By activity id; never empty.
        self._order: list[Position] = []

    def __len__(self) -> int:
        return len(self._order)

    # --- records --------------------------------------------------------------
    def load(self, executions: Iterable[Execution]) -> None:
        """Begin with these open executions, which belong to this object from now on."""
        for execution in executions:
            self.refresh(execution.workflow_id, execution)

    def concerns(self, workflow_id: str, records: Iterable[Record]) -> bool:
        """Whether, after a commit that states `records`, `refresh` must be called."""
        return workflow_id in self._workflows or any(
            type(record) is ActivityDeadLettered for record in records
        )

    def refresh(self, workflow_id: str, execution: Execution | None) -> None:
        """Take over what is dead in `execution`, the state after that commit or a later one."""
        for activity_id, entry in self._workflows.pop(workflow_id, {}).items():
            position = (entry.activity.dead_ms or 0, workflow_id, activity_id)
            del self._order[bisect_left(self._order, position)]
        if execution is None:
            return
        dead = {
            activity_id: DeadLetter(workflow_id, execution.workflow_type, activity)
            for activity_id, activity in execution.activities.items()
            if activity.state is ActivityState.DEAD_LETTERED
        }
        if not dead:
            return
        self._workflows[workflow_id] = dead
        for activity_id, entry in dead.items():
            insort(self._order, (entry.activity.dead_ms or 0, workflow_id, activity_id))

    # --- lists ------------------------------------------------------------------
    def list(
        self, where: DeadLetterFilter, now_ms: int, limit: int, page: str | None = None
    ) -> tuple[list[DeadLetter], str | None]:
        """At most `limit` entries that match, oldest first, and the token of the next page.

        Raises InvalidArgument where `page` is not a token that a list gave.
        """
        start = 0 if page is None else bisect_right(self._order, _position(page))
        found: list[DeadLetter] = []
        for entry in self._from(start):
            if not _matches(where, entry, now_ms):
                continue
            if len(found) == limit:
                return found, _token(found[-1])
            found.append(entry)
        return found, None

    def by_failure_type(self, where: DeadLetterFilter, now_ms: int) -> dict[str, int]:
        """How many entries that match there are of each type of last failure, most first."""
        kinds: Counter[str] = Counter()
        for entry in self._from(0):
            failure = entry.activity.last_failure
            if failure is not None and _matches(where, entry, now_ms):
                kinds[failure.type] += 1
        return dict(kinds.most_common())

    def _from(self, start: int) -> Iterator[DeadLetter]:
        for index in range(start, len(self._order)):
            _, workflow_id, activity_id = self._order[index]
            yield self._workflows[workflow_id][activity_id]


def _matches(where: DeadLetterFilter, entry: DeadLetter, now_ms: int) -> bool:
    activity = entry.activity
    failure = activity.last_failure
    wanted = (
        (where.workflow_id, entry.workflow_id),
        (where.activity_id, activity.activity_id),
        (where.activity_type, activity.activity_type),
        (where.failure_type, None if failure is None else failure.type),
    )
    if any(want is not None and want != has for want, has in wanted):
        return False
    return where.older_than_ms is None or now_ms - (activity.dead_ms or 0) > where.older_than_ms


def _token(entry: DeadLetter) -> str:
    activity = entry.activity
    position = (activity.dead_ms or 0, entry.workflow_id, activity.activity_id)
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(position)).decode("ascii")


def _position(page: str) -> Position:
    try:
        raw = base64.b64decode(page.encode("ascii"), altchars=b"-_", validate=True)
        return _position_decoder.decode(raw)
    except (UnicodeEncodeError, binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidArgument("page is not a token that a list gave", field="page") from None
