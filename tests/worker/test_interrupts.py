"""What is raised into a thread that is stuck stops nobody else."""

from __future__ import annotations

import os
import subprocess
import sys

# In a process of its own: where the rule is broken it runs for ever, and no timeout can end it.
SCENE = """
import datetime
import os
import threading
from perdure import workflow
from perdure.testing import LocalEngine
from perdure.worker import interrupts
from perdure.worker.stage import Blocked

nothing, _ = os.pipe()
stuck = threading.Thread(target=os.read, args=(nothing, 1), daemon=True)  # In C, for ever.
stuck.start()
interrupts.raise_in(stuck.ident, Blocked)

@workflow.define
async def asks() -> int:
    return workflow.side_effect(lambda: datetime.datetime.now(tz=datetime.UTC).year)

engine = LocalEngine(workflows=[asks], activities=[])
engine.client.start_workflow(asks, workflow_id="w")
engine.run_workflow_tasks()
print(engine.client.result("w"), flush=True)
"""


def test_a_watched_workflow_runs_while_what_was_raised_into_a_stuck_thread_has_not_arrived():
    with subprocess.Popen(
        [sys.executable, "-c", SCENE],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as scene:
        try:
            out, _ = scene.communicate(timeout=30)
        finally:
            scene.kill()
    assert int(out) >= 2026
