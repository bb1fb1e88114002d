"""What the people of the drill `boundaries` do where a boundary lies in one of these: an update,
somebody else's result, a reset, a pause, a schedule, an order in an outbox; with the workflow
Sundry.

Whoever dies, all of it may be asked again from the beginning: everything bears a request id.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from chaos.apps.sundry import ASKED, CHILD, LAST, RUN_1_KEYS, token_path
from chaos.drills.boundaries_client import LOOK_AGAIN_S, LOOKS, NeverDone
from chaos.history_audit import key_of
from perdure.client import Client
from perdure.clock import wall_ms
from perdure.errors import FailedPrecondition, NotFound
from perdure.outbox import SqliteOutbox

OUTBOX = "orders.db"
CONFIGURATION = f"""
[outbox]
sqlite = ["{OUTBOX}"]
"""
EVERY_MS = 1_000
SOON_MS = 150
RESULT_MS = 2_000
BY_HAND = "by hand"
QUEUE = "aside"


class Errors(Exception):
    """Something is not as promised; the message says what."""


class Sundries(msgspec.Struct, frozen=True):
    """One round of it: `name` is in all of its ids. `due_ms`: when its schedule has its one run."""

    name: str
    ledger: Path
    outbox: Path
    due_ms: int

    @property
    def order(self) -> str:
        """The workflow that the outbox starts."""
        return f"{self.name}-order"


def sundries(name: str, ledger: Path, outbox: Path) -> Sundries:
    """A round that begins now."""
    return Sundries(name, ledger, outbox, wall_ms() + SOON_MS)


def run_sundries(client: Client, it: Sundries) -> list[str]:
    """Does all of it; the keys of the effects that there are now, each once. Raises Errors."""
    ledger = str(it.ledger)
    _order(it)
    _schedule(client, it)
    client.start_workflow("Sundry", workflow_id=it.name, request_id="start", ledger=ledger)
    client.pause_queue(QUEUE, it.name, request_id=f"{it.name}-pause")
    client.resume_queue(QUEUE, it.name, request_id=f"{it.name}-resume")
    answer = client.update_workflow(it.name, "add", 1, request_id="add", timeout_ms=RESULT_MS)
    _complete(client, it)
    result = client.result(it.name, timeout_ms=RESULT_MS)
    _take_back(client, it)
    if client.result(it.name, timeout_ms=RESULT_MS) != result:
        raise Errors(f"{it.name} was taken back, and has another result")
    keys = _keys(it)
    wanted = [f"receipt of {key}" for key in keys]
    wanted[RUN_1_KEYS.index(ASKED)] = BY_HAND
    if (answer, result) != (wanted[0], wanted):
        raise Errors(f"{it.name} answered {answer!r} and returned {result}, not {wanted}")
    _until(lambda: _is_started(client, it.order), f"{it.order} was never started")
    client.result(it.order, timeout_ms=RESULT_MS)
    return [*keys, key_of(it.order, "ring"), key_of(_run_of_schedule(client, it), "ring")]


def _keys(it: Sundries) -> list[str]:
    """In the order of its result."""
    return [
        *(key_of(it.name, activity_id) for activity_id in RUN_1_KEYS),
        key_of(f"{it.name}{CHILD}", "child"),
        key_of(it.name, LAST, 2),
    ]


def _until(look: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    for _ in range(LOOKS):
        if look():
            return
        pause.wait(LOOK_AGAIN_S)
    raise NeverDone(what)


def _is_started(client: Client, workflow_id: str) -> bool:
    try:
        client.describe_workflow(workflow_id)
    except NotFound:
        return False
    return True


def _order(it: Sundries) -> None:
    """The order and its start, in one transaction, once."""
    with (
        contextlib.closing(sqlite3.connect(it.outbox, timeout=10)) as db,
        contextlib.suppress(sqlite3.IntegrityError),
        db,
    ):
        db.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")
        db.execute("INSERT INTO orders VALUES (?)", (it.order,))
        SqliteOutbox(db).start_workflow("SundryBell", workflow_id=it.order, ledger=str(it.ledger))


def _schedule(client: Client, it: Sundries) -> None:
    """A schedule that is due once."""
    client.create_schedule(
        it.name,
        "SundryBell",
        every_ms=EVERY_MS,
        offset_ms=it.due_ms % EVERY_MS,
        start_ms=it.due_ms,
        end_ms=it.due_ms,
        request_id="create",
        ledger=str(it.ledger),
    )


def _run_of_schedule(client: Client, it: Sundries) -> str:
    found: list[str] = []

    def is_there() -> bool:
        runs = client.list_workflows(attributes={"schedule_id": it.name})
        found[:] = [run.workflow_id for run in runs]
        return bool(found)

    _until(is_there, f"the schedule {it.name} never ran")
    if len(found) > 1:
        raise Errors(f"the schedule {it.name} ran {len(found)} times, not once")
    client.result(found[0], timeout_ms=RESULT_MS)
    return found[0]


def _complete(client: Client, it: Sundries) -> None:
    """Somebody completes the attempt that was left to others, by its newest token."""
    path = Path(token_path(str(it.ledger), key_of(it.name, ASKED)))

    def is_complete() -> bool:
        with contextlib.suppress(FileNotFoundError, FailedPrecondition, NotFound):
            client.complete_activity_task(path.read_text().splitlines()[-1], BY_HAND)
            return True
        events = client.history(it.name, run=1)
        return any(
            event.kind == "ActivityTaskCompleted" and event.activity_id == ASKED for event in events
        )

    _until(is_complete, f"nobody could complete {it.name}")


def _take_back(client: Client, it: Sundries) -> None:
    """Its second run, to its beginning."""
    [first, *_] = client.history(it.name)
    client.reset_workflow(it.name, first.event_id, "anew", request_id="reset")
