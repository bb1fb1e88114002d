"""What a node does about its store: it starts on the right one only, and never makes a new one of
what is left.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys

import pytest

from chaos.faults.disk_vfs import ALWAYS, HOOK, DiskFaults
from chaos.harness import flat
from perdure.cli.main import run
from perdure.errors import AlreadyExists, NotFound, PerdureError, ResourceExhausted, Unavailable
from perdure.store import vfs_hook
from tests.process.conftest import until

pytestmark = pytest.mark.process


@pytest.fixture
def faulty(hurt, monkeypatch):
    """A node on a disk that can be made to fail, and what makes it."""
    monkeypatch.setenv(vfs_hook.VARIABLE, HOOK)
    node = hurt(workers=1)
    faults = DiskFaults(node.data)
    yield node, faults
    faults.heal()


def test_a_node_refuses_to_start_on_a_store_that_has_lost_commits(hurt):
    node = hurt(workers=0)
    with node.client() as client:
        client.start_workflow("several", 0, workflow_id="w", request_id="r")
    node.kill_all()
    for name in ("perdure.db-wal", "perdure.db-shm"):
        (node.data / name).unlink()
    before = (node.data / "perdure.db").read_bytes()
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "supervisors", "--app", "hurt_app", "--data", str(node.data)],
        env=node.environment,
        cwd=node.directory,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 6
    assert ended.stdout == ""
    said = [line for line in ended.stderr.splitlines() if line.startswith("perdure: ")][-1]
    assert "1 commits are lost" in said
    assert f"perdure restore --accept --data {node.data}" in said
    assert (node.data / "perdure.db").read_bytes() == before


def test_a_running_node_is_backed_up_and_a_stopped_one_restored(hurt, tmp_path, capsys):
    node, copy = hurt(workers=1), str(tmp_path / "copy.db")
    data = ["--data", str(node.data)]
    with node.client(timeout_ms=30_000) as client:
        client.start_workflow("several", 0, workflow_id="before")
        expected = client.result("before")
        assert run(["backup", copy, *data, "--json"]) == 0
        copied = json.loads(capsys.readouterr().out)
        client.start_workflow("several", 0, workflow_id="after")
        client.result("after")
    assert run(["backup", copy, *data]) == 6
    assert "is there already" in capsys.readouterr().err
    assert run(["restore", copy, *data]) == 6, "a node that runs is left alone"
    assert f"held by process {node.pid}" in capsys.readouterr().err
    node.end_by(signal.SIGTERM)
    assert run(["restore", copy, *data, "--json"]) == 0
    restored = json.loads(capsys.readouterr().out)
    assert (restored["store"]["n"], restored["store"]["hash"]) == (copied["n"], copied["hash"])
    assert restored["lost"] > 0
    node.start()
    with node.client(timeout_ms=30_000) as client:
        assert client.result("before") == expected
        with pytest.raises(NotFound):
            client.describe_workflow("after")
    assert run(["restore", "--accept", *data]) == 6
    assert run(["restore", *data]) == 2
    assert run(["restore", str(tmp_path / "absent.db"), *data]) == 5
    assert run(["backup", copy, "--data", str(tmp_path / "absent")]) == 5


def restarts_of_history(node) -> int:
    return next(each["restarts"] for each in flat(node.tree()) if each["name"] == "history")


def test_a_failed_sync_is_survived_and_nothing_is_answered_by_guess(faulty):
    node, faults = faulty
    with node.client(timeout_ms=30_000) as client:
        client.start_workflow("several", 0, workflow_id="before")
        faults["fail_sync"] = 1
        # Unknown, so asked again by the client itself: started once, whichever it was.
        client.start_workflow("several", 0, workflow_id="w", request_id="r")
        for workflow_id in ("before", "w"):
            client.result(workflow_id, timeout_ms=30_000)
    assert faults["failed"] == 1
    until(lambda: restarts_of_history(node) == 1, "one restart of history")
    assert node.effects() == 2 * 3


def test_a_disk_that_goes_on_failing_stops_the_node_with_the_reason(faulty):
    node, faults = faulty
    faults["fail_sync"] = ALWAYS
    with node.client(timeout_ms=500) as client:
        while node.is_running:
            with contextlib.suppress(PerdureError):
                client.start_workflow("several", 0, workflow_id="w")
    assert node.await_end() == 1
    assert "the disk failed a second time before a commit succeeded" in node.log_path.read_text()


def test_without_room_a_node_reads_and_goes_on_by_itself_once_there_is_some(faulty):
    node, faults = faulty
    with node.client(timeout_ms=30_000) as client, node.client(timeout_ms=300) as impatient:
        client.start_workflow("several", 0, workflow_id="before")
        done = client.result("before")
        # It works for longer than there will be room.
        client.start_workflow("several", 300, workflow_id="meanwhile")
        faults["no_room"] = 1
        numbers = itertools.count()

        def is_refused() -> bool:
            try:
                impatient.start_workflow("several", 0, workflow_id=f"new-{next(numbers)}")
            except Unavailable:
                return False
            except ResourceExhausted:
                return True
            return False

        until(is_refused, "a refusal of new work")
        assert client.describe_workflow("before").status == "Completed"
        assert client.result("before") == done
        assert client.describe_workflow("meanwhile").status == "Running"
        assert restarts_of_history(node) == 1
        faults["no_room"] = 0
        assert len(client.result("meanwhile", timeout_ms=30_000)) == len(done)
        client.start_workflow("several", 0, workflow_id="after")
        client.result("after", timeout_ms=30_000)
    assert restarts_of_history(node) == 1


def test_below_the_reserve_new_work_is_refused_and_the_old_goes_on(hurt, tmp_path):
    node = hurt(workers=1)
    with node.client(timeout_ms=30_000) as client:
        client.start_workflow("several", 300, workflow_id="old", request_id="r")
        node.kill_all()
        (node.directory / "perdure.toml").write_text(
            "[limits]\nreserve_bytes = 1_000_000_000_000_000\n"
        )
        node.start()
        # Nobody knows how long that lasts, so a client asks again until its time is over.
        with node.client(timeout_ms=300) as impatient:

            def refusal() -> str:
                try:
                    impatient.start_workflow("several", 0, workflow_id="new")
                except ResourceExhausted as error:
                    return error.message
                except Unavailable:
                    return ""
                raise AssertionError("new work was let in")

            assert "takes reserve_bytes (1000000000000000) free" in until(refusal, "a refusal")
        # Accepted before, so it is answered as then.
        client.start_workflow("several", 300, workflow_id="old", request_id="r")
        client.result("old", timeout_ms=30_000)


def test_a_workflow_is_removed_after_its_time_by_a_node_at_rest(hurt):
    node = hurt(workers=1)
    node.end_by(signal.SIGTERM)
    (node.directory / "perdure.toml").write_text("[durable]\nretention_ms = 400\n")
    node.start()
    with node.client(timeout_ms=30_000) as client:
        client.start_workflow("several", 0, workflow_id="w")
        client.result("w")

        def removed() -> str:
            try:
                client.describe_workflow("w")
            except NotFound as error:
                return error.message
            return ""

        assert "its history was removed" in until(removed, "its removal")
        with pytest.raises(AlreadyExists):
            client.start_workflow("several", 0, workflow_id="w")
