"""How an execution ended, as whoever waits for it is told."""

from __future__ import annotations

from perdure.core.commands import Closed
from perdure.core.decide_interactions import outcome
from perdure.core.records import Record
from perdure.core.state import Status


def closed(status: Status, record: Record | None) -> Closed:
    """The end that `record` closed it with; `status` counts where that record is not there."""
    ended, result, failure = outcome(record)
    if ended is Status.RUNNING:
        return Closed(status.value, None, None)
    return Closed(ended.value, result, failure)
