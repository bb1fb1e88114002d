"""Cron expressions: five fields, as everybody writes them, taken apart and checked.

minute hour day-of-month month day-of-week. Each is `*`, a number, a range `a-b`, any of these with
a step `/n`, or a list of such. Months and days of the week have names (jan, mon); 0 and 7 are both
Sunday. Where both days are restricted, a day that fits either one fits, as in crontab(5).
"""

from __future__ import annotations

import datetime

import msgspec

from perdure.errors import InvalidArgument

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# (name, least, most, names) of each field, in order.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of week", 0, 7, DAYS),
)
_DAYS_IN_MONTH_MAX = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Cron(msgspec.Struct, frozen=True):
    """An expression, taken apart: the values of each field, sorted.

    `by_hours` where the hour is not fixed (`*`, `*/2`): such a time is meant by the clock's
    passing, not by its face, which matters on the days when clocks are changed.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    month_days: frozenset[int]
    months: frozenset[int]
    week_days: frozenset[int]  # 0 is Sunday.
    either_day: bool
    by_hours: bool

    def on(self, day: datetime.date) -> bool:
        """Whether there are times on that day."""
        if day.month not in self.months:
            return False
        of_month = day.day in self.month_days
        of_week = day.isoweekday() % 7 in self.week_days
        return of_month or of_week if self.either_day else of_month and of_week


def parse(text: str) -> Cron:
    """The expression `text`. InvalidArgument names the field and what is allowed in it.

    An expression of which no day can ever come (`0 0 30 2 *`) is refused too.
    """
    written = SHORT.get(text.strip().lower(), text)
    parts = written.split()
    if len(parts) != len(_FIELDS):
        names = ", ".join(name for name, *_ in _FIELDS)
        raise InvalidArgument(
            f"cron: {text!r:.200} has {len(parts)} fields, not 5 ({names}); or one of"
            f" {', '.join(SHORT)}",
            field="cron",
        )
    minutes, hours, month_days, months, week_days = (
        _values(part.lower(), *field, whole=text)
        for part, field in zip(parts, _FIELDS, strict=True)
    )
    is_any_day = (parts[2].startswith("*"), parts[4].startswith("*"))
    cron = Cron(
        text,
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(month_days),
        frozenset(months),
        frozenset(day % 7 for day in week_days),
        either_day=not any(is_any_day),
        by_hours=parts[1].startswith("*"),
    )
    if not cron.either_day and not any(
        day <= _DAYS_IN_MONTH_MAX[month - 1] for month in months for day in month_days
    ):
        raise InvalidArgument(f"cron: {text!r:.200} names a day that never comes", field="cron")
    return cron


def _values(
    part: str, name: str, least: int, most: int, names: tuple[str, ...], *, whole: str
) -> set[int]:
    """The values that one field allows."""
    found: set[int] = set()
    for item in part.split(","):
        span, slash, step_text = item.partition("/")
        step = 1
        if slash:
            step = _number(step_text, name, 1, most, (), whole)
        if span == "*":
            first, last = least, most
        else:
            first_text, dash, last_text = span.partition("-")
            first = _number(first_text, name, least, most, names, whole)
            last = _number(last_text, name, least, most, names, whole) if dash else first
            if slash and not dash:
                last = most  # `5/15`: from 5 on.
            if last < first:
                raise _wrong(f"the range {span!r} runs backwards", name, least, most, whole)
        found.update(range(first, last + 1, step))
    return found


def _number(text: str, name: str, least: int, most: int, names: tuple[str, ...], whole: str) -> int:
    if text in names:
        return names.index(text) + least
    # isdecimal alone also takes digits of other scripts.
    if not (text.isascii() and text.isdecimal()):
        raise _wrong(f"{text!r:.40} is no value", name, least, most, whole)
    value = int(text[:9])
    if not least <= value <= most:
        raise _wrong(f"{value} is out of range", name, least, most, whole)
    return value


def _wrong(what: str, name: str, least: int, most: int, whole: str) -> InvalidArgument:
    return InvalidArgument(
        f"cron: in {whole!r:.200}, {name}: {what}; allowed are {least} to {most}, *, a-b, /n and"
        " lists of these",
        field="cron",
    )
