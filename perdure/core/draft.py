"""What a batch adds up to while its commands are judged, and the commit that it becomes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.core.batch import Aside
from perdure.core.chain import next_hash
from perdure.core.change import Change, StoredEvent
from perdure.core.commands import ChildEnded, Refusal
from perdure.core.dead_letters import may_touch
from perdure.core.decide_start import because
from perdure.core.facts import FollowOn, scoped
from perdure.core.gates import Gate
from perdure.core.records import CommitBody, Group, Record, WorkflowReset, encode_body
from perdure.core.schedule_state import Schedule
from perdure.core.state import Execution
from perdure.core.traits import TRAITS, slim, stored


class _Places:
    """Where rows of a list that only grows stand, by their keys. Each is looked at once."""

    __slots__ = ("_count", "_places")

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}
        self._count = 0

    def find(self, rows: Sequence[Any], key_of: Callable[[Any], Any], key: Any) -> int:
        """The place of the row with this key, which is there."""
        for at in range(self._count, len(rows)):
            self._places[key_of(rows[at])] = at
        self._count = len(rows)
        return self._places[key]


class Draft:
    """Of one batch."""

    def __init__(self) -> None:
        self.groups: dict[str, list[Record]] = {}
        self.events: list[StoredEvent] = []
        self.started: dict[str, Execution] = {}
        # In the order in which they were touched: rows, and what is loaded from them, stand so.
        self.activities: dict[tuple[str, str], None] = {}
        self.timers: dict[tuple[str, int], None] = {}
        self.closing: dict[tuple[str, str], Record] = {}
        self.requested: dict[tuple[str, str], Record] = {}
        self.closings: dict[str, Record] = {}
        self.resets: list[tuple[str, int]] = []
        self.gates: dict[tuple[str, str], Gate] = {}
        self.schedules: dict[str, Schedule] = {}  # By group.
        self.aside: list[Aside] = []
        self.dead_letters = False
        self.long: list[str] = []
        self.then: deque[FollowOn] = deque()
        self.is_following = False  # What is judged follows from what was decided already.
        self._places = _Places()  # Of events.
        self._group_places: defaultdict[str, _Places] = defaultdict(_Places)

    def note(self, workflow_id: str, records: Iterable[Any]) -> None:
        """Remember which rows `records` touch, and what can be looked up by them before they are
        stored.
        """
        for record in records:
            traits = TRAITS[type(record)]
            if traits.tells and record.activity_id:
                key = (workflow_id, record.activity_id)
                self.activities[key] = None
                if may_touch(record):
                    self.dead_letters = True
                if traits.closes:
                    self.closing[key] = record
            elif traits.is_timer:
                self.timers[workflow_id, record.timer_id] = None
            elif traits.ends:
                self.closings[workflow_id] = record
            if traits.request is not None:
                request_id = getattr(record, traits.request)
                if request_id is not None:
                    self.requested[workflow_id, scoped(type(record), request_id)] = record

    def touch(self, activities: list[tuple[str, str]], timers: list[tuple[str, int]]) -> None:
        """Remember rows of an execution that has ended or was reset."""
        self.activities.update(dict.fromkeys(activities))
        self.timers.update(dict.fromkeys(timers))
        if activities:
            self.dead_letters = True

    def refused(self, follow_on: FollowOn, refusal: Refusal) -> list[tuple[str, int]]:
        """What was to follow does not: tell whoever had a decision do it.

        The event that asked for it says why, whatever is folded of it: its execution, and by how
        many bytes that event has grown.
        """
        otherwise = follow_on.otherwise
        if otherwise is not None:
            if isinstance(otherwise, ChildEnded):
                otherwise = because(otherwise, refusal)
            self.then.appendleft(FollowOn(otherwise))
        if follow_on.asked_in is None:
            return []
        workflow_id, event_id = follow_on.asked_in
        group = self.groups[workflow_id]
        at = self._group_places[workflow_id].find(group, _event_id, event_id)
        group[at] = msgspec.structs.replace(group[at], refused=refusal.message, code=refusal.code)
        event = stored(workflow_id, group[at])
        place = self._places.find(self.events, _event, follow_on.asked_in)
        grown = len(event.body) - len(self.events[place].body)
        self.events[place] = event
        return [(workflow_id, grown)]

    def reset(
        self,
        workflow_id: str,
        record: WorkflowReset,
        timers_before: list[tuple[str, int]],
        timers: Mapping[int, int],
    ) -> None:
        """What an execution's reset takes back, of what is stored and of this batch: the timers
        that run as before stay as they are stored.
        """
        after = {(workflow_id, timer_id): None for timer_id in timers}
        before = dict.fromkeys(timers_before)
        self.timers.update(
            {key: None for key in (before | after) if (key in before) != (key in after)}
        )
        self.resets.append((workflow_id, record.to_event))
        self.closing = {key: it for key, it in self.closing.items() if key[0] != workflow_id}
        self.closings.pop(workflow_id, None)
        self.events = [
            msgspec.structs.replace(one, closes=None)
            if one.workflow_id == workflow_id and one.event_id > record.to_event
            else one
            for one in self.events
        ]

    def change(
        self,
        executions: Mapping[str, Execution],
        newest_n: int,
        epoch: int,
        last_hash: bytes,
        stall_ms: int,
        now_ms: int,
    ) -> Change:
        """The commit behind commit `newest_n`, `executions` being as of its end."""
        groups = tuple(
            Group(workflow_id, tuple(map(slim, records)))  # type: ignore[arg-type]
            for workflow_id, records in self.groups.items()
        )
        n = newest_n + 1
        body = encode_body(CommitBody(n, epoch, now_ms, groups))
        activities = []
        activities_closed = []
        for workflow_id, activity_id in self.activities:
            activity = executions[workflow_id].activities.get(activity_id)
            if activity is None:
                activities_closed.append((workflow_id, activity_id))
            else:
                activities.append((workflow_id, activity))
        timers = []
        timers_closed = []
        for workflow_id, timer_id in self.timers:
            due_ms = executions[workflow_id].timers.get(timer_id)
            if due_ms is None:
                timers_closed.append((workflow_id, timer_id))
            else:
                timers.append((workflow_id, timer_id, due_ms))
        return Change(
            n=n,
            epoch=epoch,
            at_ms=now_ms,
            previous_hash=last_hash,
            hash=next_hash(last_hash, body),
            body=body,
            started=list(self.started.values()),
            touched=[
                executions[key]
                for key in self.groups
                if key in executions and key not in self.started
            ],
            events=self.events,
            activities=activities,
            activities_closed=activities_closed,
            timers=timers,
            timers_closed=timers_closed,
            gates=list(self.gates.values()),
            schedules=list(self.schedules.values()),
            stall_ms=stall_ms,
            resets=self.resets,
        )


def _event(it: StoredEvent) -> tuple[str, int]:
    return it.workflow_id, it.event_id


def _event_id(record: Any) -> int:
    """0 of a record that is no event."""
    return getattr(record, "event_id", 0)
