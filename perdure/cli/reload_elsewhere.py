"""Workers that were started with `perdure worker` begin anew with new code, one after the other."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from perdure import errors
from perdure.cli import output
from perdure.cli.options import ask

if TYPE_CHECKING:
    from perdure.client import Client

LOOK_S = 0.2
TELL_AGAIN_S = 10.0


def restart_all(client: Client, step_s: float, *, quiet: bool) -> tuple[list[str], dict[str, str]]:
    """Which have begun anew, by their new names, and which have not, with why. Stops at the first
    whose new code can't be loaded, or which does not come back within `step_s`.
    """
    done: list[str] = []
    kept: dict[str, str] = {}
    elsewhere = [one for one in _workers(client) if not one["local"]]
    elsewhere.sort(key=lambda one: str(one["worker_id"]))
    stopped = ""
    for one in elsewhere:
        name = one["worker_id"]
        if stopped:
            kept[name] = f"not touched: {stopped} did not begin anew"
            continue
        if not one.get("restarts"):
            kept[name] = "it does not restart itself"
            continue
        if not quiet:
            output.say(f"{name}: is told to finish")
        try:
            again = _restart(client, name, step_s)
        except errors.PerdureError as problem:
            kept[name], stopped = problem.message, name
            continue
        if not quiet:
            build = f", build {again['build']}" if again["build"] else ""
            output.say(f"{again['worker_id']}: serves (pid {again['pid']}{build})")
        done.append(again["worker_id"])
    return done, kept


def _restart(client: Client, name: str, step_s: float) -> dict[str, Any]:
    """The worker that it has become. FailedPrecondition with why it stays as it is; Unavailable
    where it does not come back within `step_s`.
    """
    from perdure import wire

    stem = name.rpartition("-")[0]
    began = tell_at = time.monotonic()
    while time.monotonic() - began < step_s:
        if time.monotonic() >= tell_at:
            # Told twice it does it once; where it is not there it is on its way.
            with contextlib.suppress(errors.NotFound):
                ask(client, wire.RestartWorker(name))
            tell_at = time.monotonic() + TELL_AGAIN_S
        time.sleep(LOOK_S)
        there = {one["worker_id"]: one for one in _workers(client)}
        before = there.pop(name, None)
        if before is not None and before["trouble"]:
            raise errors.FailedPrecondition(before["trouble"])
        for other, one in there.items():
            if before is None and not one["local"] and other.rpartition("-")[0] == stem:
                return one
    raise errors.Unavailable(f"it does not serve after {step_s:.0f} s: see its log")


def _workers(client: Client) -> list[dict[str, Any]]:
    from perdure import wire

    found: list[dict[str, Any]] = output.plain(ask(client, wire.WorkerTypes()))["workers"]
    return found
