"""When a failed activity is tried again: RetryPolicy, its backoff and its jitter.

Pure arithmetic. Every duration is a whole number of milliseconds; chance comes in as an argument.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.errors import InvalidArgument
from perdure.failures import Failure, qualified_name

INITIAL_MS_DEFAULT = 1_000
BACKOFF_DEFAULT = 2.0
MAX_INTERVAL_MS_DEFAULT = 60_000
DLQ_AFTER_ATTEMPTS_DEFAULT = 5
ATTEMPTS_MAX = 2**31 - 1
DURATION_MS_MAX = 2**53 - 1  # The whole numbers that every client's floats can hold.
NON_RETRYABLE_ENTRIES_MAX = 256
NON_RETRYABLE_NAME_CHARS_MAX = 1_024

_PLAIN = (int, float, int, int, int)

_UNITS_MS = {
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1_000,
    "milliseconds": 1,
}


def ms(
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    milliseconds: float = 0,
) -> int:
    """The sum of the given lengths, in whole milliseconds: `ms(minutes=1, seconds=30)` is 90 000.

    A fraction counts as the decimal that was written (`seconds=1.005` is 1 005). InvalidArgument,
    naming the part, for what is negative, NaN, infinite, a boolean or no number; and for a sum
    that is no whole number of milliseconds, since rounding could turn a length into "none".
    """
    total = Fraction(0)
    parts = (days, hours, minutes, seconds, milliseconds)
    for (name, unit_ms), amount in zip(_UNITS_MS.items(), parts, strict=True):
        total += Fraction(repr(_number(name, amount))) * unit_ms
    if total.denominator != 1:
        raise InvalidArgument("ms: the sum is no whole number of milliseconds", field="ms")
    return _duration("ms", total.numerator)


def attempt_of(attempt: int, max_attempts: int) -> str:
    """How people are told which attempt it is: "attempt 2 of 5", or "attempt 2" without a limit."""
    return f"attempt {attempt}" + ("" if max_attempts >= ATTEMPTS_MAX else f" of {max_attempts}")


class RetryPolicy(msgspec.Struct, frozen=True, array_like=True):
    """How often and how fast a failed activity is tried again.

    Fields are kept as given; 0 (for `backoff`, anything below 1) is as if it was not given, and
    `resolved` puts the defaults in their place, for `max_attempts` the server's. `max_attempts`
    includes the first attempt; `RetryPolicy.UNLIMITED` is for ever. `non_retryable` takes exception
    classes, kept as "module.Class", or names. InvalidArgument, naming the field, for negative
    numbers, NaN, infinities, booleans and what is no whole number where one is asked for; also
    when a policy is decoded.
    """

    UNLIMITED: ClassVar[int] = ATTEMPTS_MAX

    initial_ms: int = INITIAL_MS_DEFAULT
    backoff: float = BACKOFF_DEFAULT
    max_interval_ms: int = MAX_INTERVAL_MS_DEFAULT
    max_attempts: int = 0
    non_retryable: tuple[str, ...] = ()
    min_interval_ms: int = 0

    if TYPE_CHECKING:
        # More is taken than is kept: whole floats for durations, classes for names.
        def __init__(
            self,
            initial_ms: float = INITIAL_MS_DEFAULT,
            backoff: float = BACKOFF_DEFAULT,
            max_interval_ms: float = MAX_INTERVAL_MS_DEFAULT,
            max_attempts: float = 0,
            non_retryable: Iterable[str | type[BaseException]] = (),
            min_interval_ms: float = 0,
        ) -> None: ...

    def __post_init__(self) -> None:
        # What the wire decoded, nearly always: this runs for every message that carries a policy.
        kinds = (
            type(self.initial_ms),
            type(self.backoff),
            type(self.max_interval_ms),
            type(self.max_attempts),
            type(self.min_interval_ms),
        )
        if (
            kinds == _PLAIN
            and self.non_retryable == ()
            and 0 <= self.initial_ms <= DURATION_MS_MAX
            and 0 <= self.backoff < math.inf
            and 0 <= self.max_interval_ms <= DURATION_MS_MAX
            and 0 <= self.max_attempts <= ATTEMPTS_MAX
            and 0 <= self.min_interval_ms <= DURATION_MS_MAX
        ):
            return
        checked: dict[str, Any] = {
            "initial_ms": _duration("initial_ms", self.initial_ms),
            "backoff": float(_number("backoff", self.backoff)),
            "max_interval_ms": _duration("max_interval_ms", self.max_interval_ms),
            "max_attempts": _attempts("max_attempts", self.max_attempts),
            "non_retryable": _names(self.non_retryable),
            "min_interval_ms": _duration("min_interval_ms", self.min_interval_ms),
        }
        for name, value in checked.items():
            msgspec.structs.force_setattr(self, name, value)

    def resolved(self, dlq_after_attempts: int = DLQ_AFTER_ATTEMPTS_DEFAULT) -> RetryPolicy:
        """The policy that is in force: the same with every unset field at its default.

        `dlq_after_attempts` (at least 1) is the server's answer to an unset `max_attempts`.
        """
        limit = _attempts("dlq_after_attempts", dlq_after_attempts)
        if limit == 0:
            raise InvalidArgument(
                "dlq_after_attempts must be at least 1: attempts include the first",
                field="dlq_after_attempts",
            )
        return RetryPolicy(
            self.initial_ms or INITIAL_MS_DEFAULT,
            self.backoff if self.backoff >= 1 else BACKOFF_DEFAULT,
            self.max_interval_ms or MAX_INTERVAL_MS_DEFAULT,
            self.max_attempts or limit,
            self.non_retryable,
            self.min_interval_ms,
        )


def backoff_ms(policy: RetryPolicy, n: int) -> float:
    """Milliseconds d_n to wait at most after failed attempt `n` (n >= 1), before jitter.

    min(initial_ms * backoff ** (n - 1), max_interval_ms), unset fields at their defaults. Any n
    is answered: what leaves the floats is above the cap.
    """
    if type(n) is not int or n < 1:
        raise InvalidArgument("n must be a whole number of at least 1", field="n")
    initial = policy.initial_ms or INITIAL_MS_DEFAULT
    growth = policy.backoff if policy.backoff >= 1 else BACKOFF_DEFAULT
    cap = float(policy.max_interval_ms or MAX_INTERVAL_MS_DEFAULT)
    if growth == 1:  # Also keeps a huge n out of the power, where it could only overflow.
        return min(float(initial), cap)
    try:
        return min(initial * growth ** (n - 1), cap)
    except OverflowError:
        return cap


def jitter_ms(delay_ms: float, u: float) -> float:
    """Full jitter: `u` (drawn from [0, 1)) times the delay, so never more than the backoff."""
    return u * delay_ms


def retry_delay_ms(
    policy: RetryPolicy,
    n: int,
    u: float,
    jitter: Callable[[float, float], float] | None = jitter_ms,
    retry_after_ms: int | None = None,
) -> int:
    """Whole milliseconds from the failure of attempt `n` until the next may start.

    The backoff after jitter, not below the policy's floor (itself at most the backoff), rounded
    down; and not below `retry_after_ms`, what the failure asked for. `jitter` None is full jitter.
    """
    bound = backoff_ms(policy, n)
    drawn = (jitter or jitter_ms)(bound, u)
    if not 0 <= drawn < math.inf:
        raise InvalidArgument(f"jitter gave {drawn!r}, which is no delay", field="jitter")
    delay = math.floor(max(min(policy.min_interval_ms, bound), drawn))
    return max(delay, retry_after_ms or 0)


def matches_non_retryable(policy: RetryPolicy, failure: Failure) -> bool:
    """Whether the policy lists this failure. The message is never looked at.

    An entry is compared with the type, with the names in the chain, and with their short names.
    A qualified one has a dot, which no short name has, so it is equal to whole names only.
    """
    if not policy.non_retryable:
        return False
    short = (name.rpartition(".")[2] for name in failure.type_chain)
    return not {failure.type, *failure.type_chain, *short}.isdisjoint(policy.non_retryable)


def _number(field: str, value: object) -> int | float:
    """A finite, non-negative number, as it is."""
    if type(value) is int and value >= 0:
        return value
    if type(value) is float and 0 <= value < math.inf:  # False for NaN.
        return value
    raise InvalidArgument(
        f"{field} must be a finite number of at least 0, not {_shown(value)}", field=field
    )


def timedelta_hint(value: object) -> str:
    """What an error message adds where a timedelta was given for milliseconds, else nothing."""
    if not isinstance(value, datetime.timedelta):
        return ""
    return f"; perdure.ms makes whole milliseconds: ms(seconds={value.total_seconds():g})"


def _duration(field: str, value: object) -> int:
    if isinstance(value, datetime.timedelta):
        raise InvalidArgument(
            f"{field} must be whole milliseconds, not a timedelta{timedelta_hint(value)}",
            field=field,
        )
    number = _number(field, value)
    if number > DURATION_MS_MAX or number != int(number):
        raise InvalidArgument(
            f"{field} must be whole milliseconds up to {DURATION_MS_MAX}, not {_shown(value)}",
            field=field,
        )
    return int(number)


def _attempts(field: str, value: object) -> int:
    try:
        number = _number(field, value)
    except InvalidArgument:
        number = -1
    if not 0 <= number <= ATTEMPTS_MAX or number != int(number):
        raise InvalidArgument(
            f"{field} must be a whole number from 0 to {ATTEMPTS_MAX}, not {_shown(value)}; "
            "attempts include the first, 0 is the server's default",
            field=field,
        )
    return int(number)


def _names(entries: object) -> tuple[str, ...]:
    field = "non_retryable"
    if not isinstance(entries, (tuple, list, set, frozenset)):
        raise InvalidArgument(
            f"{field} must be a tuple of classes or names, not {_shown(entries)}", field=field
        )
    if len(entries) > NON_RETRYABLE_ENTRIES_MAX:
        raise InvalidArgument(
            f"{field} holds more than {NON_RETRYABLE_ENTRIES_MAX} entries", field=field
        )
    names = [_name(field, entry) for entry in entries]
    # A set has no order of its own; the encoded policy must have one.
    return tuple(sorted(names) if isinstance(entries, (set, frozenset)) else names)


def _name(field: str, entry: object) -> str:
    if isinstance(entry, type) and issubclass(entry, BaseException):
        return qualified_name(entry)
    if isinstance(entry, str) and 0 < len(entry) <= NON_RETRYABLE_NAME_CHARS_MAX:
        return str(entry)
    raise InvalidArgument(
        f"{field} takes exception classes and names of 1 to {NON_RETRYABLE_NAME_CHARS_MAX} "
        f"characters, not {_shown(entry)}",
        field=field,
    )


def _shown(value: object) -> str:
    """A short text for an error message; a foreign `__repr__` is not trusted."""
    if value is None or isinstance(value, (bool, int, float, str)):
        try:
            text = repr(value)
        except ValueError:  # Python refuses to print an integer of thousands of digits.
            return "a huge number"
        return text if len(text) <= 80 else text[:77] + "..."
    return f"a {type(value).__name__}"
