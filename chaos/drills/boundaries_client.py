"""What the client of the drill `boundaries` does. It may be killed anywhere and begin again:
everything that it asks for bears a request id.

`python -m chaos.drills.boundaries_client DATA LEDGER ID…` is the client that dies.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from perdure.client import Client
from perdure.crash_points import act_as
from perdure.errors import DeadlineExceeded

CALL_MS = 10_000
RESULT_MS = 2_000
LOOK_AGAIN_S = 0.01
LOOKS = 2_000


class NeverDone(Exception):
    """An errand neither came to its dead letter nor to its end."""


def run_errands(
    client: Client, ledger: Path, ids: Sequence[str], filler_bytes: int = 0
) -> dict[str, list[str]]:
    """Starts the errands, redrives what they park, and waits for their results, by workflow id."""
    for workflow_id in ids:
        client.start_workflow(
            "Errand",
            workflow_id=workflow_id,
            request_id="start",
            ledger=str(ledger),
            filler="x" * filler_bytes,
        )
    for workflow_id in ids:
        _redrive(client, workflow_id)
    return {workflow_id: client.result(workflow_id, timeout_ms=RESULT_MS) for workflow_id in ids}


def _redrive(client: Client, workflow_id: str) -> None:
    """Redrives the errand's dead letter, as soon as there is one; nothing where it has left."""
    pause = threading.Event()
    for _ in range(LOOKS):
        if client.list_dead_letters(workflow_id=workflow_id).dead_letters:
            client.redrive_dead_letter(workflow_id, "doomed", request_id="redrive")
            return
        try:
            client.result(workflow_id, timeout_ms=1)
        except DeadlineExceeded:
            pause.wait(LOOK_AGAIN_S)
        else:
            return
    raise NeverDone(workflow_id)


def main(arguments: Sequence[str]) -> None:
    """The client as a process of its own."""
    act_as("client")
    data, ledger, *ids = arguments
    with Client(data_dir=data, timeout_ms=CALL_MS) as client:
        run_errands(client, Path(ledger), ids)


if __name__ == "__main__":
    main(sys.argv[1:])
