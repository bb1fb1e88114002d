"""Activities for children of a worker: what may happen in there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from pathlib import Path

from perdure import activity


@activity.define
def pid() -> int:
    return os.getpid()


@activity.define
async def pid_async() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@activity.define
def who() -> list:
    activity.record_heartbeat("first")
    activity.record_heartbeat("second")
    return [
        activity.idempotency_key(),
        activity.attempt(),
        activity.fence(),
        activity.task_token(),
        activity.heartbeat_details(),
    ]


@activity.define
def listens() -> str:
    activity.record_heartbeat(os.getpid())
    try:
        threading.Event().wait()
    finally:
        activity.record_heartbeat("tidied") if not activity.cancelled() else None
    return "never"


@activity.define
async def listens_async() -> None:
    activity.record_heartbeat(os.getpid())
    await asyncio.Event().wait()


@activity.define
def swallows(kind: str) -> None:
    """Goes on whatever is raised in it."""
    kinds = {"Exception": Exception, "BaseException": BaseException}
    activity.record_heartbeat(os.getpid())
    while True:
        try:
            threading.Event().wait(0.05)
        except kinds[kind]:
            pass


@activity.define
def echoes(value: str, times: int) -> str:
    return value * times


@activity.define
def leaves_a_process() -> int:
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid


@activity.define
def leaves_a_thread() -> int:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return os.getpid()


@activity.define
def ends(how: str) -> None:
    if how == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(int(how))


class Odd(Exception):
    """Can't be pickled, nor rebuilt, nor shown."""

    def __init__(self, *, must: int) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise ValueError


@activity.define
def raises() -> None:
    raise Odd(must=1)


@activity.define
def later() -> None:
    raise activity.CompleteLater


@activity.define
def birth() -> str:
    """How the process above our guardian was started."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    above = status.rpartition(")")[2].split()[1]
    threading.Thread(target=threading.Event().wait, daemon=True).start()  # Ours runs no other.
    return Path(f"/proc/{above}/cmdline").read_text()


@activity.define
def beats_a_lot() -> None:
    for i in range(20_000):
        activity.record_heartbeat(i)
    raise KeyError("over")


ALL = (
    pid,
    pid_async,
    who,
    listens,
    listens_async,
    swallows,
    echoes,
    leaves_a_process,
    leaves_a_thread,
    ends,
    raises,
    later,
    birth,
    beats_a_lot,
)
