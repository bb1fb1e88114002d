"""Between gateway and scheduler: why something does not run."""

from __future__ import annotations

from typing import Any

from perdure.core.tree_links import Message


class Explain(Message, frozen=True, tag=53):
    """Why does this execution, or an activity of it, not run? Answered by Explained `n`.

    Judged once the scheduler has reached `commit`.
    """

    n: int
    commit: int
    workflow_id: str
    activity_id: str | None


class Explained(Message, frozen=True, tag=54):
    """The answer as JSON; None: the execution is not open. `refused`: (code, message) instead."""

    n: int
    view: dict[str, Any] | None
    refused: tuple[str, str] | None = None
