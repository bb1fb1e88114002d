"""What a decision may know of the outside, and what it looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure.core.bounds import DEFAULT, Bounds
from perdure.core.commands import AnyAnswer, Command, Refusal
from perdure.core.ids import Address
from perdure.core.limits import GRACE_MS
from perdure.core.records import Record
from perdure.core.rules import NO_RULES, Rules

Jitter = Callable[[float, float], float]


class Facts(msgspec.Struct, frozen=True):
    """All that `decide` may know besides state and command.

    `draw` gives a number from [0, 1), only asked where a retry is scheduled. `address` is where
    the command's token points (None: it has none, or a forged one). `began_ms` is when this
    history took the store over, `recovery_grace_ms` what older leases get from then on at the most,
    `stall_ms` the sum of all stalls until now. `closing_event` finds the event that closed an
    activity, `requested_event` the one that an operator's request made (by `scoped`), of the
    execution at hand. `rules` are the operator's; `is_paused` says whether they hold activities of
    a (queue, type) back at present.
    """

    now_ms: int
    draw: Callable[[], float]
    jitter: Jitter | None = None
    dlq_after_attempts: int = 5
    address: Address | None = None
    began_ms: int = 0
    recovery_grace_ms: int = GRACE_MS
    stall_ms: int = 0
    closing_event: Callable[[str], Record | None] = lambda _: None
    requested_event: Callable[[str], Record | None] = lambda _: None
    bounds: Bounds = DEFAULT
    rules: Rules = NO_RULES
    is_paused: Callable[[str, str], bool] = lambda _, __: False
    history_bytes: int = 0  # Of all events of the execution at hand.
    history: Callable[[], Sequence[Record]] = tuple  # All events of it, in order.


class FollowOn(msgspec.Struct, frozen=True, gc=False):
    """What a decision has others do: judged right behind it, in the same commit.

    Where it is refused, `otherwise` is judged, and the event that asked for it, (execution, number)
    `asked_in`, says why.
    """

    command: Command
    otherwise: Command | None = None
    asked_in: tuple[str, int] | None = None


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What follows from a command.

    A refusal may come with records: it can be what brings a passed deadline to light.
    """

    records: tuple[Record, ...]
    answer: AnyAnswer
    then: tuple[FollowOn, ...] = ()


def refuse(code: str, message: str, at_ms: int = 0) -> Decision:
    """No records, and why."""
    return Decision((), Refusal(code, message, at_ms))


def scoped(kind: type[Record], request_id: str) -> str:
    """Under what an operator's request is kept: the id counts within one operation.

    `kind` is of the record that the operation makes.
    """
    return f"{kind.__name__}/{request_id}"
