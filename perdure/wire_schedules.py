"""What the operations about schedules are asked with, one struct each: see perdure.wire_args."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from perdure.errors import InvalidArgument
from perdure.times import Times
from perdure.wire_args import ABSENT, Args, Count, Limit
from perdure.wire_checks import check_id, check_length, check_name, check_string, check_text

Policy = Literal["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"]
CatchUp = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
Upcoming = Annotated[int, msgspec.Meta(ge=0, le=100)]

SCHEDULE_ID_BYTES_MAX = 160
NOTE_CHARS_MAX = 1_000
CRONS_MAX = 20


def check_schedule_id(value: str) -> None:
    """InvalidArgument unless it can be one: what it starts has a longer id."""
    check_id("schedule_id", value)
    if len(value.encode("utf-8")) > SCHEDULE_ID_BYTES_MAX:
        raise InvalidArgument(
            f"schedule_id: must have 1 to {SCHEDULE_ID_BYTES_MAX} bytes: the ids of what it starts"
            " are longer",
            field="schedule_id",
        )


class _Put(Args, frozen=True):
    """What a schedule says."""

    schedule_id: str
    type: str
    input: msgspec.Raw = ABSENT
    task_queue: str = "default"
    cron: str | tuple[str, ...] = ()
    every_ms: Count | None = None
    offset_ms: Count = 0
    time_zone: str = "UTC"
    start_ms: Count | None = None
    end_ms: Count | None = None
    jitter_ms: Count = 0
    overlap: Policy = "skip"
    catch_up: CatchUp = 1
    pause_on_failure: bool = False
    timeout_ms: Count = 0
    note: str = ""
    paused: bool = False
    request_id: str | None = None

    def __post_init__(self) -> None:
        check_schedule_id(self.schedule_id)
        check_name("type", self.type)
        check_name("task_queue", self.task_queue)
        if self.request_id is not None:
            check_id("request_id", self.request_id)
        for field in ("every_ms", "start_ms", "end_ms"):
            check_length(field, getattr(self, field))
        for field in ("offset_ms", "jitter_ms", "timeout_ms"):
            check_length(field, getattr(self, field), optional=False)
        check_string("time_zone", self.time_zone)
        check_string("note", self.note)
        if len(self.crons) > CRONS_MAX:
            raise InvalidArgument(f"cron: at most {CRONS_MAX} expressions", field="cron")
        if len(self.note) > NOTE_CHARS_MAX:
            raise InvalidArgument(f"note: at most {NOTE_CHARS_MAX} characters", field="note")
        self.times()

    @property
    def crons(self) -> tuple[str, ...]:
        """The expressions: one or several may be sent."""
        return (self.cron,) if isinstance(self.cron, str) else self.cron

    def times(self) -> Times:
        """When it is due. InvalidArgument names what does not fit."""
        return Times(
            self.crons, self.every_ms, self.offset_ms, self.time_zone, self.start_ms, self.end_ms
        )


class CreateSchedule(_Put, frozen=True):
    """Have this schedule. Its id must be free."""


class UpdateSchedule(_Put, frozen=True):
    """Have the schedule of this id say this instead, all of it. Its runs go on."""


class _OfSchedule(Args, frozen=True):
    """An operation on one schedule."""

    schedule_id: str

    def __post_init__(self) -> None:
        check_schedule_id(self.schedule_id)
        request_id: str | None = getattr(self, "request_id", None)
        if request_id is not None:
            check_id("request_id", request_id)
        check_text("reason", getattr(self, "reason", None) or None)


class DescribeSchedule(_OfSchedule, frozen=True):
    """The schedule as it stands, with when its next `upcoming` runs are due."""

    upcoming: Upcoming = 10


class ListSchedules(Args, frozen=True):
    """All schedules, by id."""

    limit: Limit | None = None
    page: str | None = None

    def __post_init__(self) -> None:
        check_text("page", self.page)


class PauseSchedule(_OfSchedule, frozen=True):
    """Start nothing until it is resumed."""

    reason: str = ""
    request_id: str | None = None


class ResumeSchedule(_OfSchedule, frozen=True):
    """Go on with the next run that is due; what was due meanwhile is not made up for."""

    reason: str = ""
    request_id: str | None = None


class TriggerSchedule(_OfSchedule, frozen=True):
    """One run now."""

    overlap: Policy | None = None
    request_id: str | None = None


class BackfillSchedule(_OfSchedule, frozen=True):
    """The runs that were due from `first_ms` to `last_ms`, both included."""

    first_ms: Count
    last_ms: Count
    overlap: Policy | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_length("first_ms", self.first_ms, optional=False)
        check_length("last_ms", self.last_ms, optional=False)
        if self.last_ms < self.first_ms:
            raise InvalidArgument("last_ms: must not be before first_ms", field="last_ms")


class DeleteSchedule(_OfSchedule, frozen=True):
    """The schedule ends; what it started goes on."""

    request_id: str | None = None


LOOKS: tuple[type[Args], ...] = (DescribeSchedule, ListSchedules)
OPERATIONS: dict[str, type[Args]] = {
    kind.__name__: kind
    for kind in (
        CreateSchedule,
        UpdateSchedule,
        DescribeSchedule,
        ListSchedules,
        PauseSchedule,
        ResumeSchedule,
        TriggerSchedule,
        BackfillSchedule,
        DeleteSchedule,
    )
}
