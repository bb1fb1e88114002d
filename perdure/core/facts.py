"""What a decision may know of the outside, and what it looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from perdure.core.bounds import DEFAULT, Bounds
from perdure.core.commands import AnyAnswer, Command, Refusal
from perdure.core.ids import Address
from perdure.core.limits import GRACE_MS
from perdure.core.records import Record
from perdure.core.rules import NO_RULES, Rules

Jitter = Callable[[float, float], float]


class Past(Protocol):
    """What the execution at hand has behind it: looked up, where a decision turns on it."""

    def closing_event(self, activity_id: str) -> Record | None:
        """The event that closed an activity."""
        ...

    def requested_event(self, request_id: str) -> Record | None:
        """The event that an operator's request made (by `scoped`)."""
        ...

    def history(self, after: int = 0) -> Sequence[Record]:
        """All its events behind event `after`, in order."""
        ...


class NoPast:
    """Of an execution that nothing is known of."""

    def closing_event(self, activity_id: str) -> Record | None:
        """None."""
        return None

    def requested_event(self, request_id: str) -> Record | None:
        """None."""
        return None

    def history(self, after: int = 0) -> Sequence[Record]:
        """Nothing."""
        return ()


class Standing(msgspec.Struct, frozen=True):
    """What holds for all that one history decides.

    `draw` gives a number from [0, 1), only asked where a retry is scheduled. `began_ms` is when
    this history took the store over, `recovery_grace_ms` what older leases get from then on at the
    most. `rules` are the operator's; `is_paused` says whether they hold activities of a
    (queue, type) back at present.
    """

    draw: Callable[[], float]
    jitter: Jitter | None = None
    dlq_after_attempts: int = 5
    began_ms: int = 0
    recovery_grace_ms: int = GRACE_MS
    bounds: Bounds = DEFAULT
    rules: Rules = NO_RULES
    is_paused: Callable[[str, str], bool] = lambda _, __: False


class Facts(msgspec.Struct, frozen=True):
    """All that `decide` may know besides state and command.

    `address` is where the command's token points (None: it has none, or a forged one), `stall_ms`
    the sum of all stalls until now.
    """

    now_ms: int
    standing: Standing
    address: Address | None = None
    stall_ms: int = 0
    history_bytes: int = 0  # Of all events of the execution at hand.
    past: Past = NoPast()


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
