"""When a schedule is due: cron expressions in a time zone, or every so many milliseconds.

Pure but for the rules of the time zones, which the machine has (or the package tzdata). Instants
are milliseconds since the Unix epoch.

On the days when clocks are changed: a time of day that is skipped comes at the instant of the
change, and one that comes twice counts the first time only; but an expression whose hour is not
fixed goes on by the clock's passing, so that `*/30 * * * *` is due every half hour that day too.
"""

from __future__ import annotations

import datetime
import zoneinfo
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

from perdure import cron
from perdure.errors import InvalidArgument

EVERY_MS_MIN = 1_000
INSTANT_MAX_MS = 253_402_300_799_000  # The end of the year 9999.
# Every date comes again within these: the leap day waits at most 8 years, and on one weekday 40.
_DAYS_MAX = 366 * 41
_DAY = datetime.timedelta(days=1)
_UTC = datetime.UTC


@lru_cache(maxsize=256)
def zone(name: str) -> zoneinfo.ZoneInfo:
    """The time zone of this name. InvalidArgument where there is none."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as cause:
        raise InvalidArgument(
            f"time_zone: {name!r:.100} is no time zone of this machine; give one like"
            " Europe/Berlin or UTC",
            field="time_zone",
        ) from cause


class Times:
    """The instants at which something is due.

    `crons` in the time zone `time_zone`, and with `every_ms` each instant that is `offset_ms` plus
    a multiple of it. `start_ms` and `end_ms` bound them, both included.
    """

    def __init__(
        self,
        crons: tuple[str, ...] = (),
        every_ms: int | None = None,
        offset_ms: int = 0,
        time_zone: str = "UTC",
        start_ms: int | None = None,
        end_ms: int | None = None,
    ) -> None:
        """InvalidArgument names what does not fit."""
        if not crons and every_ms is None:
            raise InvalidArgument("cron: give a cron expression or every_ms", field="cron")
        if every_ms is not None and not EVERY_MS_MIN <= every_ms <= INSTANT_MAX_MS:
            raise InvalidArgument(
                f"every_ms: {every_ms} is not from {EVERY_MS_MIN} to {INSTANT_MAX_MS}",
                field="every_ms",
            )
        if offset_ms and every_ms is None:
            raise InvalidArgument("offset_ms: only with every_ms", field="offset_ms")
        if not 0 <= offset_ms < (every_ms or 1):
            raise InvalidArgument(
                f"offset_ms: {offset_ms} must be less than every_ms", field="offset_ms"
            )
        if start_ms is not None and end_ms is not None and end_ms < start_ms:
            raise InvalidArgument("end_ms: must not be before start_ms", field="end_ms")
        self._crons = tuple(cron.parse(text) for text in crons)
        self._every_ms = every_ms
        self._offset_ms = offset_ms
        self._zone = zone(time_zone)
        self._start_ms = start_ms or 0
        self._end_ms = INSTANT_MAX_MS if end_ms is None else end_ms

    def after(self, at_ms: int) -> int | None:
        """The first instant after `at_ms`, or None where there is none any more."""
        at_ms = max(at_ms, self._start_ms - 1)
        found = [
            first for one in self._crons if (first := self._cron_after(one, at_ms)) is not None
        ]
        if self._every_ms is not None:
            every_ms = self._every_ms
            found.append(
                (at_ms - self._offset_ms) // every_ms * every_ms + every_ms + self._offset_ms
            )
        first = min(found, default=None)
        return None if first is None or first > self._end_ms else first

    def newest(self, at_ms: int, not_before_ms: int, count: int) -> list[int]:
        """The last `count` instants up to `at_ms`, none before `not_before_ms`, in order."""
        first_ms = max(not_before_ms, self._start_ms)
        last_ms = min(at_ms, self._end_ms)
        found: set[int] = set()
        for one in self._crons:
            found.update(self._cron_newest(one, last_ms, first_ms, count))
        if self._every_ms is not None:
            instant = (last_ms - self._offset_ms) // self._every_ms * self._every_ms
            instant += self._offset_ms
            for _ in range(count):
                if instant < first_ms:
                    break
                found.add(instant)
                instant -= self._every_ms
        return sorted(found)[-count:] if count else []

    def between(self, first_ms: int, last_ms: int) -> Iterator[int]:
        """All instants from `first_ms` to `last_ms`, both included."""
        instant = self.after(first_ms - 1)
        while instant is not None and instant <= last_ms:
            yield instant
            instant = self.after(instant)

    # --- cron -------------------------------------------------------------------
    def _cron_after(self, one: cron.Cron, at_ms: int) -> int | None:
        day = self._date(at_ms)
        for _ in range(_DAYS_MAX):
            if one.on(day):
                instants = _instants(one, day, self._zone)
                place = bisect_right(instants, at_ms)
                if place < len(instants):
                    return instants[place]
            if day.year == datetime.MAXYEAR and day.month == 12:
                return None
            day += _DAY
        return None

    def _cron_newest(
        self, one: cron.Cron, last_ms: int, first_ms: int, count: int
    ) -> Iterator[int]:
        day = self._date(last_ms)
        oldest = self._date(first_ms)
        while count > 0 and day >= oldest:
            if one.on(day):
                instants = _instants(one, day, self._zone)
                for instant in reversed(instants[: bisect_right(instants, last_ms)]):
                    if instant < first_ms or count == 0:
                        return
                    yield instant
                    count -= 1
            day -= _DAY

    def _date(self, at_ms: int) -> datetime.date:
        bounded_ms = min(max(at_ms, 0), INSTANT_MAX_MS - 86_400_000)
        return datetime.datetime.fromtimestamp(bounded_ms / 1000, self._zone).date()


@lru_cache(maxsize=512)
def _instants(one: cron.Cron, day: datetime.date, where: zoneinfo.ZoneInfo) -> tuple[int, ...]:
    """The instants of that day, in order, in milliseconds."""
    found: set[int] = set()
    for hour in one.hours:
        for minute in one.minutes:
            local = datetime.datetime.combine(day, datetime.time(hour, minute), where)
            first, second = _ms(local), _ms(local.replace(fold=1))
            if first == second:
                found.add(first)
            elif first < second:  # It comes twice.
                found.add(first)
                if one.by_hours:
                    found.add(second)
            elif not one.by_hours:  # It is skipped.
                found.add(_change_ms(local, where))
    return tuple(sorted(found))


def _ms(local: datetime.datetime) -> int:
    return int(local.timestamp()) * 1000


def _change_ms(skipped: datetime.datetime, where: zoneinfo.ZoneInfo) -> int:
    """The instant at which the clock jumps over `skipped`."""
    low, high = int(skipped.replace(fold=1).timestamp()), int(skipped.timestamp())
    before = datetime.datetime.fromtimestamp(low, _UTC).astimezone(where).utcoffset()
    # The offsets of both sides stand at the ends of this span: halve it until it is one second.
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.datetime.fromtimestamp(middle, _UTC).astimezone(where).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high * 1000
