"""What a start may say besides type, queue and input."""

from __future__ import annotations

import msgspec

from perdure.core.record_base import Count, Payload

Attribute = str | int | float | bool
"""One search attribute's value."""


class Parent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whose child an execution is. `workflow_id` is of the parent's execution, run included.

    `close` says what the parent's end means to it: "terminate", "cancel" or "abandon". A schedule
    is a parent too, by its own kind of id.
    """

    workflow_id: str
    child_id: str
    close: str = "terminate"


class StartTerms(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How an execution begins, where it is no plain start. 0 and None mean none."""

    delay_ms: Count = 0  # Until its first workflow task.
    timeout_ms: Count = 0  # Of the whole chain of runs, from the first run's start.
    timeout_at_ms: Count = 0  # The instant that came of it, handed on from run to run.
    parent: Parent | None = None
    attributes: tuple[tuple[str, Attribute], ...] = ()
    # Of the first run, where this one continues it as new.
    first_started_ms: Count = 0
    # Signals that came to the run before and were not taken yet: (name, input).
    signals: tuple[tuple[str, Payload | None], ...] = ()
    # The signal that it was started with follows: its code begins with that.
    signalled: bool = False
    # Of an earlier run, and open when that continued as new: (child_id, parent_close).
    children: tuple[tuple[str, str], ...] = ()
