"""The options of an activity, as `activity.define` and the call of a workflow say them."""

from __future__ import annotations

import dataclasses
import math

from perdure.errors import InvalidArgument
from perdure.policy import DURATION_MS_MAX, RetryPolicy, timedelta_hint
from perdure.wire_checks import check_name

PRIORITY_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an activity is tried, as far as it is said: None leaves the default, 0 ms means none.

    InvalidArgument, naming the field, for negative numbers, NaN, infinities and booleans.
    """

    retry: RetryPolicy | None = None
    start_to_close_ms: int | None = None
    heartbeat_ms: int | None = None
    schedule_to_start_ms: int | None = None
    schedule_to_close_ms: int | None = None
    task_queue: str | None = None
    priority: int | None = None
    on_exhausted: str | None = None
    cancellation: str | None = None
    isolation: str | None = None
    grace_ms: int | None = None

    def __post_init__(self) -> None:
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise InvalidArgument("retry must be a RetryPolicy", field="retry")
        for field in _DURATIONS:
            value = getattr(self, field)
            if value is not None:
                object.__setattr__(self, field, _duration(field, value))
        if self.task_queue is not None:
            check_name("task_queue", self.task_queue)
        if self.priority is not None:
            _check_priority(self.priority)
        for field, allowed in _CHOICES.items():
            _check_choice(field, getattr(self, field), allowed)

    def under(self, over: Options) -> Options:
        """These options, and in their place, field by field, what `over` says."""
        said = {field: value for field in FIELDS if (value := getattr(over, field)) is not None}
        return dataclasses.replace(self, **said)


FIELDS = tuple(field.name for field in dataclasses.fields(Options))
_DURATIONS = tuple(field for field in FIELDS if field.endswith("_ms"))


def _duration(field: str, value: object) -> int:
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= DURATION_MS_MAX
        and value == int(value)
    ):
        return int(value)
    raise InvalidArgument(
        f"{field} must be whole milliseconds from 0 to {DURATION_MS_MAX}, not {value!r:.80}"
        f"{timedelta_hint(value)}",
        field=field,
    )


def _check_priority(value: object) -> None:
    if type(value) is not int or not -PRIORITY_MAX <= value <= PRIORITY_MAX:
        raise InvalidArgument(
            f"priority must be a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}, "
            f"not {value!r:.80}",
            field="priority",
        )


_CHOICES = {
    "on_exhausted": ("park", "fail"),
    "cancellation": ("try", "wait", "abandon"),
    "isolation": ("thread", "process"),
}


def _check_choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        *others, last = (f'"{choice}"' for choice in allowed)
        raise InvalidArgument(
            f"{field} must be {', '.join(others)} or {last}, not {value!r:.80}", field=field
        )
