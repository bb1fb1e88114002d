"""What an operator rules about queues and activity types: limits, and options that win over those
of the code. Pure data; an operator writes it in perdure.toml.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from perdure.core.limits import INTEGER_MAX
from perdure.core.records import ActivityOptions
from perdure.policy import RetryPolicy

Rate = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Many = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
Length = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
Share = Annotated[float, msgspec.Meta(ge=0, le=100)]
Level = Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]

_LENGTHS = ("start_to_close_ms", "heartbeat_ms", "schedule_to_start_ms", "schedule_to_close_ms")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the configuration."""


class RetryRule(Rule, frozen=True, kw_only=True):
    """Fields of a retry policy that win over the code's; None leaves the code's."""

    initial_ms: int | None = None
    backoff: float | None = None
    max_interval_ms: int | None = None
    max_attempts: int | None = None
    non_retryable: tuple[str, ...] | None = None
    min_interval_ms: int | None = None

    def __post_init__(self) -> None:
        self.over(RetryPolicy())  # What makes no policy is refused where it is written.

    def over(self, policy: RetryPolicy) -> RetryPolicy:
        """`policy` with what is ruled in the place of its own."""
        return msgspec.structs.replace(policy, **_given(self, self.__struct_fields__))


class RetryBudget(Rule, frozen=True, kw_only=True):
    """Of the starts within `window_ms`, retries may be `ratio` times the first attempts, and
    `minimum` in any case.
    """

    ratio: Share = 0.2
    minimum: Many = 3
    window_ms: Many = 10_000


class BreakerRule(Rule, frozen=True, kw_only=True):
    """After `failures` within `window_ms` the type rests for `open_ms`; then attempts go through
    one at a time, until `probes` of them have succeeded.
    """

    failures: Many
    window_ms: Many = 60_000
    open_ms: Many = 30_000
    probes: Many = 1


class QueueRule(Rule, frozen=True, kw_only=True):
    """`[queues."NAME"]`: activities started per second, running at a time, and which queue's tasks
    go first (the higher).
    """

    rate: Rate | None = None
    concurrency: Many | None = None
    priority: Level = 0


class ActivityRule(Rule, frozen=True, kw_only=True):
    """`[activities."TYPE"]`: limits of one activity type, and options that win over the code's."""

    rate: Rate | None = None
    concurrency: Many | None = None
    retry_budget: RetryBudget | None = None
    breaker: BreakerRule | None = None
    retry: RetryRule | None = None
    start_to_close_ms: Length | None = None
    heartbeat_ms: Length | None = None
    schedule_to_start_ms: Length | None = None
    schedule_to_close_ms: Length | None = None

    def over(self, options: ActivityOptions) -> ActivityOptions:
        """`options` with what is ruled in the place of their own."""
        changes = _given(self, _LENGTHS)
        if self.retry is not None:
            changes["retry"] = self.retry.over(options.retry)
        return msgspec.structs.replace(options, **changes) if changes else options


class Rules(Rule, frozen=True, kw_only=True):
    """All of them, by the name of the queue, and of the activity type."""

    queues: dict[str, QueueRule] = {}
    activities: dict[str, ActivityRule] = {}

    def __bool__(self) -> bool:
        return bool(self.queues or self.activities)

    def over(self, activity_type: str, options: ActivityOptions) -> ActivityOptions:
        """How an activity of this type is tried, where its workflow asks for `options`."""
        rule = self.activities.get(activity_type)
        return options if rule is None else rule.over(options)

    def limits_starts(self, queue: str, activity_type: str) -> bool:
        """Whether attempts may only begin when the scheduler says so, since it counts them."""
        of_queue, of_type = self.queues.get(queue), self.activities.get(activity_type)
        return (
            of_queue is not None and (of_queue.rate is not None or of_queue.concurrency is not None)
        ) or (
            of_type is not None
            and (
                of_type.rate is not None
                or of_type.concurrency is not None
                or of_type.breaker is not None
            )
        )


NO_RULES = Rules()


def _given(rule: Rule, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(rule, name)) is not None}
