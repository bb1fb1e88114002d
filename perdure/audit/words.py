"""How lengths, counts and multiples are written in messages."""

from __future__ import annotations

_YEAR_MS = 31_557_600_000.0


def length(value_ms: float | None) -> str:
    """A length for people, its digits kept: "250 ms", "9.3 s", "10 min", "for ever" for None."""
    if value_ms is None:
        return "for ever"
    if value_ms < 1_000:
        return f"{count(value_ms)} ms"
    if value_ms < 120_000:
        return f"{count(value_ms / 1_000)} s"
    if value_ms < 2 * 3_600_000:
        return f"{count(value_ms / 60_000)} min"
    if value_ms < 2 * 86_400_000:
        return f"{count(value_ms / 3_600_000)} h"
    if value_ms < 2 * _YEAR_MS:
        return f"{count(value_ms / 86_400_000)} days"
    return f"{value_ms / _YEAR_MS:.3g} years"


def count(value: float) -> str:
    """A number with up to three decimals, no trailing zeros, thousands apart."""
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    text = f"{value:,.3f}" if abs(value) < 1_000 else f"{value:,.1f}"
    return text.rstrip("0").rstrip(".").replace(",", " ")


def whole(value: int) -> str:
    """A whole number of any size: thousands apart, and in powers of ten where it is astronomical.

    A float could not hold it, and Python refuses to print one of thousands of digits.
    """
    if value < 10**15:
        return f"{value:,}".replace(",", " ")
    digits = int(value.bit_length() * 0.30103)
    return f"about 10^{digits}"


def times(number: int, noun: str, plural: str = "") -> str:
    """ "1 call", "36 calls"."""
    return f"{whole(number)} {noun if number == 1 else plural or noun + 's'}"


def listed(items: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
