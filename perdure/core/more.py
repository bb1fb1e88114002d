"""What only some executions have, kept apart: a plain one carries None in its place."""

from __future__ import annotations

import msgspec

from perdure.core.start import Attribute, Parent


class More(msgspec.Struct, array_like=True):
    """Of one execution that is more than plain. Only perdure.core's folds change it."""

    parent: Parent | None = None
    first_started_ms: int = 0  # Of the first run, where this is a later one.
    timeout_at_ms: int = 0  # When it fails with WorkflowTimeout; 0: never.
    cancel_requested: bool = False
    cancel_reason: str = ""
    paused: bool = False
    paused_reason: str = ""
    paused_ms: int = 0
    # Open children: child_id -> what the parent's end means to it.
    children: dict[str, str] = {}
    # Updates that were not answered yet: update_id -> the event that brought it.
    updates: dict[str, int] = {}
    attributes: dict[str, Attribute] = {}
    pauses: tuple[tuple[str, bool], ...] = ()  # Requests that paused or resumed it, newest last.
    signals: int = 0  # How many ever came.
    # The newest signal, update or request to end; and how many signals and updates came that no
    # workflow task has read yet.
    last_message_id: int = 0
    unread: int = 0
    # After a reset, activities that were scheduled once and are not now: the generation and the
    # grant from which they go on when they are again.
    again: dict[str, tuple[int, int]] = {}
    # What its code makes of signals, as of SignalNotes; of those that were dropped the newest.
    takes: tuple[str, ...] = ()
    untaken: tuple[tuple[str, int], ...] = ()
    dropped: tuple[tuple[int, str, str], ...] = ()
