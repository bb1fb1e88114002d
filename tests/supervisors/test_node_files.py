from __future__ import annotations

import os
import socket
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from perdure.store.room import BALLAST_BYTES, BALLAST_NAME, Room
from supervisors.config import Endpoints, NodeConfig, check_config
from supervisors.node_files import SOCKET_PATH_MAX, NodeFiles, Refused


def opened(path):
    files = NodeFiles(str(path))
    files.open()
    return files


def test_a_node_leaves_its_locks_and_nothing_else_behind(tmp_path):
    files = opened(tmp_path / "data")
    assert files.run_dir.stat().st_mode & 0o777 == 0o700
    files.close()
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert names == ["children.lock", "root.lock", "run"]
    assert list((tmp_path / "data" / "run").iterdir()) == []


def test_a_node_that_was_not_started_leaves_nothing_that_was_not_there_before(tmp_path):
    opened(tmp_path / "a" / "b").undo()
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_that_was_there_stays(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "perdure.db").write_bytes(b"x")
    opened(tmp_path / "data").undo()
    assert (tmp_path / "data" / "perdure.db").exists()


def test_sockets_that_a_killed_node_left_are_removed(tmp_path):
    old = tmp_path / "run" / "abcdef"
    old.mkdir(parents=True)
    (old / "root").touch()
    (tmp_path / "node.json").write_text("{}")
    files = opened(tmp_path)
    assert not old.exists()
    assert not (tmp_path / "node.json").exists()
    files.close()


def test_a_link_that_is_turned_elsewhere_leaves_the_node_with_the_store_it_began_with(tmp_path):
    for name in ("blue", "green"):
        (tmp_path / name).mkdir()
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "blue")
    files = opened(link)
    link.unlink()
    link.symlink_to(tmp_path / "green")
    assert files.data_dir.samefile(tmp_path / "blue")
    assert files.run_dir.is_relative_to(tmp_path / "blue")
    files.close()
    assert list((tmp_path / "green").iterdir()) == []


def test_a_link_to_a_directory_that_is_not_there_yet_makes_it(tmp_path):
    (tmp_path / "current").symlink_to(tmp_path / "blue")
    opened(tmp_path / "current").close()
    assert (tmp_path / "blue" / "root.lock").exists()


def test_a_file_is_no_data_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot use data directory") as caught:
        opened(tmp_path / "file")
    assert caught.value.exit_code == 2
    assert (tmp_path / "file").is_file()


def test_where_the_path_is_too_long_for_sockets_they_lie_in_the_temporary_directory(tmp_path):
    long = tmp_path / ("d" * SOCKET_PATH_MAX)
    files = opened(long)
    run_dir = files.run_dir
    assert not run_dir.is_relative_to(tmp_path)
    assert run_dir.stat().st_mode & 0o777 == 0o700
    # A killed node does not clean up; the next one does.
    again = NodeFiles(str(long))
    again._remove_old_runs()
    assert not run_dir.exists()
    files.close()


def test_where_no_path_is_short_enough_the_refusal_names_it_and_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("supervisors.node_files.SOCKET_NAME_MAX", SOCKET_PATH_MAX)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Refused, match=r"socket path too long: .* the limit is 107") as caught:
        opened(tmp_path / "data")
    assert caught.value.exit_code == 2
    assert not (tmp_path / "data").exists()


def test_only_ipc_and_loopback_may_be_bound(tmp_path):
    with closing(Endpoints()) as endpoints:
        for bad in (
            "tcp://0.0.0.0:1",
            "tcp://*:1",
            "tcp://localhost:70000",
            "ipc://",
            "inproc://x",
        ):
            with pytest.raises(Refused, match="cannot bind") as caught:
                endpoints.claim((bad,))
            assert caught.value.exit_code == 2
        claimed = endpoints.claim((f"ipc://{tmp_path}/s", "tcp://localhost:*", "tcp://[::1]:0"))
    assert claimed[0] == f"ipc://{tmp_path}/s"
    assert [int(endpoint.rpartition(":")[2]) > 0 for endpoint in claimed[1:]] == [True, True]


def test_an_endpoint_that_another_holds_is_refused_and_not_taken_away(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as unix, socket.socket() as tcp, closing(Endpoints()) as e:
        unix.bind(str(path))
        unix.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        for held in (f"ipc://{path}", f"tcp://127.0.0.1:{tcp.getsockname()[1]}"):
            with pytest.raises(Refused, match="is held") as caught:
                e.claim((held,))
            assert caught.value.exit_code == 6


def test_a_socket_that_a_killed_node_left_may_be_bound_again_and_a_file_may_not(tmp_path):
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "s"))
    (tmp_path / "file").write_text("mine")
    with closing(Endpoints()) as endpoints:
        endpoints.claim((f"ipc://{tmp_path}/s",))
        with pytest.raises(Refused, match="a file, not a socket"):
            endpoints.claim((f"ipc://{tmp_path}/file",))
    assert Path(tmp_path / "file").read_text() == "mine"
    assert not os.path.exists(tmp_path / "s.lock")


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ({"queues": ("default", "a b")}, "queue 'a b' must be"),
        ({"queues": ("",)}, "queue '' must be"),
        ({"bind": ("ipc://",)}, "the path of a file"),
        ({"bind": ("tcp://0.0.0.0:1",)}, "only ipc://PATH and tcp://"),
        ({"bind": ("tcp://127.0.0.1:70000",)}, "only ipc://PATH and tcp://"),
        ({"bind": ("ipc:///" + "x" * 200,)}, "socket path too long"),
    ],
)
def test_a_name_or_endpoint_that_cannot_be_is_refused_before_anything_is_touched(setting, word):
    with pytest.raises(Refused, match=word) as caught:
        check_config(NodeConfig(**setting))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("setting", ["workers", "slots", "grace_ms", "dlq_after_attempts"])
def test_a_number_out_of_its_range_is_refused_by_name(setting):
    check_config(NodeConfig())
    with pytest.raises(Refused, match=setting):
        check_config(NodeConfig(**{setting: -1}))


@pytest.mark.parametrize(("free", "is_kept"), [(BALLAST_BYTES // 2, True), (0, False)])
def test_on_a_full_disk_the_ballast_goes_before_a_node_writes_its_files(
    tmp_path, monkeypatch, free, is_kept
):
    (tmp_path / BALLAST_NAME).write_bytes(b"heavy")
    monkeypatch.setattr(Room, "free_bytes", lambda self: free)
    files = NodeFiles(str(tmp_path))
    files.open()
    files.close()
    assert (tmp_path / BALLAST_NAME).exists() is is_kept
