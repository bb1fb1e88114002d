"""Real processes under a real root; the children are stubs that speak the control protocol."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from perdure.errors import Unavailable
from perdure.node_client import ps, read_node

pytestmark = pytest.mark.process

STUB_NODE = Path(__file__).parent / "stubs" / "stub_node.py"


class StubNode:
    """A root in a process of its own, and what it said."""

    def __init__(self, data: Path, **options) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [sys.executable, STUB_NODE, data, json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> StubNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until(self, event: str, **fields) -> dict:
        """The next log line of this name with these fields."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("{"):
                said = json.loads(line)
                if said["event"] == event and fields.items() <= said.items():
                    return said
        raise AssertionError(f"ended without {event} {fields}")

    def until_ready(self) -> StubNode:
        self.until("node.ready")
        return self

    def end(self) -> tuple[int, str, list[str]]:
        """Exit status, standard output, and the lines of standard error that are no log lines."""
        out, err = self.process.communicate(timeout=50)
        return self.process.returncode, out, [x for x in err.splitlines() if x[:1] != "{"]

    def stop(self) -> tuple[int, str, list[str]]:
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def pid(self, name: str) -> int:
        return pids(ps(self.data))[name]

    def lines(self, name: str) -> list[str]:
        path = self.data / name
        return path.read_text().splitlines() if path.exists() else []


def pids(tree: dict) -> dict[str, int]:
    found = {tree["name"]: tree["pid"]}
    for child in tree["children"]:
        found |= pids(child)
    return found


def await_exit(*awaited: int, timeout_ms: int) -> list[int]:
    """Those of these processes that are still there after the time."""
    left = {}
    for pid in awaited:
        try:
            left[os.pidfd_open(pid)] = pid
        except ProcessLookupError:
            continue
    poll = select.poll()
    for fd in left:
        poll.register(fd, select.POLLIN)
    while left:
        ended = poll.poll(timeout_ms)
        if not ended:
            break
        for fd, _ in ended:
            poll.unregister(fd)
            os.close(fd)
            del left[fd]
    for fd in left:
        os.close(fd)
    return sorted(left.values())


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


def test_a_node_says_ready_once_shows_its_tree_and_stops_in_reverse_order(tmp_path):
    data = tmp_path / "data"
    with StubNode(data, bind=["tcp://127.0.0.1:*"]) as node:
        node.until_ready()
        info = read_node(data)
        assert info is not None
        tree = ps(info.root)
        everybody = set(pids(tree).values())
        assert [child["name"] for child in tree["children"]] == ["core", "workers"]
        assert set(tree) == {
            "name",
            "kind",
            "pid",
            "state",
            "restarts",
            "started_ms",
            "rss_bytes",
            "children",
        }
        worker = tree["children"][1]["children"][0]
        assert (worker["kind"], worker["state"], worker["restarts"]) == ("worker", "running", 0)
        assert worker["rss_bytes"] > 1_000_000
        code, out, complaints = node.stop()
        assert code == 0
        assert out == f"ready {' '.join(info.endpoints)}\n"
        assert complaints == []
        assert sorted(node.lines("stops")[:2]) == ["worker-1", "worker-2"]
        assert node.lines("stops")[2:] == ["gateway", "scheduler", "history"]
        # Sets of strings have one order in all workers, and the environment is the user's.
        assert set(node.lines("flags")) == {"0 None"}
        # What all have loaded stays in memory that they share.
        assert set(node.lines("searched")) == {"False"}
        assert await_exit(*everybody, timeout_ms=10_000) == []
        assert not Path(info.run_dir).exists()
        assert read_node(data) is None
        with pytest.raises(Unavailable):
            ps(data)


def test_when_the_root_is_killed_no_child_outlives_it_not_even_a_fork_that_holds_the_lock(data):
    (data / "worker-1.behave").write_text("hold the interpreter lock")
    with StubNode(data) as node:
        node.until_ready()
        everybody = set(pids(ps(data)).values())
        # Both have written their line before they hold; the fork may still be on its way.
        holders = await_lines(data / "holders", 2)
        everybody |= {int(line.split()[1]) for line in holders}
        helpers = {child.pid for child in psutil.Process(node.process.pid).children(recursive=True)}
        node.process.kill()
        assert await_exit(*everybody, timeout_ms=10_000) == []
        assert await_exit(*helpers, timeout_ms=10_000) == []
    # The data directory is free again, and what was left in it does not disturb.
    (data / "worker-1.behave").unlink()
    with StubNode(data) as node:
        assert node.until_ready().stop()[0] == 0
        assert list((data / "run").iterdir()) == []


def await_lines(path: Path, count: int) -> list[str]:
    lines: list[str] = []
    while len(lines) < count:
        lines = path.read_text().splitlines() if path.exists() else []
        os.sched_yield()
    return lines


def test_a_second_root_on_the_same_data_directory_is_refused_naming_the_first(data):
    with StubNode(data) as first:
        first.until_ready()
        with StubNode(data) as second:
            code, out, complaints = second.end()
        assert (code, out) == (6, "")
        pid = first.process.pid
        assert f"held by process {pid}: stop that node (kill {pid}), or" in complaints[0]
        assert "--data" in complaints[0]
        assert first.stop()[0] == 0


@pytest.mark.parametrize("how", ["gone", "stopped"])
def test_a_node_goes_on_and_ends_in_order_when_nobody_reads_its_log(data, how):
    with StubNode(data) as node:
        node.until_ready()
        before = node.pid("history")
        if how == "gone":
            node.process.stdout.close()
            node.process.stderr.close()
        else:
            fill(node.process.stderr.fileno())
        os.kill(before, signal.SIGKILL)
        await_lines(data / "starts", 6)
        while node.pid("history") in (before, None):
            os.sched_yield()
        node.process.send_signal(signal.SIGINT)
        assert node.process.wait(50) == 0
    assert sorted(node.lines("stops")[:2]) == ["worker-1", "worker-2"]


def fill(read: int) -> None:
    """Write into the other end of this pipe until nothing more goes in."""
    write = os.open(f"/proc/self/fd/{read}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(write, b"x" * 4_096)
    except BlockingIOError:
        os.close(write)


def test_values_that_cannot_be_are_complained_of_before_the_held_directory(data):
    with StubNode(data) as first:
        first.until_ready()
        for options in ({"bind": ["udp://x"]}, {"queues": ["a b"]}):
            with StubNode(data, **options) as second:
                code, _, complaints = second.end()
            assert code == 2
            assert "held" not in complaints[0]


def test_an_application_that_defines_nothing_is_warned_of(data):
    with StubNode(data, apps=["empty"]) as node:
        assert node.process.stderr is not None
        said = [node.process.stderr.readline() for _ in range(2)]  # The first is the application's.
        assert said[1] == "perdure: warning: empty: no workflow and no activity is defined there\n"
        assert node.until_ready().stop()[0] == 0


def test_left_over_children_of_a_killed_root_are_named_and_refused(data):
    # A process that holds the children's lock, as a child that cannot be killed would.
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from perdure.process import take_child_lock\n"
            "take_child_lock(sys.argv[1]); print(flush=True); sys.stdin.read()",
            data / "children.lock",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with StubNode(data) as node:
            code, _, complaints = node.end()
        assert code == 6
        assert f"left-over processes {holder.pid}" in complaints[0]
        holder.kill()


def test_a_crash_loop_ends_the_node_with_a_status_and_the_reason(data):
    (data / "scheduler.behave").write_text("crash after ready")
    with StubNode(data, period_ms=60_000) as node:
        code, _, complaints = node.end()
        assert code == 1
        assert "core: 6 crashes within 60000 ms" in complaints[-1]
        assert "scheduler, which ended with status 9" in complaints[-1]
        assert len([x for x in node.lines("starts") if x.startswith("scheduler")]) == 6
        assert node.lines("stops")[-1] == "history"


def test_a_child_that_can_not_begin_ends_the_node_with_its_own_status_and_words(data):
    (data / "history.behave").write_text("fail")
    with StubNode(data) as node:
        code, out, complaints = node.end()
        assert (code, out) == (2, "")
        assert complaints[-1] == "perdure: the store is from the future"


def test_a_second_failed_commit_in_a_row_ends_the_node(data):
    with StubNode(data) as node:
        node.until_ready()
        (data / "history.behave").write_text("commit failed")
        os.kill(node.pid("history"), signal.SIGKILL)
        code, _, complaints = node.end()
        assert code == 1
        assert "the disk failed a second time" in complaints[-1]
        assert len([x for x in node.lines("starts") if x.startswith("history")]) == 3


def test_workers_that_crash_again_and_again_never_end_the_node(data):
    with StubNode(data) as node:
        node.until_ready()
        (data / "worker-1.behave").write_text("crash")
        os.kill(node.pid("worker-1"), signal.SIGKILL)
        for _ in range(5):
            node.until("child.exited", child="worker-1", was_ready=False)
        (data / "worker-1.behave").unlink()
        node.until("child.ready", child="worker-1")
        assert node.stop()[0] == 0
        # Every start was a session of its own, and those of the dead are gone from the set.
        starts = len([x for x in node.lines("starts") if x.startswith("worker-")])
        assert node.lines("gateway.dead")[0] == "1"
        assert f"{starts} (2, {starts})" in node.lines("scheduler.sessions")


def test_a_late_death_is_restarted_at_once_and_everybody_hears_of_both(data):
    with StubNode(data) as node:
        node.until_ready()
        old = node.pid("gateway")
        os.kill(old, signal.SIGKILL)
        assert node.until("child.exited", child="gateway")["exit_code"] == -9
        node.until("child.ready", child="gateway")
        assert node.pid("gateway") != old
        assert node.stop()[0] == 0
        peers = "|".join(node.lines("history.peers"))
        whole = "gateway history scheduler"
        assert f"{whole}|history scheduler|{whole}" in peers


def test_the_death_of_the_forkserver_hurts_nobody(data):
    with StubNode(data) as node:
        node.until_ready()
        before = pids(ps(data))
        parent = psutil.Process(before["history"]).parent()
        assert parent is not None
        assert parent.pid != node.process.pid
        parent.kill()
        assert await_exit(parent.pid, timeout_ms=10_000) == []
        assert pids(ps(data)) == before
        os.kill(before["scheduler"], signal.SIGKILL)
        node.until("child.exited", child="scheduler")
        node.until("child.ready", child="scheduler")
        after = pids(ps(data))
        assert {n for n in after if after[n] != before[n]} == {"scheduler"}
        assert node.stop()[0] == 0


def test_a_hung_actor_is_killed_and_replaced(data):
    with StubNode(data, silence_ms=1_500) as node:
        node.until_ready()
        old = node.pid("scheduler")
        os.kill(old, signal.SIGSTOP)
        node.until("child.silent", child="scheduler")
        node.until("child.ready", child="scheduler")
        assert node.pid("scheduler") != old
        assert node.stop()[0] == 0


def test_a_child_that_does_not_become_ready_in_its_time_is_killed_and_started_again(data):
    (data / "scheduler.behave").write_text("never ready")
    with StubNode(data, ready_within_ms=2_000) as node:
        node.until("child.late", child="scheduler")
        (data / "scheduler.behave").unlink()
        node.until_ready()


def test_a_child_that_does_not_stop_in_its_time_is_killed(data):
    (data / "scheduler.behave").write_text("ignore stop")
    with StubNode(data, shutdown_ms=100) as node:
        node.until_ready()
        node.process.send_signal(signal.SIGINT)
        node.until("child.killed", child="scheduler")
        assert node.end()[0] == 0


def test_a_second_signal_ends_everything_at_once(data):
    (data / "gateway.behave").write_text("ignore stop")
    with StubNode(data, shutdown_ms=60_000) as node:
        node.until_ready()
        everybody = pids(ps(data)).values()
        node.process.send_signal(signal.SIGINT)
        node.until("node.stopping")
        node.process.send_signal(signal.SIGINT)
        assert node.end()[0] == 0
        assert await_exit(*everybody, timeout_ms=10_000) == []
        assert node.lines("stops") == [] or "history" not in node.lines("stops")


@pytest.mark.parametrize(
    ("app", "told"),
    [("broken", "application broken: no module named"), ("exits", "exit status 3")],
)
def test_an_application_that_can_not_be_loaded_is_refused_and_nothing_is_touched(
    tmp_path, app, told
):
    with StubNode(tmp_path / "data", apps=[app]) as node:
        code, out, complaints = node.end()
    assert (code, out) == (2, "")
    assert told in complaints[-1]
    assert list(tmp_path.iterdir()) == []
