"""What is measured, each on a node of its own on a scratch directory. Every value is of one run."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec
import psutil

from bench.pipeline import run_all
from chaos.harness import NodeProcess, flat
from chaos.ledger_audit import LedgerFile, Run
from perdure.client import Client
from perdure.clock import boottime_ms

ROOT = Path(__file__).resolve().parents[1]
MIB = 1_048_576


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How much. `--quick` takes about a fifth."""

    runs: int = 3
    many: int = 5_000
    chains: int = 500
    singles: int = 200
    kills: int = 10
    parked: int = 10_000
    workers: int = 2
    slots: int = 100


QUICK = Settings(runs=1, many=1_000, chains=100, singles=50, kills=3, parked=2_000)


class Figure(msgspec.Struct, kw_only=True):
    """One figure: its values, one a run. `note` says how it was got."""

    name: str
    unit: str
    values: list[float]
    note: str = ""

    @property
    def median(self) -> float:
        """The middle of the values."""
        ordered = sorted(self.values)
        return ordered[len(ordered) // 2]


@contextmanager
def node(settings: Settings, app: str = "bench.app") -> Iterator[tuple[NodeProcess, str]]:
    """A fresh node and its endpoint."""
    with (
        tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch,
        NodeProcess(
            Path(scratch),
            apps=(app,),
            workers=settings.workers,
            slots=settings.slots,
            python_path=str(ROOT),
        ) as process,
    ):
        yield process, process.start()


def throughput(settings: Settings) -> list[Figure]:
    """Workflows of one activity, many at a time; the first run warms the node up and does not
    count.
    """
    rates = []
    with node(settings) as (_, endpoint):
        run_all(endpoint, "BenchOne", "warm", settings.many // 5)
        for run in range(settings.runs):
            took_s = run_all(endpoint, "BenchOne", f"one{run}", settings.many)
            rates.append(settings.many / took_s)
    note = f"{settings.many} workflows of one activity, start to last result seen"
    return [Figure(name="workflows per second", unit="1/s", values=rates, note=note)]


def chains(settings: Settings) -> list[Figure]:
    """Workflows of five activities in sequence, many at a time."""
    rates = []
    with node(settings) as (_, endpoint):
        run_all(endpoint, "BenchFive", "warm", settings.chains // 5)
        for run in range(settings.runs):
            took_s = run_all(endpoint, "BenchFive", f"five{run}", settings.chains)
            rates.append(5 * settings.chains / took_s)
    note = f"{settings.chains} workflows of five activities in sequence"
    return [Figure(name="activities per second", unit="1/s", values=rates, note=note)]


def latency(settings: Settings) -> list[Figure]:
    """One workflow of one activity at a time, with the Client: start, then result."""
    p50s, p99s = [], []
    with node(settings) as (_, endpoint), Client(endpoint) as client:
        _one_by_one(client, "warm", settings.singles // 5)
        for run in range(settings.runs):
            lengths_ms = sorted(_one_by_one(client, f"single{run}", settings.singles))
            p50s.append(_quantile(lengths_ms, 0.5))
            p99s.append(_quantile(lengths_ms, 0.99))
    note = f"start and result of {settings.singles}, one after the other"
    return [
        Figure(name="one at a time, p50", unit="ms", values=p50s, note=note),
        Figure(name="one at a time, p99", unit="ms", values=p99s, note=note),
    ]


def _one_by_one(client: Client, prefix: str, count: int) -> list[float]:
    lengths_ms = []
    for number in range(count):
        began = time.perf_counter()
        client.start_workflow("BenchOne", number, workflow_id=f"{prefix}-{number}").result(30_000)
        lengths_ms.append((time.perf_counter() - began) * 1_000)
    return lengths_ms


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def recovery(settings: Settings) -> list[Figure]:
    """From the SIGKILL of a worker, between effect and report, to the next attempt of what it held;
    idle otherwise.
    """
    medians, longest = [], []
    for _ in range(settings.runs):
        with node(settings, "perdure.demo") as (process, endpoint), Client(endpoint) as client:
            path = process.directory / "effects.db"
            lengths_ms = []
            for number in range(settings.kills):
                # Twice the work that it takes to see a run and to kill its process.
                client.start_workflow(
                    "FlakyDemo",
                    workflow_id=f"kill-{number}",
                    fail_rate=0,
                    activities=1,
                    work_ms=400,
                    ledger=str(path),
                )
                lengths_ms.append(_kill_holder(process, path, f"kill-{number}/step-1"))
                client.result(f"kill-{number}", timeout_ms=30_000)
            lengths_ms.sort()
            medians.append(_quantile(lengths_ms, 0.5))
            longest.append(lengths_ms[-1])
    note = f"{settings.kills} kills a run, two workers, nothing else running"
    return [
        Figure(name="worker SIGKILL to next attempt, median", unit="ms", values=medians, note=note),
        Figure(
            name="worker SIGKILL to next attempt, longest", unit="ms", values=longest, note=note
        ),
    ]


def _kill_holder(process: NodeProcess, path: Path, key: str) -> float:
    ledger = LedgerFile(path)
    try:
        first = _await_run(ledger, lambda run: run.key == key and run.in_the_gap)
        killed_ms = boottime_ms()
        process.kill_worker(first.pid)
        again = _await_run(ledger, lambda run: run.key == key and run.number > first.number)
        return float(again.began_ms - killed_ms)
    finally:
        ledger.close()


def _await_run(ledger: LedgerFile, wanted: Callable[[Run], bool]) -> Run:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for run in ledger.runs():
            if wanted(run):
                return run
        time.sleep(0.002)
    raise TimeoutError("the step was not run within 30 s")


def memory(settings: Settings) -> list[Figure]:
    """Memory of the whole tree, idle and after a throughput run. PSS counts shared pages once."""
    idle, busy, resident = [], [], []
    for run in range(settings.runs):
        with node(settings) as (process, endpoint):
            run_all(endpoint, "BenchOne", f"warm{run}", 10)
            idle.append(_pss_mib(process))
            run_all(endpoint, "BenchOne", f"load{run}", settings.many)
            busy.append(_pss_mib(process))
            resident.append(sum(p.memory_info().rss for p in process.processes()) / MIB)
    note = f"every process of the node, {settings.workers} workers"
    after = f"after {settings.many} workflows"
    return [
        Figure(name="memory idle, PSS", unit="MiB", values=idle, note=note),
        Figure(name="memory after load, PSS", unit="MiB", values=busy, note=after),
        Figure(name="memory after load, RSS", unit="MiB", values=resident, note=after),
    ]


def _pss_mib(process: NodeProcess) -> float:
    return float(sum(each.memory_full_info().pss for each in process.processes()) / MIB)


def fsyncs(settings: Settings) -> list[Figure]:
    """Syncs of history per workflow: counted by strace where there is one, else one a commit from
    the log.
    """
    has_strace = shutil.which("strace") is not None
    many, singles = [], []
    for run in range(settings.runs):
        with node(settings) as (process, endpoint), Client(endpoint) as client:
            run_all(endpoint, "BenchOne", f"warm{run}", 10)
            count = settings.many // 5
            pipelined = functools.partial(run_all, endpoint, "BenchOne", "many", count)
            many.append(_syncs(process, pipelined, has_strace) / count)
            alone = settings.singles // 4 or 1
            one_by_one = functools.partial(_one_by_one, client, "single", alone)
            singles.append(_syncs(process, one_by_one, has_strace) / alone)
    note = "fsync and fdatasync of history, by strace" if has_strace else "commits in the log"
    return [
        Figure(name="syncs per workflow, many at a time", unit="", values=many, note=note),
        Figure(name="syncs per workflow, one at a time", unit="", values=singles, note=note),
    ]


def _syncs(process: NodeProcess, work: Callable[[], object], has_strace: bool) -> int:
    if not has_strace:
        before = _commits(process)
        work()
        return _commits(process) - before
    history = next(each for each in flat(process.tree()) if each["name"] == "history")
    tracer = subprocess.Popen(
        ["strace", "-f", "-q", "-e", "trace=fsync,fdatasync", "-p", str(history["pid"])],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _await_tracer(int(history["pid"]))
        work()
    finally:
        tracer.terminate()
    _, seen = tracer.communicate(timeout=20)
    return sum(1 for line in seen.splitlines() if "sync(" in line and "resumed" not in line)


def _await_tracer(pid: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/status").read_text()
        if "TracerPid:\t0\n" not in status:
            return
        time.sleep(0.01)
    raise TimeoutError("strace did not attach within 10 s")


def _commits(process: NodeProcess) -> int:
    connection = apsw.Connection(str(process.data / "perdure.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return int(connection.execute("SELECT max(n) FROM commits").fetchall()[0][0])  # type: ignore[arg-type]
    finally:
        connection.close()


def ready(settings: Settings) -> list[Figure]:
    """From the start of `perdure up` to its line "ready", on nothing and after SIGKILL with many
    open workflows.
    """
    fresh, after = [], []
    for _ in range(settings.runs):
        with node(settings) as (process, endpoint):
            fresh.append(float(process.ready_ms[-1]))
            run_all(endpoint, "BenchPark", "park", settings.parked, wait=False)
            process.kill_all()
            process.start()
            after.append(float(process.ready_ms[-1]))
    note = f"after SIGKILL of the whole tree with {settings.parked} open workflows"
    return [
        Figure(name="up to ready, new", unit="ms", values=fresh, note="an empty directory"),
        Figure(name="up to ready, again", unit="ms", values=after, note=note),
    ]


MEASURES: dict[str, Callable[[Settings], list[Figure]]] = {
    measure.__name__: measure
    for measure in (throughput, chains, latency, recovery, memory, fsyncs, ready)
}


def machine() -> dict[str, str | int]:
    """What the figures depend on."""
    return {
        "cores": psutil.cpu_count() or 0,
        "memory_mib": psutil.virtual_memory().total // MIB,
        "python": sys.version.split()[0],
        "platform": sys.platform,
    }
