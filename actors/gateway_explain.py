"""Why something does not run: what the gateway can say itself, and what it asks the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import errors, explaining, reads, wire_flow
from perdure.core.explain_links import Explain, Explained
from perdure.store.protocol import Reader


def question(
    reader: Reader, args: wire_flow.ExplainWorkflow, newest: int
) -> dict[str, Any] | Callable[[int], Explain]:
    """The answer about what has ended; else what to ask the scheduler, by its number."""
    found = reads.execution(reader, args.workflow_id)
    if not found.is_open:
        return explaining.closed(found, reads.closed(reader, found))
    commit = max(newest, reader.newest())
    return lambda n: Explain(n, commit, found.workflow_id, args.activity_id)


def answered(
    reader: Reader | None, args: wire_flow.ExplainWorkflow, message: Explained
) -> dict[str, Any]:
    """The `ok` that the scheduler's answer makes. Raises a PerdureError."""
    if message.refused is not None:
        raise errors.from_code(*message.refused)
    if message.view is not None:
        return message.view
    found = None if reader is None else reads.execution(reader, args.workflow_id)
    if reader is None or found is None or found.is_open:
        raise errors.Unavailable("the scheduler does not know it yet")
    return explaining.closed(found, reads.closed(reader, found))  # It has ended meanwhile.
