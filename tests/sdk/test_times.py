"""When schedules are due: cron expressions, time zones, days on which clocks are changed."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.cron import parse
from perdure.errors import InvalidArgument
from perdure.times import Times

BERLIN = "Europe/Berlin"


def ms(text: str, where: str = "UTC") -> int:
    at = datetime.datetime.fromisoformat(text)
    return int(at.replace(tzinfo=at.tzinfo or ZoneInfo(where)).timestamp() * 1000)


def due(times: Times, start: str, count: int, where: str = "UTC") -> list[str]:
    found, at_ms = [], ms(start, where)
    for _ in range(count):
        following = times.after(at_ms)
        if following is None:
            break
        at_ms = following
        local = datetime.datetime.fromtimestamp(at_ms / 1000, ZoneInfo(where))
        found.append(local.isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/20 * * * *", ["2026-12-01T00:20+00:00", "2026-12-01T00:40+00:00"]),
        ("5/25 3 * * *", ["2026-12-01T03:05+00:00", "2026-12-01T03:30+00:00"]),
        ("0 9 * * mon-fri", ["2026-12-01T09:00+00:00", "2026-12-02T09:00+00:00"]),
        ("0 9 * * 7", ["2026-12-06T09:00+00:00", "2026-12-13T09:00+00:00"]),
        ("0 0 31 * *", ["2026-12-31T00:00+00:00", "2027-01-31T00:00+00:00"]),
        ("0 0 29 feb *", ["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
        # Either day fits where both are restricted.
        ("0 12 13 * fri", ["2026-12-04T12:00+00:00", "2026-12-11T12:00+00:00"]),
        ("@monthly", ["2027-01-01T00:00+00:00", "2027-02-01T00:00+00:00"]),
        ("1,2,58-59 0 1 1 *", ["2027-01-01T00:01+00:00", "2027-01-01T00:02+00:00"]),
    ],
)
def test_an_expression_is_due_when_crontab_says(text, expected):
    assert due(Times((text,)), "2026-12-01T00:00", 2) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("* * * *", "has 4 fields, not 5"),
        ("60 * * * *", "minute: 60 is out of range; allowed are 0 to 59"),
        ("* 24 * * *", "hour: 24 is out of range"),
        ("* * 0 * *", "day of month: 0 is out of range"),
        ("* * * 13 *", "month: 13 is out of range"),
        ("* * * * 8", "day of week: 8 is out of range"),
        ("* * * fri *", "month: 'fri' is no value"),
        ("5-1 * * * *", "minute: the range '5-1' runs backwards"),
        ("*/0 * * * *", "minute: 0 is out of range"),
        ("*/x * * * *", "minute: 'x' is no value"),
        ("-5 * * * *", "minute: '' is no value"),
        ("٣ * * * *", "is no value"),
        ("0 0 30 2 *", "a day that never comes"),
        ("0 0 31 4,6 *", "a day that never comes"),
        ("@often", "has 1 fields"),
    ],
)
def test_an_expression_that_makes_no_sense_is_refused_with_the_name_of_its_field(text, message):
    with pytest.raises(InvalidArgument, match=r"^cron: ") as caught:
        parse(text)
    assert message in caught.value.message


def test_a_time_of_day_that_is_skipped_comes_at_the_change_and_one_that_comes_twice_counts_once():
    times = Times(("30 2 * * *",), time_zone=BERLIN)
    assert due(times, "2026-03-28T03:00", 2, BERLIN) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert due(times, "2026-10-24T03:00", 2, BERLIN) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


def test_what_is_due_every_half_hour_goes_on_by_the_clocks_passing_when_it_is_changed():
    times = Times(("*/30 * * * *",), time_zone=BERLIN)
    assert due(times, "2026-03-29T01:00", 3, BERLIN) == [
        "2026-03-29T01:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-29T03:30+02:00",
    ]
    autumn = [times.after(ms("2026-10-25T02:00+02:00") + n * 1_800_000 - 1) for n in range(5)]
    assert [each - autumn[0] for each in autumn] == [n * 1_800_000 for n in range(5)]


def test_half_an_hour_of_daylight_saving_is_none_of_its_business():
    # Lord Howe Island moves its clocks by thirty minutes.
    times = Times(("15 2 * * *",), time_zone="Australia/Lord_Howe")
    found = due(times, "2026-10-03T03:00", 2, "Australia/Lord_Howe")
    assert found == ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"]


def test_an_interval_is_counted_from_the_epoch_whenever_one_asks():
    times = Times(every_ms=3_600_000, offset_ms=60_000)
    assert times.after(0) == 60_000
    assert times.after(60_000) == 3_660_000
    assert times.after(3_659_999) == 3_660_000


def test_times_begin_and_end_where_they_are_told_to():
    times = Times(every_ms=10_000, start_ms=25_000, end_ms=40_000)
    assert list(times.between(0, 100_000)) == [30_000, 40_000]
    assert times.after(40_000) is None
    assert times.newest(100_000, 0, 9) == [30_000, 40_000]


def test_several_expressions_are_one_schedule():
    times = Times(("0 9 * * *", "0 17 * * *", "0 9 * * *"))
    assert due(times, "2026-12-01T00:00", 3) == [
        "2026-12-01T09:00+00:00",
        "2026-12-01T17:00+00:00",
        "2026-12-02T09:00+00:00",
    ]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "cron"),
        ({"every_ms": 999}, "every_ms"),
        ({"every_ms": 1_000, "offset_ms": 1_000}, "offset_ms"),
        ({"crons": ("* * * * *",), "offset_ms": 5}, "offset_ms"),
        ({"every_ms": 1_000, "time_zone": "Mars/Base"}, "time_zone"),
        ({"every_ms": 1_000, "time_zone": "../etc/passwd"}, "time_zone"),
        ({"every_ms": 1_000, "start_ms": 9, "end_ms": 8}, "end_ms"),
    ],
)
def test_what_makes_no_schedule_is_refused_with_the_name_of_its_field(given, field):
    with pytest.raises(InvalidArgument, match=f"^{field}: "):
        Times(**given)


FIELD = st.sampled_from(["*", "*/7", "3", "1-5", "2,4"])


@settings(deadline=None, max_examples=60)
@given(
    minute=st.sampled_from(["*", "*/7", "0", "30", "5,59"]),
    hour=st.sampled_from(["*", "*/5", "2", "0-3"]),
    day=FIELD,
    weekday=FIELD,
    where=st.sampled_from(["UTC", BERLIN, "America/New_York", "Asia/Kathmandu"]),
    start=st.integers(1_700_000_000_000, 1_900_000_000_000),
)
def test_looking_back_finds_what_looking_ahead_found(minute, hour, day, weekday, where, start):
    times = Times((f"{minute} {hour} {day} * {weekday}",), time_zone=where)
    ahead = [start]
    for _ in range(4):
        following = times.after(ahead[-1])
        assert following is not None
        assert following > ahead[-1]
        ahead.append(following)
    assert times.newest(ahead[-1], start + 1, 100) == ahead[1:]
    assert list(times.between(ahead[1], ahead[-1])) == ahead[1:]
