"""What the gateway asks others for clients: a worker about a workflow, the dlq for a list."""

from __future__ import annotations

from typing import Any

from perdure.core.record_base import Payload
from perdure.core.tree_links import Message


class Query(Message, frozen=True, tag=46):
    """Gateway to worker: ask the code of this execution. Answered by QueryAnswer `n`.

    `consumed`: how far its workflow tasks have come; `last_event_id`: of all that there is.
    """

    n: int
    workflow_id: str
    workflow_type: str
    name: str
    input: Payload | None
    consumed: int
    last_event_id: int


class QueryAnswer(Message, frozen=True, tag=47):
    """Worker to gateway: what the handler returned, or (`code` of perdure.errors) why not."""

    n: int
    result: Payload | None
    code: str = ""
    message: str = ""


class RestartWorker(Message, frozen=True, tag=49):
    """Gateway to a worker that said it `restarts`: finish, hand back the rest, and begin anew with
    the code as it is by then. It comes as another session; or says in a hello why it does not.
    """


class ListDead(Message, frozen=True, tag=60):
    """Dead letters that match, oldest first, from the index.

    Judged once the projection has reached `commit`.
    """

    n: int
    commit: int
    workflow_id: str | None
    activity_id: str | None
    activity_type: str | None
    failure_type: str | None
    older_than_ms: int | None
    limit: int
    page: str | None


class DeadListed(Message, frozen=True, tag=61):
    """`entries`: JSON-able maps as `wf dlq list --json`; `whole`: with failures, input reference
    and details.
    """

    n: int
    entries: tuple[dict[str, Any], ...]
    next_page: str | None
