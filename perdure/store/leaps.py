"""What the store's clock has leapt over: time that passed, if it did, while nobody could tell.

Between two boots of a machine only its wall clock says how long it was off, and a wall clock may be
years ahead for one start. What it says beyond `LEAP_MS` counts for no retention, so that such a
start takes nothing away. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.store.protocol import StoreError

# So much of the time between two boots counts; a machine that was off for longer keeps for longer.
LEAP_MS = 86_400_000
LEAPS_KEPT = 100


class Leap(msgspec.Struct, frozen=True, array_like=True):
    """At the epoch that began at `at_ms` the clock had gone on by `ms` that do not count."""

    at_ms: int
    ms: int


Leaps = tuple[Leap, ...]
_decoder = msgspec.msgpack.Decoder(Leaps)


def grown(leaps: Leaps, last_ms: int, now_ms: int, *, is_same_boot: bool) -> Leaps:
    """The leaps with that of an epoch which begins at `now_ms`, if it is one.

    `last_ms` is the last commit's instant, 0 where there is none. Within one boot the clock is the
    kernel's, and does not leap.
    """
    gap_ms = now_ms - last_ms
    if is_same_boot or not last_ms or gap_ms <= LEAP_MS:
        return leaps
    if len(leaps) == LEAPS_KEPT:
        # The oldest two become one: what lies between them is kept for longer than it need be.
        first, second = leaps[:2]
        leaps = (Leap(second.at_ms, first.ms + second.ms), *leaps[2:])
    return (*leaps, Leap(now_ms, gap_ms - LEAP_MS))


def due_ms(leaps: Sequence[Leap], from_ms: int, keep_ms: int) -> int:
    """When what is of `from_ms` has been kept for `keep_ms` of the time that counts."""
    found_ms = from_ms + keep_ms
    for leap in leaps:
        if leap.at_ms > from_ms and found_ms > leap.at_ms - leap.ms:
            found_ms += leap.ms
    return found_ms


def encode(leaps: Leaps) -> bytes:
    """As a store keeps them."""
    return msgspec.msgpack.encode(leaps)


def decode(raw: bytes | None) -> Leaps:
    """What `encode` made; none of None. StoreError where it makes no sense."""
    if raw is None:
        return ()
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, TypeError) as cause:
        raise StoreError(f"the store's row of leaps can't be read: {cause}") from cause
