"""What a batch adds up to while its commands are judged, and the commit that it becomes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from perdure.core.batch import Aside
from perdure.core.chain import next_hash
from perdure.core.change import Change, StoredEvent
from perdure.core.facts import FollowOn
from perdure.core.gates import Gate
from perdure.core.records import CommitBody, Group, Record, encode_body
from perdure.core.schedule_state import Schedule
from perdure.core.state import Execution
from perdure.core.traits import slim


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
        self.gates: dict[tuple[str, str], Gate] = {}
        self.schedules: dict[str, Schedule] = {}  # By group.
        self.aside: list[Aside] = []
        self.dead_letters = False
        self.long: list[str] = []
        self.then: deque[FollowOn] = deque()
        self.is_following = False  # What is judged follows from what was decided already.

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
        )
