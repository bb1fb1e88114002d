"""What the ledger reads: of its source, and of the batch at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core.batch import Source
from perdure.core.draft import Draft
from perdure.core.ids import execution_id, of_execution
from perdure.core.limits import RUNS_LOOKED_AT
from perdure.core.records import Record, decode_event

# What a value that is no text or no number brings about: an id, or what a row is made of.
_OF_VALUES = (msgspec.MsgspecError, ValueError, TypeError, OverflowError)


class Reading:
    """Reads of one source. `failed` is why the last one that failed did."""

    __slots__ = ("failed", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.failed: Exception | None = None

    def __call__(self, read: Callable[..., Any], *of: str | int) -> Any:
        """What the source has. Where it fails, the command at hand is not to blame; where a row of
        it makes no sense, what concerns that row is.
        """
        try:
            return read(*of)
        except _OF_VALUES:
            raise
        except Exception as problem:
            self.failed = problem
            raise


class StoredPast:
    """See perdure.core.facts.Past: of one execution, `draft` being the batch at hand."""

    __slots__ = ("_draft", "_read", "_workflow_id")

    def __init__(self, read: Reading, draft: Draft, workflow_id: str) -> None:
        self._read = read
        self._draft = draft
        self._workflow_id = workflow_id

    def closing_event(self, activity_id: str) -> Record | None:
        """The event that closed this activity."""
        read, workflow_id = self._read, self._workflow_id
        found = self._draft.closing.get((workflow_id, activity_id))
        return found or read(read.source.closing_event, workflow_id, activity_id)

    def requested_event(self, request_id: str) -> Record | None:
        """It may have been asked of an earlier run: a request that is repeated late."""
        read = self._read
        name, run = of_execution(self._workflow_id)
        for earlier in range(run, max(0, run - RUNS_LOOKED_AT), -1):
            one = execution_id(name, earlier)
            found: Record | None = self._draft.requested.get((one, request_id))
            found = found or read(read.source.requested_event, one, request_id)
            if found is not None:
                return found
        return None

    def history(self, after: int = 0) -> list[Record]:
        """Every event behind event `after`, those of the batch at hand included."""
        read, workflow_id = self._read, self._workflow_id
        events: list[Record] = read(read.source.history, workflow_id, after)
        fresh = [
            one.body
            for one in self._draft.events
            if one.workflow_id == workflow_id and one.event_id > after
        ]
        return events + [decode_event(body) for body in fresh]
