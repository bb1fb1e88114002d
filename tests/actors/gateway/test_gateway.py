from __future__ import annotations

import msgspec
import pytest
import zmq

from actors import gateway, gateway_watches
from perdure.core.commands import (
    Closed,
    CompleteActivity,
    Deadline,
    Done,
    FailActivity,
    Refusal,
    Started,
)
from perdure.core.links import (
    Answer,
    Ask,
    DeadListed,
    Heartbeat,
    ListDead,
    Poll,
    Polled,
    Unwatch,
    Watch,
)
from perdure.errors import no_workflow
from perdure.failures import Failure


def start(client, workflow_id="w"):
    return client.ask("StartWorkflow", type="T", workflow_id=workflow_id, input=[1])


def reply(node, role, n, answer, commit=5):
    node.peers[role].say(node.name, Answer(n, commit, answer))


def test_a_request_of_a_req_socket_is_answered_with_its_delimiter(node):
    client = node.client(zmq.REQ)
    answer = client.call("Ping")
    assert answer["ok"]["node"] == "node.test"
    assert answer["ok"]["now_ms"] > 1_600_000_000_000


def test_the_answer_comes_in_the_form_of_the_request(node):
    client = node.client()
    client.send(msgspec.msgpack.encode({"id": b"\x01", "op": "Ping"}))
    assert client.answer()["id"] == b"\x01"
    client.send(b'{"id": {"a": [1]}, "op": "Ping"}')
    assert client.answer()["id"] == {"a": [1]}


def test_a_start_is_one_command_with_its_payload_kept_in_its_encoding(node):
    client = node.client()
    start(client)
    command = node.history.hear(Ask).command
    assert command.input == b"j[1]"
    client.send(
        msgspec.msgpack.encode(
            {
                "id": 1,
                "op": "StartWorkflow",
                "args": {"type": "T", "workflow_id": "w", "input": [1]},
            }
        )
    )
    other = node.history.hear(Ask).command
    assert other.input == b"m\x91\x01"
    assert other.digest == command.digest


def test_a_result_is_waited_for_behind_its_start_and_what_only_looks_waits_for_the_answer(node):
    client = node.client()
    start(client)
    client.ask("GetResult", workflow_id="w", wait_ms=5_000)
    client.ask("DescribeWorkflow", workflow_id="other")
    ask, watch = node.history.hear(Ask), node.history.hear(Watch)
    assert client.is_silent()
    reply(node, "history", ask.n, Started())
    assert client.answer() == {"id": 1, "ok": {"workflow_id": "w", "run": 1}, "n": 5}
    assert client.answer()["error"]["code"] == "NOT_FOUND"
    reply(node, "history", watch.n, Closed("Completed", b"m\xc4\x01x", None))
    assert client.answer()["ok"] == {"status": "Completed", "result": "eA=="}


def test_what_is_not_there_is_named(node):
    client = node.client()
    client.ask("GetResult", workflow_id="w-1", wait_ms=5_000)
    reply(node, "history", node.history.hear(Watch).n, Refusal("NOT_FOUND", "there is none"))
    assert client.answer()["error"]["message"] == "there is no workflow 'w-1'"
    client.ask("DescribeWorkflow", workflow_id="w-1")
    assert client.answer()["error"]["message"] == "there is no workflow 'w-1'"
    client.ask("RedriveDeadLetter", workflow_id="w-2", activity_id="a")
    reply(node, "history", node.history.hear(Ask).n, Refusal("NOT_FOUND", "there is none"))
    assert "'w-2'" in client.answer()["error"]["message"]
    client.ask("RedriveDeadLetter", workflow_id="w-3", activity_id="a")
    refusal = Refusal("NOT_FOUND", no_workflow("w-3").message)
    reply(node, "history", node.history.hear(Ask).n, refusal)
    assert client.answer()["error"]["message"] == "there is no workflow 'w-3'"


def test_answered_waits_leave_nothing_behind_before_their_time_is_up(node):
    client = node.client()
    rounds, at_once = 30, 100
    for _ in range(rounds):
        for _ in range(at_once):
            client.ask("GetResult", workflow_id="w", wait_ms=600_000)
        for _ in range(at_once):
            watch = node.history.hear(Watch)
            reply(node, "history", watch.n, Closed("Completed", None, None))
        for _ in range(at_once):
            client.answer()
    assert len(node.gateways[-1]._deadlines) < rounds * at_once / 2


def test_one_connection_does_not_hold_up_another(node):
    first, second = node.client(), node.client()
    start(first)
    first.ask("DescribeWorkflow", workflow_id="w")
    assert second.call("DescribeWorkflow", workflow_id="w")["error"]["code"] == "NOT_FOUND"
    assert first.is_silent()


def test_a_report_waits_for_the_heartbeat_before_it_and_a_start_does_not(node):
    client = node.client()
    client.ask("RecordHeartbeat", token="t", details={"at": 1})
    client.ask("FailActivityTask", token="t", failure={"type": "E", "message": "m"})
    beat = node.lease_keeper.hear(Heartbeat)
    assert (beat.details, beat.has_details, beat.beat) == (b'j{"at":1}', True, 0)
    assert node.history.hears_nothing(Ask)
    reply(node, "lease_keeper", beat.n, Deadline(77, False))
    assert client.answer()["ok"] == {"lease_deadline_ms": 77, "cancel_requested": False}
    ask = node.history.hear(Ask)
    assert ask.command == FailActivity("t", Failure("E", "m"))
    reply(node, "history", ask.n, Done("Retrying"))
    assert client.answer()["ok"] == {"state": "Retrying"}


def test_a_workflow_that_failed_is_told_with_status_and_failure(node):
    client = node.client()
    client.ask("GetResult", workflow_id="w", wait_ms=5_000)
    watch = node.history.hear(Watch)
    reply(node, "history", watch.n, Closed("Failed", None, Failure("Boom", "why")))
    error = client.answer()["error"]
    assert (error["code"], error["status"]) == ("WORKFLOW_FAILED", "Failed")
    assert error["failure"]["type"] == "Boom"


def test_a_wait_for_a_result_ends_in_time_and_history_is_told(node):
    client = node.client()
    client.ask("GetResult", workflow_id="w", wait_ms=20)
    watch = node.history.hear(Watch)
    assert client.answer()["error"]["code"] == "DEADLINE_EXCEEDED"
    assert node.history.hear(Unwatch).n == watch.n


def ask_for_result(client):
    client._id = 0
    client.ask("GetResult", workflow_id="w", wait_ms=5_000)


def test_who_asks_for_a_result_again_and_again_gets_the_answer_to_the_first_time(node):
    node.host.stop_clock()
    client = node.client()
    ask_for_result(client)
    watch = node.history.hear(Watch)
    for _ in range(20):
        ask_for_result(client)
    assert node.history.hears_nothing(Watch)
    reply(node, "history", watch.n, Closed("Completed", b"m\x01", None))
    assert client.answer()["ok"]["result"] == 1
    assert client.is_silent()


def test_a_watch_that_may_have_got_lost_is_put_again_as_the_same(node, monkeypatch):
    monkeypatch.setattr(gateway_watches, "WATCH_AGAIN_MS", 0)
    client = node.client()
    ask_for_result(client)
    watch = node.history.hear(Watch)
    ask_for_result(client)
    assert node.history.hear(Watch) == watch


def test_a_wait_for_ever_ends_at_the_servers_limit(node, monkeypatch):
    monkeypatch.setattr(gateway, "RESULT_WAIT_MAX_MS", 20)
    client = node.client()
    client.ask("GetResult", workflow_id="w", wait_ms=2**53)
    error = client.answer()["error"]
    assert (error["code"], "within 20 ms" in error["message"]) == ("DEADLINE_EXCEEDED", True)
    node.history.hear(Unwatch)


def test_a_refusal_of_history_is_passed_on(node):
    client = node.client()
    client.ask("CompleteActivityTask", token="t", result=None)
    ask = node.history.hear(Ask)
    assert ask.command == CompleteActivity("t", None)
    reply(node, "history", ask.n, Refusal("FAILED_PRECONDITION", "stale"))
    assert client.answer() == {
        "id": 1,
        "error": {"code": "FAILED_PRECONDITION", "message": "stale"},
        "n": 5,
    }


def test_what_was_on_its_way_to_a_dead_history_is_answered_unavailable_at_once(node):
    client = node.client()
    start(client)
    client.ask("GetResult", workflow_id="w", wait_ms=60_000)
    old = node.history.hear(Ask)
    node.remove("history")
    codes = {client.answer()["error"]["code"] for _ in range(2)}
    assert codes == {"UNAVAILABLE"}
    assert client.call("DescribeWorkflow", workflow_id="w")["error"]["code"] == "UNAVAILABLE"
    node.put("history")
    node.tell_peers()
    node.welcome()
    start(client)
    ask = node.history.hear(Ask)
    assert ask.n != old.n
    reply(node, "history", ask.n, Started())
    assert client.answer()["ok"]["run"] == 1


def test_a_poll_at_a_dead_scheduler_and_a_beat_at_a_dead_lease_keeper_are_unavailable(node):
    client = node.client()
    client.ask("PollActivityTask", worker_id="w1", wait_ms=60_000)
    node.scheduler.hear(Poll)
    node.remove("scheduler")
    assert client.answer()["error"]["code"] == "UNAVAILABLE"
    client.ask("RecordHeartbeat", token="t")
    assert node.lease_keeper.hear(Heartbeat).has_details is False
    node.remove("lease_keeper")
    assert client.answer()["error"]["code"] == "UNAVAILABLE"


def test_a_poll_without_a_task_is_answered_with_null(node):
    client = node.client()
    client.ask("PollActivityTask", worker_id="w1", task_queue="q", types=["a"], request_id="r")
    poll = node.scheduler.hear(Poll)
    assert (poll.task_queue, poll.types, poll.wait_ms, poll.poll_id) == ("q", ("a",), 0, "r")
    node.scheduler.say(node.name, Polled(poll.n, None))
    assert client.answer() == {"id": 1, "ok": None}


def test_dead_letters_are_asked_for_as_of_the_newest_commit_that_was_answered(node):
    client = node.client()
    client.ask("RedriveDeadLetter", workflow_id="w", activity_id="a", request_id="r")
    client.ask("ListDeadLetters", failure_type="E")
    ask = node.history.hear(Ask)
    reply(node, "history", ask.n, Done(), commit=42)
    assert client.answer()["ok"] == {}
    listing = node.dlq.hear(ListDead)
    assert (listing.commit, listing.failure_type) == (42, "E")
    node.dlq.say(node.name, DeadListed(listing.n, ({"workflow_id": "w"},), "next"))
    assert client.answer()["ok"] == {
        "dead_letters": [{"workflow_id": "w"}],
        "next_page": "next",
    }


def test_the_same_bytes_again_are_the_same_request(node):
    node.host.stop_clock()
    client = node.client()
    start(client)
    client._id = 0
    start(client)
    ask = node.history.hear(Ask)
    assert node.history.hears_nothing(Ask)
    reply(node, "history", ask.n, Started())
    assert client.answer()["ok"]["run"] == 1
    assert client.is_silent()


def test_requests_without_an_id_are_never_taken_for_repeats(node):
    client = node.client()
    for _ in range(2):
        client.send(b'{"id": null, "op": "Ping"}')
    assert [client.answer()["id"], client.answer()["id"]] == [None, None]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"id": 1, "op": "Nothing"}', "op"),
        (b'{"id": 1, "op": "SignalWorkflow", "args": {}}', "workflow_id"),
        (b'{"id": 1, "op": "Ping", "args": {"x": 1}}', "x"),
        (b'{"id": 1, "op": "GetResult", "args": {"workflow_id": "w", "wait_ms": -1}}', "wait_ms"),
        (b'{"id": 1, "op": "StartWorkflow", "args": {"type": "a b", "workflow_id": "w"}}', "type"),
        (b'{"id": 1, "op": "CompleteActivityTask", "args": {"token": "t"}}', "result"),
        (b'{"id": 1, "op": ' + b"[" * 5_000, ""),
        (b'{"id": 1, "op"', ""),
    ],
)
def test_anything_malformed_is_answered_naming_the_field(node, body, field):
    client = node.client()
    client.send(body)
    answer = client.answer()
    assert answer["error"]["code"] == "INVALID_ARGUMENT"
    assert field in answer["error"]["message"]


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\x00"],
        [b"noise" * 100_000],
        [b"\x81" * 10_000],
        [b"\xdf\xff\xff\xff\xff"],
        [b"a", b"b", b"c"],
        [b"", b"", b""],
        [b"{" + b"\xff" * 1_000],
    ],
)
def test_noise_disturbs_nobody(node, frames):
    client = node.client()
    client.socket.send_multipart(frames)
    assert node.client().call("Ping")["ok"]


def test_a_connection_with_10_000_requests_open_is_told_to_wait(node):
    client = node.client()
    client.socket.setsockopt(zmq.SNDHWM, 0)
    for _ in range(10_001):
        start(client)
    answer = client.answer(20_000)
    assert (answer["id"], answer["error"]["code"]) == (10_001, "RESOURCE_EXHAUSTED")
    assert node.client().call("Ping")["ok"]


def test_a_client_that_reads_nothing_holds_up_nobody(node):
    lazy = node.client()
    lazy.socket.setsockopt(zmq.RCVHWM, 1)
    big = {"id": "x" * 100_000, "op": "Ping"}
    for n in range(300):
        lazy.send(msgspec.json.encode({**big, "id": big["id"] + str(n)}))
    assert node.client().call("Ping")["ok"]


def test_where_workers_connect_can_be_asked(node):
    assert node.client().call("WorkerEndpoint")["ok"] == {"endpoint": node.workers}


def test_a_command_without_an_answer_is_sent_again_after_a_second(node):
    client = node.client()
    start(client)
    first = node.history.hear(Ask)
    assert node.history.hear(Ask) == first
