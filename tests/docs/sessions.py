"""Shell sessions of a page (```console blocks), run in one shell from top to bottom."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0

_block = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_done = re.compile(r"__done__ \d+")
_notice = re.compile(r"bash: line \d+: +\d+ (Killed|Terminated)")

# What only looks is asked again until it is as the page shows it.
LOOKS = re.compile(r"perdure (wf (describe|query|explain|history|list)|ps|doctor)\b|python -c")

# What differs from run to run: lengths of time, sizes, processes, places.
_VOLATILE = (
    (re.compile(r"\b[0-9]+(\.[0-9]+)? ?(ms|s|min|MiB)\b|\b\d+h \d+m\b"), "TIME"),
    (re.compile(r"worker-\d+@[0-9a-f]+"), "WORKER"),
    (re.compile(r"ipc://\S+"), "ENDPOINT"),
    (re.compile(r"^(commits|records|events compared|took|invariants looked at) .*"), r"\1 …"),
    (re.compile(r"\d+ schedules from \d+ crash points"), "SCHEDULES"),
    (re.compile(r"^\s*[\d, -]+: (give|only|not in data).*|^not looked at .*"), "not looked at …"),
    (re.compile(r"-{2,}"), "-"),
    (re.compile(r" +"), " "),
)


class Step(NamedTuple):
    """One command of a page, and the lines that it shows below it."""

    command: str
    shown: list[str]


def steps_of(text: str) -> list[Step]:
    """The commands of a page, in order."""
    steps: list[Step] = []
    for block in _block.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:], []))
            else:
                steps[-1].shown.append(line)
    return steps


def steady(lines: list[str]) -> list[str]:
    """Lines without what differs from run to run."""
    found = []
    for line in lines:
        for pattern, word in _VOLATILE:
            line = pattern.sub(word, line)
        found.append(line.strip())
    return found


class Shell:
    """A bash with job control whose output is read line by line. To be closed."""

    def __init__(self, directory: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
        environment.pop("PERDURE_ENDPOINT", None)
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.run("set -m", lines=0)

    def _read(self) -> None:
        assert self._bash.stdout is not None
        for line in self._bash.stdout:
            self._lines.put(line.rstrip("\n"))

    def run(self, command: str, lines: int) -> list[str]:
        """What the command prints: until it has ended, and `lines` lines are there."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{command}\necho __done__ $?\n")
        self._bash.stdin.flush()
        deadline = time.monotonic() + WAIT_S
        printed: list[str] = []
        ended = False
        in_background = command.endswith("&")
        while not ended or (in_background and len(printed) < lines):
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{command}: not done in time; printed {printed}") from None
            if _done.fullmatch(line):
                ended = True
            elif not _notice.match(line):
                printed.append(line)
        return printed

    def close(self) -> None:
        """End it and what it has started."""
        assert self._bash.stdin is not None
        started = psutil.Process(self._bash.pid).children()
        for process in started:
            process.kill()
        self._bash.kill()
        self._bash.wait(WAIT_S)
        psutil.wait_procs(started, WAIT_S)
        self._bash.stdin.close()
        self._reader.join(WAIT_S)
        assert self._bash.stdout is not None
        self._bash.stdout.close()


def perform(text: str, directory: Path, again_s: float = 15.0) -> list[tuple[Step, list[str]]]:
    """Run a page's commands; each with what it really printed."""
    shell = Shell(directory)
    done = []
    try:
        for step in steps_of(text):
            deadline = time.monotonic() + again_s
            while True:
                printed = shell.run(step.command, len(step.shown))
                if not LOOKS.match(step.command) or steady(printed) == steady(step.shown):
                    break
                if time.monotonic() > deadline:
                    break
            done.append((step, printed))
    finally:
        shell.close()
    return done
