"""A worker on its own begins anew with new code: when its node says so, and if the code loads.

What runs is finished as at any orderly end; then the process executes itself again, with the words
that it was started with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from perdure.worker.session import Worker
from perdure.worker.sockets import Inbox
from perdure.worker.stopping import Stopping

CHECK_S = 60
_CHECK = (
    "import sys\n"
    "from perdure.worker.main import check_apps\n"
    "found = check_apps(sys.argv[2:], sys.argv[1])\n"
    "sys.exit(0 if found.ok else found.message)"
)


def trouble_with(apps: Sequence[str], cwd: str) -> str:
    """Why these can't be loaded as they are now, found out in a process of its own; empty: they
    can.
    """
    command = [sys.executable, "-c", _CHECK, cwd, *apps]
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"the new code can't be tried: {problem}"
    if not done.returncode:
        return ""
    return " ".join(done.stderr.split())[-1_000:] or f"exit code {done.returncode}"


class Restarting:
    """What a worker does about it. `check` says what is wrong with the new code, if anything."""

    def __init__(
        self, worker: Worker, inbox: Inbox, check: Callable[[], str], grace_ms: int
    ) -> None:
        self._worker = worker
        self._inbox = inbox
        self._check = check
        self._grace_ms = grace_ms
        self._is_checking = False
        self.is_wanted = False  # Once it is ended.
        worker.on_restart = self.asked

    def asked(self) -> None:
        """The node says so; again and again, until it sees what came of it."""
        if self._is_checking or self.is_wanted:
            return
        self._is_checking = True
        threading.Thread(target=self._look, name="restarting", daemon=True).start()

    def _look(self) -> None:
        self._inbox.post(self._checked, self._check())

    def _checked(self, trouble: str, now_ms: int) -> None:
        self._is_checking = False
        if trouble:
            self._worker.stays(trouble, now_ms)
        else:
            self.is_wanted = True
            self._worker.stop(self._grace_ms, now_ms)


def execute_again() -> None:
    """This process becomes what it was started as, and hears then what it is told now. Does not
    return.
    """
    Stopping.hold()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
