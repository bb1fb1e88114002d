"""What a workflow's code found out once: patches, side effects, and what it can be found by.

A replay has to know them before it comes to the line that asks, and whether what it works off was
worked off before: `Known` is that.
"""

from __future__ import annotations

import datetime
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import values
from perdure.core import commands, limits, records
from perdure.core.start import Attribute
from perdure.errors import InvalidArgument
from perdure.wire_checks import check_id, check_name, instant

if TYPE_CHECKING:
    from perdure.worker.workflow_side import WorkflowSide

PATCH, SIDE_EFFECT = "patch", "side_effect"
# An encoded event is an array of less than 16 (one byte), first the tag of its kind (another).
_TAGS = frozenset(
    kind.__struct_config__.tag
    for kind in (records.MarkerRecorded, records.SignalSent, records.WorkflowReset)
)


def notes_in(events: Iterable[msgspec.Raw]) -> list[records.Event]:
    """Those of these encoded events that `Known.learn` wants; the others are not decoded."""
    return [records.decode_event(raw) for raw in events if memoryview(raw)[1] in _TAGS]


class Known:
    """What a history says about its own replay.

    Events up to `cursor` were worked off by workflow tasks whose steps history has: what the code
    asks for there was recorded or is not new. Events within a span of `dropped` count no more.
    Behind a reset that no workflow task has read yet, only the first `recorded` commands are so.
    """

    __slots__ = (
        "cursor",
        "dropped",
        "is_check",
        "is_copy",
        "patches",
        "ran_ahead",
        "recorded",
        "side_effects",
        "signals_sent",
        "signals_told",
    )

    def __init__(self) -> None:
        self.cursor = 0
        self.recorded: int | None = None
        # A copy, which answers queries, may run ahead of history, but not past a side effect.
        self.is_copy = False
        self.ran_ahead = False  # It came to one, and was stopped there.
        # A check of new code: side effects that are not recorded have no value, and are not run.
        self.is_check = False
        self.patches: set[str] = set()
        self.side_effects: dict[int, records.Payload | None] = {}
        self.dropped: list[tuple[int, int]] = []
        # By event, in order: whether the code is told what became of it.
        self.signals_sent: dict[int, bool] = {}
        self.signals_told: list[bool] = []  # Of those that count.

    def learn(self, events: Iterable[records.Event], cursor: int) -> None:
        """Take in events that are about to be fed, of a workflow whose cursor is `cursor`."""
        self.cursor = max(self.cursor, cursor)
        markers: list[records.MarkerRecorded] = []
        sent_before, dropped_before = len(self.signals_sent), len(self.dropped)
        for event in events:
            if isinstance(event, records.MarkerRecorded):
                markers.append(event)
            elif isinstance(event, records.SignalSent):
                self.signals_sent[event.event_id] = event.answered
            elif isinstance(event, records.WorkflowReset):
                self.dropped.append((event.to_event + 1, event.event_id - 1))
                if cursor <= event.event_id:
                    # What was asked for behind it is asked for anew, also where the code asks at an
                    # event before it: one workflow task works off several.
                    self.cursor, self.recorded = event.to_event, event.commands
        if (len(self.signals_sent), len(self.dropped)) != (sent_before, dropped_before):
            sent = self.signals_sent.items()
            self.signals_told = [told for one, told in sent if not self.is_dropped(one)]
        for event in markers:
            if self.is_dropped(event.event_id):
                continue
            if event.marker == PATCH:
                self.patches.add(event.name)
            elif event.marker == SIDE_EFFECT:
                self.side_effects[int(event.name)] = event.result

    def is_answered(self, number: int) -> bool:
        """Whether the code is told what became of the signal that it sends as its `number`-th: not
        of one that an earlier version sent, whose code went on at once.
        """
        return number > len(self.signals_told) or self.signals_told[number - 1]

    def is_dropped(self, event_id: int) -> bool:
        """Whether a reset has taken this event back."""
        return any(first <= event_id <= last for first, last in self.dropped)


class Notes:
    """The notes of one workflow (perdure.workflow.runtime.Notes)."""

    def __init__(self, side: WorkflowSide) -> None:
        self._side = side
        self._patched: dict[str, bool] = {}
        self._side_effects = 0

    def patched(self, patch_id: str) -> bool:
        """Whether the code behind the patch applies: the first answer of a run is the only one."""
        check_id("patch_id", patch_id)
        answer = self._patched.get(patch_id)
        if answer is None:
            side = self._side
            if patch_id in side.known.patches:
                answer = True  # Its marker is somewhere in the history, wherever the line stands.
            else:
                answer = not side.is_replaying
                if answer:
                    side.issue_here(commands.RecordMarker(PATCH, patch_id, None))
            self._patched[patch_id] = answer
        return answer

    def side_effect(self, function: Callable[[], Any]) -> Any:
        """The recorded value of the n-th call, or a fresh one."""
        side = self._side
        self._side_effects += 1
        number = self._side_effects
        known = side.known.side_effects
        if number in known:
            payload = known[number]
        elif side.known.is_check:
            payload = None  # If it does not belong there, its marker does not fit.
        elif side.known.is_copy and not side.is_replaying:
            side.known.ran_ahead = True
            side.violate("the workflow is about to record a side effect: ask again in a moment")
        elif side.is_replaying:
            side.violate(
                f"the code does not agree with history: side_effect number {number}, which was "
                "not there when this was recorded"
            )
        else:
            payload = self._fresh(function)
        side.issue_here(commands.RecordMarker(SIDE_EFFECT, str(number), payload))
        return values.decode_result(function, payload)

    def _fresh(self, function: Callable[[], Any]) -> records.Payload | None:
        side = self._side
        if inspect.iscoroutinefunction(function):
            raise InvalidArgument("the function of side_effect must not be async")
        try:
            with side.outside():
                value = function()
        except Exception as problem:  # noqa: BLE001 - it would not come again in a replay
            side.violate(
                f"the function of side_effect raised {type(problem).__name__}: {problem}; what can "
                "fail belongs into an activity"
            )
        return values.encode_result(value)

    def set_search_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Issue the step that sets them."""
        pairs = checked_attributes(attributes)
        if pairs:
            known = self._side.attributes
            known.update({name: value for name, value in pairs if value is not None})
            for name in [name for name, value in pairs if value is None]:
                known.pop(name, None)
            self._side.issue_here(commands.SetSearchAttributes(pairs))


def checked_attributes(attributes: Mapping[str, Any]) -> tuple[tuple[str, Attribute | None], ...]:
    """Search attributes in the order of their names; InvalidArgument for what is none."""
    pairs: list[tuple[str, Attribute | None]] = []
    for name, value in attributes.items():
        check_name("search_attributes", name)
        if isinstance(value, datetime.datetime):
            value = instant(f"search_attributes: {name}", value)
        kept = value is None or isinstance(value, (str, bool, int, float))
        if not kept or (isinstance(value, float) and not math.isfinite(value)):
            raise InvalidArgument(
                f"search_attributes: {name} must be a text, a number, a boolean or a datetime, not "
                f"{value!r:.80}",
                field="search_attributes",
            )
        pairs.append((name, value))
    size = len(msgspec.msgpack.encode(pairs))
    if size > limits.ATTRIBUTES_BYTES_MAX:
        raise InvalidArgument(
            f"search_attributes take {size} bytes; the limit is {limits.ATTRIBUTES_BYTES_MAX} "
            "bytes",
            field="search_attributes",
        )
    return tuple(sorted(pairs, key=lambda pair: pair[0]))
