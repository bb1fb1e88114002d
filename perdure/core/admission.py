"""May an attempt of this kind begin now? Pauses, breakers, and limits on starts, in one place.

Kinds are keys of task queues, (queue, activity type, …): what holds one activity back for one of
these reasons holds all of its kind, so that a queue costs nothing for being long. No clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perdure.core.breakers import Breaker, BreakerState
from perdure.core.gates import Gate, Gates
from perdure.core.interaction_records import GateSet
from perdure.core.open_work import RETRY, Entry, Key
from perdure.core.rates import RetryShare, TokenBucket
from perdure.core.records import (
    CLOSING_TYPES,
    ActivityDeadLettered,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    LeaseGranted,
    LeaseReleased,
    Record,
    RetryScheduled,
    WorkflowReset,
)
from perdure.core.rules import NO_RULES, Rules
from perdure.core.state import Execution
from perdure.core.task_queues import TaskQueues
from perdure.failures import SCHEDULE_TO_CLOSE_TIMEOUT

# Whether an attempt that ended so failed; those that are missing say nothing of its dependency.
_ENDS: dict[type[Record], bool | None] = {
    RetryScheduled: True,
    ActivityDeadLettered: True,
    ActivityTaskCompleted: False,
    ActivityTaskFailed: None,
    ActivityTaskCancelled: None,
    LeaseReleased: None,
}


class Hold(NamedTuple):
    """What keeps a kind of activity from starting. `at_ms`: when it will not any more, None where
    no clock decides that.
    """

    why: str  # "paused", "breaker", "concurrency", "rate" or "retry_budget".
    at_ms: int | None
    of: str  # "queue" or "activity_type".
    name: str
    number: float = 0  # The limit; of a breaker, the failures that opened it.
    text: str = ""  # An operator's reason; of a breaker, its state.


class Admission:
    """What has begun, as far as rules count it, and what may begin."""

    def __init__(self, queues: TaskQueues, rules: Rules = NO_RULES) -> None:
        self.gates = Gates()
        self.rules = rules
        self._queues = queues
        self._promised: Counter[tuple[str, str]] = Counter()  # Leases proposed, not yet granted.
        self._retry_ms: dict[Entry, int] = {}  # Those of them that a budget counts, and since when.
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self.breakers = {
            name: Breaker(rule.breaker)
            for name, rule in rules.activities.items()
            if rule.breaker is not None
        }
        self.budgets = {
            name: RetryShare(rule.retry_budget)
            for name, rule in rules.activities.items()
            if rule.retry_budget is not None
        }
        self.counts = bool(rules)  # Whether anything that begins or ends is counted.
        if self.counts:
            queues.index.counts = True
        queues.retries_apart = frozenset(self.budgets)
        queues.queue_priority = {
            name: rule.priority for name, rule in rules.queues.items() if rule.priority
        }

    def begin(self, executions: Iterable[Execution], gates: Iterable[Gate], now_ms: int) -> None:
        """Buckets are empty; a breaker is half-open where failures are recent."""
        self.gates.load(gates)
        for of, rules in (("queue", self.rules.queues), ("activity_type", self.rules.activities)):
            for name, rule in rules.items():
                if rule.rate is not None:
                    self._buckets[of, name] = TokenBucket(rule.rate, now_ms)
        if not self.breakers:
            return
        recent: Counter[str] = Counter()
        for execution in executions:
            for activity in execution.activities.values():
                breaker = self.breakers.get(activity.activity_type)
                if breaker is not None:
                    since_ms = now_ms - breaker.rule.window_ms - breaker.rule.open_ms
                    failed = activity.failures_newest
                    recent[activity.activity_type] += sum(it.at_ms > since_ms for it in failed)
        for name, count in recent.items():
            if count >= self.breakers[name].rule.failures:
                self.breakers[name].begin_half_open()

    # --- may it begin? ----------------------------------------------------------
    @property
    def is_open(self) -> bool:
        """True where nothing is ever held: no rules, no pauses."""
        return not self.counts and not self.gates

    def hold(self, key: Key, now_ms: int) -> Hold | None:
        """What holds activities of `key` back at this moment; None: nothing does."""
        queue, kind = key[0], key[1]
        gate = self.gates.of_activity(queue, kind) if self.gates else None
        if gate is not None:
            return Hold("paused", None, gate.kind, gate.name, gate.since_ms, gate.reason)
        if not self.counts:
            return None
        return (
            self._breaker(kind, now_ms)
            or self._limit("queue", queue, key, now_ms)
            or self._limit("activity_type", kind, key, now_ms)
            or self._budget(key, now_ms)
        )

    def _breaker(self, kind: str, now_ms: int) -> Hold | None:
        breaker = self.breakers.get(kind)
        state = BreakerState.CLOSED if breaker is None else breaker.state(now_ms)
        if breaker is None or state is BreakerState.CLOSED:
            return None
        if state is BreakerState.HALF_OPEN and breaker.probe is None:
            return None
        at_ms = breaker.until_ms if state is BreakerState.OPEN else None
        return Hold("breaker", at_ms, "activity_type", kind, breaker.rule.failures, state.value)

    def _limit(self, of: str, name: str, key: Key, now_ms: int) -> Hold | None:
        rules = self.rules.queues if of == "queue" else self.rules.activities
        rule = rules.get(name)
        if rule is None:
            return None
        most = rule.concurrency
        if most is not None and self._running(of, name) >= most:
            return Hold("concurrency", None, of, name, most)
        if rule.rate is not None:
            ready_ms = self._buckets[of, name].ready_ms(now_ms)
            if ready_ms > now_ms:
                return Hold("rate", ready_ms, of, name, rule.rate)
        return None

    def _running(self, of: str, name: str) -> int:
        at = 0 if of == "queue" else 1
        counts = (self._queues.index.count, self._promised)
        return sum(n for count in counts for key, n in count.items() if key[at] == name)

    def _budget(self, key: Key, now_ms: int) -> Hold | None:
        budget = self.budgets.get(key[1]) if RETRY in key[2:] else None
        if budget is None:
            return None
        ready_ms = budget.ready_ms(now_ms)
        if ready_ms <= now_ms:
            return None
        return Hold("retry_budget", ready_ms, "activity_type", key[1], budget.allowed)

    # --- what begins, and ends ----------------------------------------------------
    def take(self, entry: Entry, now_ms: int) -> None:
        """A lease for it is asked for: it counts."""
        self._count(entry, now_ms, 1)
        breaker = self.breakers.get(entry.key[1])
        if breaker is not None:
            breaker.began(_name(entry), now_ms)

    def refused(self, entry: Entry, now_ms: int) -> None:
        """It was not granted: it does not count."""
        self._count(entry, now_ms, -1)
        breaker = self.breakers.get(entry.key[1])
        if breaker is not None:
            breaker.ended(_name(entry), now_ms, failed=None)

    def granted(self, entry: Entry) -> None:
        """What was asked for is a lease now, and counted as such."""
        self._promised[entry.key[0], entry.key[1]] -= 1
        self._retry_ms.pop(entry, None)

    def _count(self, entry: Entry, now_ms: int, by: int) -> None:
        queue, kind = entry.key[0], entry.key[1]
        self._promised[queue, kind] += by
        for name in (("queue", queue), ("activity_type", kind)):
            bucket = self._buckets.get(name)
            if bucket is not None and by > 0:
                bucket.take(now_ms)
            elif bucket is not None:
                bucket.give_back()
        budget = self.budgets.get(kind)
        if budget is None:
            return
        if by < 0 and entry in self._retry_ms:
            budget.give_back(self._retry_ms.pop(entry), now_ms)
        elif by > 0 and entry.activity.attempt > 1:
            budget.retry(now_ms)
            self._retry_ms[entry] = now_ms

    def follow(self, workflow_id: str, records: Sequence[Record], at_ms: int) -> None:
        """Before the queues take them in: gates that are set; attempts that begin and end, where
        that is counted.
        """
        if not workflow_id:
            for record in records:
                if isinstance(record, GateSet):
                    self.gates.apply(record)
        elif self.breakers or self.budgets:
            self._follow(workflow_id, records, at_ms)

    def _follow(self, workflow_id: str, records: Sequence[Record], at_ms: int) -> None:
        kinds: dict[str, str] = {}  # Of what is scheduled by these very records.
        begun: set[str] = set()  # By these very records: what begins may end in the same commit.
        for record in records:
            if type(record) is ActivityTaskScheduled:
                kinds[record.activity_id] = record.activity_type
            elif type(record) is LeaseGranted:
                begun.add(record.activity_id)
                self._begins(workflow_id, record, kinds, at_ms)
            elif type(record) in _ENDS:
                self._ends(workflow_id, record, begun, at_ms)
        if any(type(one) in CLOSING_TYPES or type(one) is WorkflowReset for one in records):
            for breaker in self.breakers.values():
                if breaker.probe is not None and breaker.probe[0] == workflow_id:
                    breaker.ended(breaker.probe, at_ms, failed=None)

    def _begins(
        self, workflow_id: str, record: LeaseGranted, kinds: dict[str, str], at_ms: int
    ) -> None:
        entry = self._queues.entry(workflow_id, record.activity_id)
        kind = kinds.get(record.activity_id) if entry is None else entry.activity.activity_type
        budget = None if kind is None else self.budgets.get(kind)
        if budget is not None and record.attempt == 1:
            budget.first(at_ms)

    def _ends(self, workflow_id: str, record: Record, begun: set[str], at_ms: int) -> None:
        activity_id: str = record.activity_id  # type: ignore[attr-defined]
        entry = self._queues.entry(workflow_id, activity_id)
        if entry is None or not (entry.is_leased or activity_id in begun):
            return
        breaker = self.breakers.get(entry.activity.activity_type)
        if breaker is None:
            return
        failed = _ENDS[type(record)]
        if isinstance(record, ActivityTaskFailed):
            # A retry that could not begin in time; an attempt that failed for good is an answer.
            failed = record.failure.type == SCHEDULE_TO_CLOSE_TIMEOUT or None
        breaker.ended((workflow_id, activity_id), at_ms, failed=failed)


def _name(entry: Entry) -> tuple[str, str]:
    return entry.work.workflow_id, entry.activity.activity_id
