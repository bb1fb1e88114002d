"""What rules of queues and activity types promise, held against what the scheduler begins and what
the log says: rates, concurrency, circuit breakers, retry budgets. With arithmetic of its own.

A life is one scheduler, from the state that it read. What it may begin depends on what it has asked
for, and on the commits that it had seen by then; both are noted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.core.commands import GrantLease
from perdure.core.records import (
    CLOSING_TYPES,
    ActivityDeadLettered,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    CommitBody,
    LeaseGranted,
    LeaseReleased,
    Record,
    RetryScheduled,
    WorkflowReset,
)
from perdure.core.resetting import restored

if TYPE_CHECKING:
    from chaos.sim.world import World

LIMITS_HOLD = 28
TOO_LATE = "ScheduleToCloseTimeout"
Name = tuple[str, str]  # Workflow id, activity id.
Limited = tuple[str, str]  # "queue" or "activity_type", and its name.


class Seen(NamedTuple):
    """What commit `n` says of an activity. what: "scheduled", "begins", "ends", "closed".

    `failed`: of an end, whether it speaks against what the type depends on; None: it says nothing.
    """

    n: int
    at_ms: int
    what: str
    name: Name
    kind: str
    attempt: int = 1
    failed: bool | None = None


class Limits:
    """Fed with commits, and with what schedulers propose and hear."""

    def __init__(self, world: World) -> None:
        self._world = world
        rules: Mapping[str, Any] = world.plan.knobs.rules
        self.of_queue: dict[str, dict[str, Any]] = rules.get("queues", {})
        self.of_type: dict[str, dict[str, Any]] = rules.get("activities", {})
        self.journal: list[Seen] = []
        self._known: dict[Name, tuple[str, str]] = {}  # Queue and type of all there ever was.
        self._open: dict[Name, tuple[str, str]] = {}  # Of what is open.
        self._leased: dict[Name, tuple[Life | None, int]] = {}  # Whose proposal, in which commit.
        self._lives: list[Life] = []

    def __bool__(self) -> bool:
        return bool(self.of_queue or self.of_type)

    def begins(self, n: int, now_ms: int) -> Life:
        """A scheduler has read the state as of commit `n`."""
        life = Life(self, n, now_ms)
        self._lives.append(life)
        return life

    def wrong(self, what: str) -> None:
        """A limit was not held."""
        self._world.violated(LIMITS_HOLD, what)

    def key_of(self, name: Name) -> tuple[str, str]:
        """Its queue and its type; a scheduler may not know yet that it has ended."""
        return self._known[name]

    def limited(self, queue: str, kind: str, what: str) -> Iterator[tuple[Limited, float]]:
        """Each limit of this sort that concerns such an activity."""
        for of, name, rules in (
            ("queue", queue, self.of_queue),
            ("activity_type", kind, self.of_type),
        ):
            most = rules.get(name, {}).get(what)
            if most is not None:
                yield (of, name), most

    # --- the log --------------------------------------------------------------------------
    def committed(self, body: CommitBody) -> None:
        """The next commit."""
        for group in body.groups:
            for record in group.records:
                self._record(body.n, body.at_ms, group.workflow_id, record)

    def _record(self, n: int, at_ms: int, workflow_id: str, record: Record) -> None:
        if isinstance(record, WorkflowReset) or type(record) in CLOSING_TYPES:
            for name in [name for name in self._open if name[0] == workflow_id]:
                self._gone(n, at_ms, name)
            if isinstance(record, WorkflowReset):
                self._opened_again(n, at_ms, workflow_id, record)
            return
        name = (workflow_id, getattr(record, "activity_id", ""))
        if isinstance(record, ActivityTaskScheduled):
            self._known[name] = (record.options.task_queue, record.activity_type)
            self._open[name] = self._known[name]
            self._note(n, at_ms, "scheduled", name)
        elif isinstance(record, LeaseGranted):
            self._granted(n, at_ms, name, record)
        elif type(record) in _ENDS and name in self._open:
            if name in self._leased:
                del self._leased[name]
                self._note(n, at_ms, "ends", name, failed=_has_failed(record))
            is_noop = getattr(record, "noop", False)
            if type(record) in _CLOSES and not is_noop:
                self._note(n, at_ms, "closed", name)
                del self._open[name]

    def _gone(self, n: int, at_ms: int, name: Name) -> None:
        if self._leased.pop(name, None) is not None:
            self._note(n, at_ms, "ends", name)
        self._note(n, at_ms, "closed", name)
        del self._open[name]

    def _opened_again(self, n: int, at_ms: int, workflow_id: str, record: WorkflowReset) -> None:
        for one in restored(record).activities.values():
            name = (workflow_id, one.activity_id)
            self._known[name] = (one.options.task_queue, one.activity_type)
            self._open[name] = self._known[name]
            self._note(n, at_ms, "scheduled", name)

    def _note(self, n: int, at_ms: int, what: str, name: Name, **more: Any) -> None:
        self.journal.append(Seen(n, at_ms, what, name, self._open[name][1], **more))

    def _granted(self, n: int, at_ms: int, name: Name, record: LeaseGranted) -> None:
        if name not in self._open:
            return  # That is the auditor's concern.
        queue, kind = self._open[name]
        self._note(n, at_ms, "begins", name, attempt=record.attempt)
        grant = (*name, record.grant)
        life = next((one for one in reversed(self._lives) if grant in one.proposed), None)
        self._leased[name] = (life, n)
        counted = [
            *self.limited(queue, kind, "rate"),
            *self.limited(queue, kind, "concurrency"),
            *self.limited(queue, kind, "breaker"),
        ]
        if life is None:
            if counted:
                self.wrong(f"{name} began, and no scheduler had counted it for {counted[0][0]}")
            return
        for of, most in self.limited(queue, kind, "concurrency"):
            running = self._running(of, life)
            if running > most:
                self.wrong(f"{name} began: {running} run of {of}, {most} may")

    def _running(self, of: Limited, life: Life) -> int:
        """How many run, but for those of other lives that this one could not know of."""
        at = 0 if of[0] == "queue" else 1
        return sum(
            self._open[name][at] == of[1] and (whose is life or n <= life.began_n)
            for name, (whose, n) in self._leased.items()
        )


class Life:
    """One scheduler's."""

    def __init__(self, limits: Limits, n: int, now_ms: int) -> None:
        self.began_n = n
        self.proposed: set[tuple[str, str, int]] = set()
        self._limits = limits
        self._asked: dict[tuple[str, str, int], tuple[str, str, int, int]] = {}
        self._debts = {
            (of, name): Debt(rule["rate"], now_ms)
            for of, rules in (("queue", limits.of_queue), ("activity_type", limits.of_type))
            for name, rule in rules.items()
            if rule.get("rate") is not None
        }
        self._breakers = {
            name: Breaker(rule["breaker"])
            for name, rule in limits.of_type.items()
            if rule.get("breaker") is not None
        }
        self._shares = {
            name: Share(rule["retry_budget"])
            for name, rule in limits.of_type.items()
            if rule.get("retry_budget") is not None
        }
        self._at = 0  # How much of the journal it has seen.
        self._look_back(now_ms)

    def _look_back(self, now_ms: int) -> None:
        """Of what was before, it knows the failures of what is open."""
        failures: dict[Name, list[int]] = {}
        kinds: dict[Name, str] = {}
        for seen in self._until(self.began_n):
            if seen.what in ("scheduled", "closed"):
                failures.pop(seen.name, None)
            elif seen.what == "ends" and seen.failed:
                failures.setdefault(seen.name, []).append(seen.at_ms)
                kinds[seen.name] = seen.kind
        for kind, breaker in self._breakers.items():
            known = [at for name, ats in failures.items() if kinds[name] == kind for at in ats]
            breaker.begin(known, now_ms)

    def _until(self, n: int) -> Iterator[Seen]:
        journal = self._limits.journal
        while self._at < len(journal) and journal[self._at].n <= n:
            self._at += 1
            yield journal[self._at - 1]

    def _catch_up(self, reached: int) -> None:
        for seen in self._until(reached):
            breaker, share = self._breakers.get(seen.kind), self._shares.get(seen.kind)
            if seen.what == "begins":
                for grant in [grant for grant in self._asked if grant[:2] == seen.name]:
                    del self._asked[grant]
                if share is not None and seen.attempt == 1:
                    share.firsts.append(seen.at_ms)
            elif seen.what == "ends" and breaker is not None:
                breaker.ended(seen.name, seen.at_ms, failed=seen.failed)
            elif seen.what == "closed" and breaker is not None:
                breaker.ended(seen.name, seen.at_ms, failed=None)  # It can't begin any more.

    def proposes(self, command: GrantLease, reached: int, now_ms: int) -> None:
        """It asks for a lease, having seen all commits up to `reached`."""
        self._catch_up(reached)
        name = (command.workflow_id, command.activity_id)
        grant = (*name, command.grant)
        queue, kind = self._limits.key_of(name)
        self.proposed.add(grant)
        self._asked[grant] = (queue, kind, command.attempt, now_ms)
        for of, _ in self._limits.limited(queue, kind, "rate"):
            over = self._debts[of].take(now_ms)
            if over > 0:
                self._limits.wrong(f"{name} begins {over:.3f} starts above the rate of {of}")
        breaker, share = self._breakers.get(kind), self._shares.get(kind)
        if breaker is not None:
            problem = breaker.took(name, now_ms)
            if problem:
                self._limits.wrong(f"{name} begins though the breaker of {kind} {problem}")
        if share is not None and command.attempt > 1:
            problem = share.took(now_ms)
            if problem:
                self._limits.wrong(f"{name} is tried again though of {kind} {problem}")

    def refused(self, command: GrantLease, reached: int) -> None:
        """It did not begin."""
        self._catch_up(reached)
        name = (command.workflow_id, command.activity_id)
        asked = self._asked.pop((*name, command.grant), None)
        if asked is None:
            return
        queue, kind, attempt, asked_ms = asked
        for of, _ in self._limits.limited(queue, kind, "rate"):
            self._debts[of].give_back()
        breaker, share = self._breakers.get(kind), self._shares.get(kind)
        if breaker is not None and breaker.probe == name:
            breaker.probe = None
        if share is not None and attempt > 1 and asked_ms in share.retries:
            share.retries.remove(asked_ms)


class Debt:
    """Starts that were taken and not yet paid off, at so many a second: never above a burst.

    A scheduler begins in debt: it does not know what the one before it has begun.
    """

    def __init__(self, rate: float, now_ms: int) -> None:
        self._rate = rate
        self._most = max(1.0, rate / 10)
        self._owed = self._most
        self._at_ms = now_ms

    def take(self, now_ms: int) -> float:
        """One begins; by how much that is too many."""
        paid = max(0, now_ms - self._at_ms) * self._rate / 1_000
        self._at_ms = max(self._at_ms, now_ms)
        self._owed = max(0.0, self._owed - paid) + 1
        return max(0.0, self._owed - self._most - 1e-6)

    def give_back(self) -> None:
        """It did not."""
        self._owed = max(0.0, self._owed - 1)


class Breaker:
    """What a circuit breaker lets through, from the failures that were seen."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self._most: int = rule["failures"]
        self._window_ms: int = rule.get("window_ms", 60_000)
        self._rest_ms: int = rule.get("open_ms", 30_000)
        self._wanted: int = rule.get("probes", 1)
        self._failures: list[int] = []
        self._rests = False
        self._until_ms = 0
        self._passed = 0
        self.probe: Name | None = None

    def begin(self, failures: list[int], now_ms: int) -> None:
        """Where failures were many lately, only probes go through at first."""
        since_ms = now_ms - self._window_ms - self._rest_ms
        self._rests = sum(at_ms > since_ms for at_ms in failures) >= self._most

    def took(self, name: Name, now_ms: int) -> str:
        """One begins; why it should not, or an empty text."""
        if not self._rests:
            return ""
        if now_ms < self._until_ms:
            return f"is open for another {self._until_ms - now_ms} ms"
        if self.probe is not None:
            return f"lets one probe through, which is {self.probe}"
        self.probe = name
        return ""

    def ended(self, name: Name, at_ms: int, *, failed: bool | None) -> None:
        """An attempt is over."""
        if not self._rests:
            if failed:
                self._failures = [*self._failures[1 - self._most :], at_ms][-self._most :]
                first_ms = self._failures[0]
                if len(self._failures) == self._most and at_ms - first_ms < self._window_ms:
                    self._trips(at_ms)
        elif name == self.probe:
            self.probe = None
            if failed:
                self._trips(at_ms)
            elif failed is False:
                self._passed += 1
                if self._passed == self._wanted:
                    self._rests, self._failures = False, []

    def _trips(self, at_ms: int) -> None:
        self._rests, self._passed = True, 0
        self._until_ms = at_ms + self._rest_ms


class Share:
    """Retries within a window, against first attempts within one that is a tenth longer: so exactly
    does the scheduler count.
    """

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self._ratio: float = rule.get("ratio", 0.2)
        self._least: int = rule.get("minimum", 3)
        self._window_ms: int = rule.get("window_ms", 10_000)
        self.firsts: list[int] = []
        self.retries: deque[int] = deque()

    def took(self, now_ms: int) -> str:
        """A retry begins; why it should not, or an empty text."""
        self.retries.append(now_ms)
        short_ms = now_ms - self._window_ms * 9 // 10
        count = sum(at_ms > short_ms for at_ms in self.retries)
        firsts = sum(at_ms > now_ms - self._window_ms for at_ms in self.firsts)
        allowed = max(self._least, int(self._ratio * firsts + 1e-9))
        return f"{count} were within its window, {allowed} may" if count > allowed else ""


def _has_failed(record: Any) -> bool | None:
    if isinstance(record, RetryScheduled | ActivityDeadLettered):
        return True
    if isinstance(record, ActivityTaskCompleted):
        return False
    is_late = isinstance(record, ActivityTaskFailed) and record.failure.type == TOO_LATE
    return True if is_late else None


_CLOSES = frozenset({ActivityTaskCompleted, ActivityTaskFailed, ActivityTaskCancelled})
_ENDS: frozenset[type[Any]] = _CLOSES | {RetryScheduled, ActivityDeadLettered, LeaseReleased}
