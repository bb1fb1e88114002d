"""The part of the drill `powerloss` that runs in processes of its own: each opens its share of the
states, in a directory of its own.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import msgspec

from chaos.drills.powerloss_check import Checker, is_refused
from chaos.drills.powerloss_run import Recorded, record
from chaos.drills.powerloss_states import Moment, lied, moments, states
from chaos.faults.recording_vfs import Durable
from chaos.harness import die_with_parent

KEPT_MAX = 20


class Share(msgspec.Struct, frozen=True):
    """Which moments of a recorded run to look at: every `step`th from `first`, `most` states each.

    No further moment is begun after `until`, an instant of time.monotonic.
    """

    recording: str
    first: int
    step: int
    most: int
    seed: int
    until: float


class Outcome(msgspec.Struct, frozen=True):
    """What was found in a share. `complete`: how many moments had all their states opened."""

    moments: int
    complete: int
    opened: int
    contents: int
    lies: int
    violations: tuple[str, ...]
    is_cut: bool


class Outline(msgspec.Struct, frozen=True):
    """A recorded run in numbers."""

    ops: int
    commits: int
    moments: int


def begin() -> None:
    """First of all in each process: the drill alone hears a Ctrl-C, and nobody outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die = die_with_parent()
    if die is not None:
        die()


def record_run(path: str, seed: int, workflows: int) -> Outline:
    """Records a run and writes it down at `path`."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as scratch:
        run = record(Path(scratch), seed, workflows)
    Path(path).write_bytes(msgspec.msgpack.encode(run))
    return Outline(len(run.ops), run.newest, len(_load(path)[1]))


@lru_cache(maxsize=1)
def _load(path: str) -> tuple[Recorded, list[Moment], Checker]:
    run = msgspec.msgpack.decode(Path(path).read_bytes(), type=Recorded)
    scratch = Path(tempfile.mkdtemp(dir=os.path.dirname(path)))
    return run, list(moments(run.ops)), Checker(scratch, run)


def look(share: Share) -> Outcome:
    """Opens the states of a share."""
    run, every, checker = _load(share.recording)
    dice = random.Random(f"{share.seed}/{share.first}/{share.most}")
    violations: list[str] = []
    visited = complete = opened = lies = 0
    known = checker.contents
    for moment in every[share.first :: share.step]:
        if time.monotonic() > share.until:
            break
        for state in states(moment, share.most, dice):
            opened += 1
            violations += checker.check(state)
        visited += 1
        complete += moment.possible <= share.most
        if isinstance(run.ops[moment.at], Durable):
            # All that was synced when the commit before had just become durable.
            before = next((it for it in every if it.floor == moment.floor - 1 > 0), None)
            if before is not None:
                lies += 1
                if not is_refused(lied(before, moment), checker.directory):
                    violations.append(f"commit {moment.floor} was lost by the disk, unnoticed")
    return Outcome(
        moments=visited,
        complete=complete,
        opened=opened,
        contents=checker.contents - known,
        lies=lies,
        violations=tuple(violations[:KEPT_MAX]),
        is_cut=visited < len(every[share.first :: share.step]),
    )
