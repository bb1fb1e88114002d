from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from perdure.births import birth_of
from perdure.core.commands import CompleteActivity, Done
from perdure.core.ids import Session
from perdure.core.limits import PROTOCOL_VERSION
from perdure.core.links import (
    ActivityTask,
    Answer,
    Ask,
    CancelTask,
    Fetch,
    Heartbeat,
    HistoryChanged,
    Page,
    RemoteWorkers,
    RestartWorker,
    SessionDead,
    SessionDone,
    Sessions,
    Sync,
    ToWorker,
    WorkerBye,
    WorkerHello,
    WorkerRefused,
    WorkerWelcome,
    pack_session,
)
from perdure.core.records import ActivityOptions
from perdure.policy import RetryPolicy

LOCAL = Session("node.test", 3)
HEARD = msgspec.msgpack.Decoder(list[ToWorker])
SYNC = Sync("w", ("default",), ("a",), (), 1, 1, (), (), 0)


def greet(node, session, pid=None, started=0.0, serves=()):
    worker = node.worker()
    pid = pid or os.getpid()
    worker.say(
        b"G", WorkerHello("w", pid, started, "node.test", PROTOCOL_VERSION, session, *serves)
    )
    [welcome] = worker.hear(HEARD)
    assert isinstance(welcome, WorkerWelcome)
    return worker, welcome


def test_a_worker_of_another_protocol_is_told_which_both_speak(node):
    worker = node.worker()
    other = PROTOCOL_VERSION + 1
    worker.say(b"G", WorkerHello("w9", os.getpid(), 0.0, "", other, None))
    [refused] = worker.hear(HEARD)
    assert isinstance(refused, WorkerRefused)
    assert refused.message == (
        f"worker w9 speaks protocol {other}, this node {PROTOCOL_VERSION}: have both run the same"
        " version of perdure"
    )


def task(**changes):
    fields = {
        "token": "t",
        "workflow_id": "w",
        "workflow_type": "T",
        "activity_id": "#1",
        "activity_type": "a",
        "generation": 1,
        "grant": 1,
        "attempt": 1,
        "input": b"m\x01",
        "details": None,
        "beat": 0,
        "options": ActivityOptions(RetryPolicy()),
        "scheduled_event_id": 2,
        "scheduled_ms": 0,
        "deadline_ms": 1,
        "lease_ms": 1,
        "attempt_ms": 1,
        "n": 1,
    }
    return ActivityTask(**{**fields, **changes})


def test_a_local_worker_keeps_the_session_that_its_supervisor_gave(node):
    _, welcome = greet(node, LOCAL)
    assert welcome.session == LOCAL
    assert welcome.history == node.history.identity


def test_frames_are_passed_on_both_ways_under_the_session(node):
    worker, _ = greet(node, LOCAL)
    worker.say(b"H", Ask(1, CompleteActivity("t", None)))
    assert node.history.hear_with_head(Ask) == (
        pack_session(LOCAL),
        Ask(1, CompleteActivity("t", None)),
    )
    worker.say(b"A", SYNC)
    assert node.scheduler.hear_with_head(Sync)[0] == pack_session(LOCAL)
    assert node.lease_keeper.hear_with_head(Sync)[0] == pack_session(LOCAL)
    worker.say(b"L", Heartbeat(1, "t", 1, None, False))
    assert node.lease_keeper.hear(Heartbeat).n == 1
    node.history.say(node.name, Answer(1, 4, Done()), head=pack_session(LOCAL))
    assert worker.hear(HEARD) == [Answer(1, 4, Done())]


def test_an_answer_for_a_worker_is_never_taken_for_a_clients(node):
    worker, _ = greet(node, LOCAL)
    client = node.client()
    client.ask("StartWorkflow", type="T", workflow_id="w")
    ask = node.history.hear(Ask)
    node.history.say(node.name, Answer(ask.n, 4, Done()), head=pack_session(LOCAL))
    assert worker.hear(HEARD)
    assert client.is_silent()


def test_a_frame_for_a_session_that_is_gone_is_dropped(node):
    node.scheduler.say(node.name, CancelTask("t", "stale"), head=pack_session(Session("node.x", 9)))
    assert node.client().call("Ping")["ok"]


def test_a_worker_that_has_not_said_hello_is_not_heard(node):
    worker = node.worker()
    worker.say(b"H", Ask(1, CompleteActivity("t", None)))
    worker.say(b"?", Ask(1, CompleteActivity("t", None)))
    worker.socket.send(b"noise")
    worker.socket.send_multipart([b"G", b"\xc1"])
    assert node.history.hears_nothing(Ask)


def test_a_worker_that_comes_back_is_found_on_its_new_connection(node):
    greet(node, LOCAL)
    second, _ = greet(node, LOCAL)
    node.scheduler.say(node.name, CancelTask("t", "stale"), head=pack_session(LOCAL))
    assert second.hear(HEARD) == [CancelTask("t", "stale")]


def test_a_new_history_is_announced_to_every_worker(node):
    worker, _ = greet(node, LOCAL)
    node.put("history")
    node.tell_peers()
    node.welcome()
    [changed] = worker.hear(HEARD)
    assert isinstance(changed, HistoryChanged)
    # Its clock may be another machine's only where the worker is.
    assert (changed.history, changed.base_ms > 0) == (node.history.identity, True)


def test_a_dead_local_session_is_done_with_behind_its_last_report(node):
    worker, _ = greet(node, LOCAL)
    worker.say(b"H", Ask(7, CompleteActivity("t", None)))
    worker.socket.close(linger=100)
    node.root.say(node.name, SessionDead(LOCAL))
    assert node.root.hear(SessionDone).session == LOCAL
    assert node.history.hear(Ask).n == 7


def test_a_worker_from_elsewhere_gets_a_session_of_this_gateway_and_is_announced(node):
    _, welcome = greet(node, None)
    assert welcome.session == Session(node.name, 1)
    for role in ("scheduler", "lease_keeper"):
        while (said := node.peers[role].hear(Sessions)).highest == 0:
            pass
        assert said == Sessions(node.name, 1, (1,))


def test_a_session_of_an_earlier_gateway_is_replaced(node):
    _, welcome = greet(node, Session("gateway.old", 5))
    assert welcome.session == Session(node.name, 1)


def test_sessions_are_told_to_a_new_lease_keeper(node):
    greet(node, None)
    node.put("lease_keeper")
    node.tell_peers()
    assert node.lease_keeper.hear(Sessions) == Sessions(node.name, 1, (1,))


def test_sessions_are_told_again_lest_they_got_lost(node, monkeypatch):
    monkeypatch.setattr("actors.gateway_workers.TELL_AGAIN_MS", 50)
    greet(node, None)
    for peer in (node.lease_keeper, node.scheduler):
        while not peer.hear(Sessions).highest:
            pass
        for _ in range(2):
            assert peer.hear(Sessions) == Sessions(node.name, 1, (1,))


def test_the_death_of_a_worker_from_elsewhere_ends_its_session(node):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started = birth_of(process.pid)
        greet(node, None, process.pid, started)
        process.kill()
        while (said := node.lease_keeper.hear(Sessions)).live or not said.highest:
            pass
        assert said == Sessions(node.name, 1, ())
    finally:
        process.kill()
        process.communicate()


def test_a_goodbye_ends_the_session_of_a_worker_from_elsewhere(node):
    worker, _ = greet(node, None)
    worker.say(b"G", WorkerBye())
    while (said := node.lease_keeper.hear(Sessions)).live or not said.highest:
        pass
    assert said == Sessions(node.name, 1, ())


def test_events_of_an_unknown_workflow_are_none(node):
    worker, _ = greet(node, LOCAL)
    worker.say(b"G", Fetch(5, "nobody", 0))
    assert worker.hear(HEARD) == [Page(5, None, True)]


@pytest.mark.parametrize("activity_id", ["plain", "with#"])
def test_a_task_without_references_goes_to_its_worker_as_it_is(node, activity_id):
    worker, _ = greet(node, LOCAL)
    sent = task(activity_id=activity_id)
    node.scheduler.say(node.name, sent, head=pack_session(LOCAL))
    assert worker.hear(HEARD) == [sent]


# --- who serves what ---------------------------------------------------------
def served(node):
    return node.client().call("WorkerTypes")["ok"]


def test_what_workers_have_is_told_while_their_sessions_live(node):
    greet(node, LOCAL, serves=(("default",), ("charge", "ship"), ("checkout",)))
    elsewhere, _ = greet(node, None, serves=(("side",), ("charge",), ()))
    told = served(node)
    assert (told["workflow_types"], told["activity_types"], told["queues"]) == (
        ["checkout"],
        ["charge", "ship"],
        ["default", "side"],
    )
    assert told["workers"][0] == {
        "worker_id": "w",
        "pid": os.getpid(),
        "local": True,
        "build": None,
        "restarts": False,
        "trouble": None,
        "queues": ["default"],
        "workflow_types": ["checkout"],
        "activity_types": ["charge", "ship"],
    }
    elsewhere.say(b"G", WorkerBye())
    node.root.say(node.name, SessionDead(LOCAL))
    node.root.hear(SessionDone)
    while served(node)["workers"]:
        pass
    assert served(node)["activity_types"] == []


def test_a_worker_that_says_hello_again_with_other_types_has_those(node):
    greet(node, LOCAL, serves=(("default",), ("charge",), ()))
    greet(node, LOCAL, serves=(("default",), ("ship",), ()))
    assert served(node)["activity_types"] == ["ship"]


def test_the_root_is_told_of_workers_from_elsewhere_whole_on_every_change(node):
    node.host.stop_clock()
    worker, _ = greet(node, None)
    assert node.root.hear(RemoteWorkers).worker_ids == ("w",)
    worker.say(b"G", WorkerBye())
    assert node.root.hear(RemoteWorkers).worker_ids == ()
    greet(node, LOCAL)
    assert node.root.hears_nothing(RemoteWorkers)


# --- workers that begin anew -----------------------------------------------------
def hello(name, trouble="", *, restarts=True):
    return WorkerHello(
        name, os.getpid(), 0.0, "", PROTOCOL_VERSION, None, restarts=restarts, trouble=trouble
    )


def test_a_worker_that_can_is_told_to_begin_anew_and_says_why_it_does_not(node):
    worker = node.worker()
    name = f"host-{os.getpid()}-aa"
    worker.say(b"G", hello(name))
    worker.hear(HEARD)
    assert node.client().call("RestartWorker", worker_id=name)["ok"] == {}
    assert worker.hear(HEARD) == [RestartWorker()]
    worker.say(b"G", hello(name, trouble="no module 'shop'"))
    worker.hear(HEARD)
    [there] = served(node)["workers"]
    assert (there["restarts"], there["trouble"]) == (True, "no module 'shop'")
    node.client().call("RestartWorker", worker_id=name)
    assert served(node)["workers"][0]["trouble"] is None


def test_whoever_can_not_begin_anew_is_not_told_to(node):
    greet(node, LOCAL)
    node.worker().say(b"G", hello("old", restarts=False))
    while len(served(node)["workers"]) < 2:
        pass
    client = node.client()
    for name, code, said in (
        ("w", "FAILED_PRECONDITION", "the node replaces it"),
        ("old", "FAILED_PRECONDITION", "start another"),
        ("nobody", "NOT_FOUND", "nobody"),
    ):
        error = client.call("RestartWorker", worker_id=name)["error"]
        assert (error["code"], said in error["message"]) == (code, True)


def test_a_process_that_has_begun_anew_is_another_session_and_the_one_before_is_dead(node):
    stem = f"host-{os.getpid()}"
    for name in (f"{stem}-aa", f"{stem}-bb", "other-1"):
        node.worker().say(b"G", hello(name))
    there: set[str] = set()
    while there != {f"{stem}-bb", "other-1"}:
        there = {one["worker_id"] for one in served(node)["workers"]}
