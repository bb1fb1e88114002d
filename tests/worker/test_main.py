from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import msgspec
import pytest
import zmq

from perdure.core import links
from perdure.core.boot import Boot
from perdure.core.commands import CompleteActivity, Done, ReleaseActivity
from perdure.worker.main import check_apps

PATIENCE_MS = 20_000
APP = """
    import os, sys, time
    from perdure import activity, workflow
    import actors  # The user's own.

    @activity.define
    def where() -> list:
        return [os.getpid(), os.environ.get("PYTHONHASHSEED"), actors.MINE, "zmq" in sys.modules]

    @activity.define
    def naps() -> None:
        activity.record_heartbeat("napping")
        time.sleep(60)

    @workflow.define
    async def flow() -> None: ...
"""
LOCAL = """
    import msgspec, sys
    from perdure.core.boot import Boot
    from perdure.worker.main import main
    main(msgspec.msgpack.decode(bytes.fromhex(sys.argv[1]), type=Boot))
"""
EXTERNAL = """
    import sys
    from perdure.worker.main import run_external
    sys.exit(run_external(["shop"], ".", sys.argv[1], slots=3, queues=["gpu"], grace_ms=300))
"""

_to_root = msgspec.msgpack.Decoder(list[links.ToRoot])


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A working directory with an application, and a package of the user's named `actors`."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(APP))
    (tmp_path / "actors").mkdir()
    (tmp_path / "actors/__init__.py").write_text("MINE = 'mine'\n")
    return tmp_path


def checked(app: Path, *apps: str) -> subprocess.CompletedProcess[str]:
    """check_apps in a process of its own, as a node calls it."""
    code = f"from perdure.worker.main import check_apps; print(*check_apps({apps!r}, '.'), sep='|')"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=app, capture_output=True, text=True, check=True
    )


@pytest.mark.process
def test_an_application_is_found_in_the_working_directory_and_its_actors_are_its_own(app):
    assert checked(app, "shop").stdout == "True||('flow',)|('where', 'naps')\n"


@pytest.mark.process
@pytest.mark.parametrize("content", ["1 / 0", "import nowhere", "raise SystemExit", "def ("])
def test_an_application_that_can_not_be_loaded_is_named_in_one_line(app, content):
    (app / "broken.py").write_text(content)
    ok, message, *_ = checked(app, "broken").stdout.split("|")
    assert ok == "False"
    assert "broken" in message
    assert "\n" not in message


def test_an_application_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    check = check_apps(["no_such_application"], str(tmp_path))
    assert (check.ok, "no_such_application" in check.message) == (False, True)


class Root:
    """The root's control socket."""

    def __init__(self, context: zmq.Context, endpoint: str) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.bind(endpoint)

    def hear(self) -> tuple[bytes, links.Message]:
        assert self.socket.poll(PATIENCE_MS), "the child says nothing"
        identity, head, body = self.socket.recv_multipart()
        assert head == b""
        [message] = _to_root.decode(body)
        return identity, message

    def say(self, identity: bytes, message: links.Message) -> None:
        self.socket.send_multipart([identity, b"", links.pack([message])])


def start(code: str, argument: str, app: Path, **env: str) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"} | env
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), argument], cwd=app, env=environment
    )


@pytest.fixture
def local(node, app):
    """Starts a local worker; ends it."""
    root = Root(node.context, node.endpoint.replace("workers", "root"))
    started: list[subprocess.Popen[bytes]] = []

    def begin(*apps: str) -> tuple[Root, subprocess.Popen[bytes]]:
        boot = Boot(
            role="worker-1",
            incarnation="worker-1.abc",
            node="node.test",
            data_dir=str(app),
            run_dir=str(app),
            root_endpoint=node.endpoint.replace("workers", "root"),
            inbox_endpoint="",
            workers_endpoint=node.endpoint,
            options={"apps": apps, "cwd": str(app), "slots": 2, "ordinal": 7, "worker_id": "w@1"},
        )
        started.append(start(LOCAL, msgspec.msgpack.encode(boot).hex(), app))
        return root, started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
    root.socket.close(0)


@pytest.mark.process
def test_a_local_worker_tells_the_root_when_it_is_there_and_ready_and_stops_in_order(
    node, task, local
):
    root, process = local("shop")
    identity, hello = root.hear()
    assert (identity, hello) == (
        b"worker-1.abc",
        links.ChildHello("worker-1", "worker-1.abc", process.pid, ""),
    )
    assert node.next(links.WorkerHello).session == links.Session("node.test", 7)
    ready = root.hear()[1]
    assert (ready.role, ready.incarnation, len(ready.build)) == ("worker-1", "worker-1.abc", 12)
    sync = node.sync()
    assert (sync.worker_id, sync.queues, sync.activity_slots) == ("w@1", ("default",), 2)
    assert (sync.activity_types, sync.workflow_types) == (("where", "naps"), ("flow",))
    root.say(identity, links.Ping(3))
    assert root.hear()[1] == links.Pong(3)
    node.say(task("t1", "naps"))
    node.next(links.Heartbeat)
    root.say(identity, links.Stop(100))
    assert node.sync(lambda sync: sync.draining)
    assert node.command(ReleaseActivity, Done()).token == "t1"
    node.next(links.WorkerBye)
    assert process.wait(PATIENCE_MS / 1000) == 0, "the activity still sleeps"


@pytest.mark.process
def test_a_local_worker_whose_application_can_not_be_loaded_says_so_and_ends(local):
    root, process = local("not_there")
    root.hear()
    failed = root.hear()[1]
    assert isinstance(failed, links.ChildFailed)
    assert (failed.exit_code, "not_there" in failed.message) == (2, True)
    assert process.wait(PATIENCE_MS / 1000) == 2


@pytest.fixture
def public(node):
    """A gateway's public endpoint that knows one answer: where workers connect."""
    endpoint = node.endpoint.replace("workers", "public")
    socket = node.context.socket(zmq.ROUTER)
    socket.bind(endpoint)
    answers = [node.endpoint]

    def serve() -> None:
        try:
            while True:
                *identity, body = socket.recv_multipart()
                number = msgspec.msgpack.decode(body)["id"]
                ok = {"id": number, "ok": {"endpoint": answers[-1]}}
                socket.send_multipart([*identity, msgspec.msgpack.encode(ok)])
        except zmq.ContextTerminated:
            socket.close(0)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield endpoint, answers
    node.stop_all()
    node.socket.close(0)
    node.context.term()
    thread.join(PATIENCE_MS / 1000)


@pytest.fixture
def external(public, app):
    """A worker on its own."""
    process = start(EXTERNAL, public[0], app)
    yield process
    process.kill()
    process.wait()


@pytest.mark.process
def test_a_worker_elsewhere_has_a_fixed_hash_seed_and_stops_on_sigterm(node, task, external):
    assert node.next(links.WorkerHello).session is None
    sync = node.sync()
    assert (sync.queues, sync.activity_slots) == (("gpu",), 3)
    node.say(task("t1", "where"))
    result = node.command(CompleteActivity, Done()).result
    pid, seed, actors, _ = msgspec.msgpack.decode(result[1:])
    assert (pid, seed, actors) == (external.pid, "0", "mine")
    external.send_signal(signal.SIGTERM)
    assert node.sync(lambda sync: sync.draining)
    node.next(links.WorkerBye)
    assert external.wait(PATIENCE_MS / 1000) == 0


@pytest.mark.process
def test_a_worker_elsewhere_that_the_node_refuses_ends_and_says_why(node, public, app):
    node.welcomes = False
    process = start(EXTERNAL, public[0], app)
    node.next(links.WorkerHello)
    node.say(links.WorkerRefused(1, "this node speaks protocol 1"))
    assert process.wait(PATIENCE_MS / 1000) == 2


@pytest.mark.process
def test_a_worker_elsewhere_that_is_told_to_stop_while_it_begins_ends_in_order(public, app):
    (app / "shop.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    process = start(EXTERNAL, public[0], app)
    assert process.wait(PATIENCE_MS / 1000) == 0


@pytest.mark.process
def test_a_signal_that_comes_while_a_worker_executes_itself_again_is_not_lost(app):
    again = "from perdure.worker.stopping import Stopping; Stopping(); raise SystemExit(9)"
    code = f"""
        import os, signal, sys
        from perdure.worker.stopping import Stopping
        Stopping().hold()
        os.kill(os.getpid(), signal.SIGTERM)
        os.execv(sys.executable, [sys.executable, "-c", {again!r}])
    """
    assert start(code, "", app).wait(PATIENCE_MS / 1000) == 0


@pytest.mark.process
def test_a_second_signal_ends_a_worker_elsewhere_at_once(node, task, external):
    node.sync()
    node.say(task("t1", "naps"))
    node.next(links.Heartbeat)
    external.send_signal(signal.SIGINT)
    assert node.sync(lambda sync: sync.draining)
    external.send_signal(signal.SIGINT)
    assert external.wait(PATIENCE_MS / 1000) == 0
    assert node.commands(ReleaseActivity) == []


@pytest.mark.process
def test_a_worker_elsewhere_finds_a_node_that_began_anew_somewhere_else(node, public, external):
    node.sync()
    node.end()
    node.endpoint += "-anew"
    public[1].append(node.endpoint)
    node.open()
    node.next(links.WorkerHello)
    node.sync()
    external.send_signal(signal.SIGTERM)
    assert external.wait(PATIENCE_MS / 1000) == 0
