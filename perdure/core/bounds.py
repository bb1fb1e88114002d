"""How much one workflow may have of anything: operators can set each of these, under `[limits]`."""

from __future__ import annotations

import msgspec

MIB = 1024 * 1024


class Bounds(msgspec.Struct, frozen=True):
    """Counts of one run, but for the bytes. What goes beyond is refused with the bound's name."""

    pending_activities: int = 10_000
    pending_children: int = 1_000
    pending_signals: int = 10_000  # And updates, that no workflow task has read yet.
    open_updates: int = 100
    search_attributes: int = 20
    # From here on a workflow is told to continue as new (not to be set: a replay must be told the
    # same as the first run), …
    history_events_suggest: int = 4_096
    # … its operator is warned, …
    history_events_warn: int = 10_000
    # … and it is parked unless it ends.
    history_events_max: int = 50_000
    history_bytes_max: int = 50 * MIB


DEFAULT = Bounds()
