"""The protocol as a client in another language sees it: sockets, bytes, and nothing of ours."""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time

import msgspec
import pytest
import zmq

from perdure import errors

pytestmark = pytest.mark.process

ids = itertools.count(1)


class Bare:
    """Twenty lines are a client: JSON over a DEALER."""

    def __init__(self, socket):
        self.socket = socket

    def ask(self, op, /, **args):
        number = next(ids)
        self.socket.send(json.dumps({"id": number, "op": op, "args": args}).encode())
        return number

    def answer(self, timeout_ms=10_000):
        assert self.socket.poll(timeout_ms), "no answer"
        return json.loads(self.socket.recv())

    def call(self, op, /, **args):
        """The answer that says yes or no: UNAVAILABLE says neither, so the protocol asks again."""
        for _ in range(100):
            number = self.ask(op, **args)
            answer = self.answer()
            assert answer["id"] == number
            if answer.get("error", {}).get("code") != "UNAVAILABLE":
                break
            self.socket.poll(100)
        return answer

    def ok(self, op, /, **args):
        answer = self.call(op, **args)
        assert "ok" in answer, answer
        return answer["ok"]

    def error(self, op, /, **args):
        answer = self.call(op, **args)
        assert "error" in answer, answer
        return answer["error"]["code"]


@pytest.fixture
def bare(node, sockets):
    return Bare(sockets(zmq.DEALER, node.endpoint))


def poll(bare, **more):
    return bare.ok("PollActivityTask", task_queue="hand", worker_id="me", wait_ms=10_000, **more)


def test_ping_tells_version_node_and_time(bare):
    ok = bare.ok("Ping")
    assert ok["node"].startswith("node.")
    assert abs(ok["now_ms"] - time.time() * 1_000) < 86_400_000
    assert ok["version"]


def test_a_req_socket_works_too(node, sockets):
    socket = sockets(zmq.REQ, node.endpoint)
    for _ in range(3):
        socket.send(b'{"id": 1, "op": "Ping"}')
        assert socket.poll(5_000)
        assert json.loads(socket.recv())["ok"]["node"]


def test_a_workflow_started_in_json_can_be_read_in_messagepack_and_back(node, sockets, bare):
    bare.ok("StartWorkflow", type="double", workflow_id="forms", input=[{"a": [1, "é", None]}])
    want = [{"a": [1, "é", None]}] * 2
    assert bare.ok("GetResult", workflow_id="forms", wait_ms=10_000)["result"] == want
    packed = sockets(zmq.DEALER, node.endpoint)
    packed.send(
        msgspec.msgpack.encode({"id": 1, "op": "GetResult", "args": {"workflow_id": "forms"}})
    )
    assert msgspec.msgpack.decode(packed.recv())["ok"]["result"] == want
    args = {"type": "echo", "workflow_id": "bytes", "input": [b"\x00x"]}
    packed.send(msgspec.msgpack.encode({"id": 2, "op": "StartWorkflow", "args": args}))
    args = {"workflow_id": "bytes", "wait_ms": 10_000}
    packed.send(msgspec.msgpack.encode({"id": 3, "op": "GetResult", "args": args}))
    assert msgspec.msgpack.decode(packed.recv())["id"] == 2
    assert msgspec.msgpack.decode(packed.recv())["ok"]["result"] == b"\x00x"
    assert bare.ok("GetResult", workflow_id="bytes")["result"] == "AHg="


def test_a_pipeline_takes_effect_in_order(bare):
    start = bare.ask("StartWorkflow", type="echo", workflow_id="pipe", input=[7])
    result = bare.ask("GetResult", workflow_id="pipe", wait_ms=10_000)
    described = bare.ask("DescribeWorkflow", workflow_id="pipe")
    answers = {answer["id"]: answer for answer in (bare.answer(), bare.answer(), bare.answer())}
    assert answers[start]["ok"] == {"workflow_id": "pipe", "run": 1}
    assert answers[result]["ok"] == {"status": "Completed", "result": 7}
    assert answers[described]["ok"]["type"] == "echo"


def test_a_start_with_the_same_request_id_is_answered_as_the_first_time(bare):
    args = {"type": "echo", "workflow_id": "once", "input": [1], "request_id": "r1"}
    assert bare.ok("StartWorkflow", **args) == bare.ok("StartWorkflow", **args)
    assert bare.error("StartWorkflow", **{**args, "input": [2]}) == "FAILED_PRECONDITION"
    assert bare.error("StartWorkflow", **{**args, "request_id": "r2"}) == "ALREADY_EXISTS"
    # The same value in another encoding is the same value.
    body = {"id": 1, "op": "StartWorkflow", "args": {**args, "request_id": "r1"}}
    bare.socket.send(msgspec.msgpack.encode(body))
    assert bare.socket.poll(5_000)
    assert "ok" in msgspec.msgpack.decode(bare.socket.recv())


def test_a_failed_workflow_is_told_with_its_failure(bare):
    bare.ok("StartWorkflow", type="fails", workflow_id="bad")
    error = bare.call("GetResult", workflow_id="bad", wait_ms=10_000)["error"]
    assert (error["code"], error["status"]) == ("WORKFLOW_FAILED", "Failed")
    assert (error["failure"]["type"], error["failure"]["message"]) == ("ValueError", "on purpose")
    described = bare.ok("DescribeWorkflow", workflow_id="bad")
    assert (described["status"], described["failure"]["type"]) == ("Failed", "ValueError")


def test_an_activity_is_done_by_hand(bare):
    bare.ok("StartWorkflow", type="hand", workflow_id="h1", input=["x"])
    task = poll(bare, request_id="p1")
    assert (task["workflow_id"], task["activity_id"], task["type"]) == ("h1", "a", "by_hand")
    assert (task["attempt"], task["input"], task["heartbeat_details"]) == (1, ["x"], None)
    assert task["idempotency_key"] == "h1/a"
    assert poll(bare, request_id="p1")["token"] == task["token"]
    beat = bare.ok("RecordHeartbeat", token=task["token"], details={"at": 3})
    assert beat["lease_deadline_ms"] > 0
    assert beat["cancel_requested"] is False
    [pending] = bare.ok("DescribeWorkflow", workflow_id="h1")["pending_activities"]
    assert (pending["state"], pending["worker_id"]) == ("Leased", "me")
    assert pending["heartbeat_details"] == {"at": 3}
    assert bare.ok("CompleteActivityTask", token=task["token"], result={"done": 1}) == {}
    assert bare.ok("CompleteActivityTask", token=task["token"], result={"done": 1}) == {}
    assert bare.ok("GetResult", workflow_id="h1", wait_ms=10_000)["result"] == {"done": 1}
    assert bare.error("RecordHeartbeat", token=task["token"]) == "FAILED_PRECONDITION"
    kinds = [event["kind"] for event in bare.ok("GetHistory", workflow_id="h1")["events"]]
    assert kinds == [
        "WorkflowStarted",
        "ActivityTaskScheduled",
        "ActivityTaskStarted",
        "ActivityTaskCompleted",
        "WorkflowCompleted",
    ]


def test_a_large_input_and_large_details_reach_the_one_who_polls(bare):
    big = "x" * 100_000
    bare.ok("StartWorkflow", type="hand", workflow_id="big", input=[big])
    task = poll(bare)
    assert task["input"] == [big]
    bare.ok("RecordHeartbeat", token=task["token"], details=[big])
    failure = {"type": "E", "message": "m"}
    answer = bare.ok("FailActivityTask", token=task["token"], failure=failure)
    assert answer == {"state": "Retrying"}
    task = poll(bare)
    assert (task["attempt"], task["heartbeat_details"]) == (2, [big])
    bare.ok("CompleteActivityTask", token=task["token"], result=big)
    assert bare.ok("GetResult", workflow_id="big", wait_ms=10_000)["result"] == big


def test_a_large_input_reaches_a_worker(bare):
    big = "#" * 500_000
    bare.ok("StartWorkflow", type="double", workflow_id="big2", input=[big])
    assert bare.ok("GetResult", workflow_id="big2", wait_ms=10_000)["result"] == [big, big]


def test_a_dead_letter_is_listed_shown_and_resolved(bare):
    bare.ok("StartWorkflow", type="hand", workflow_id="dead", input=[5])
    for state in ("Retrying", "DeadLettered"):
        token = poll(bare)["token"]
        failure = {"type": "Broke", "message": "m", "details": {"n": 1}}
        assert bare.ok("FailActivityTask", token=token, failure=failure)["state"] == state
    [entry] = bare.ok("ListDeadLetters", workflow_id="dead")["dead_letters"]
    assert (entry["attempts"], entry["last_failure"]["type"], entry["redrives"]) == (2, "Broke", 0)
    [whole] = bare.ok("ListDeadLetters", workflow_id="dead", activity_id="a")["dead_letters"]
    assert (whole["input"], len(whole["failures"])) == ([5], 2)
    assert bare.ok("RedriveDeadLetter", workflow_id="dead", activity_id="a", request_id="r") == {}
    assert bare.ok("ListDeadLetters", workflow_id="dead")["dead_letters"] == []
    assert bare.ok("RedriveDeadLetter", workflow_id="dead", activity_id="a", request_id="r") == {}
    assert bare.error("RedriveDeadLetter", workflow_id="dead", activity_id="a") == "NOT_FOUND"
    task = poll(bare)
    assert (task["attempt"], task["idempotency_key"]) == (1, "dead/a")
    bare.ok("CompleteActivityTask", token=task["token"], result=1)


def test_lists_go_page_by_page(bare):
    for n in range(5):
        bare.ok("StartWorkflow", type="echo", workflow_id=f"list{n}")
    seen, page = [], None
    while True:
        ok = bare.ok("ListWorkflows", type="echo", limit=2, page=page)
        assert len(ok["workflows"]) <= 2
        seen += [it["workflow_id"] for it in ok["workflows"]]
        page = ok["next_page"]
        if page is None:
            break
    assert {f"list{n}" for n in range(5)} <= set(seen)
    assert len(seen) == len(set(seen))
    assert bare.error("ListWorkflows", page="nonsense") == "INVALID_ARGUMENT"
    assert bare.error("ListDeadLetters", page="nonsense") == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("op", "args", "code"),
    [
        ("DescribeWorkflow", {"workflow_id": "nobody"}, "NOT_FOUND"),
        ("GetHistory", {"workflow_id": "nobody"}, "NOT_FOUND"),
        ("GetResult", {"workflow_id": "nobody"}, "NOT_FOUND"),
        ("GetResult", {"workflow_id": "nobody", "wait_ms": 5_000}, "NOT_FOUND"),
        ("CompleteActivityTask", {"token": "forged", "result": 1}, "FAILED_PRECONDITION"),
        ("RecordHeartbeat", {"token": "forged"}, "FAILED_PRECONDITION"),
        ("RedriveDeadLetter", {"workflow_id": "no", "activity_id": "a"}, "NOT_FOUND"),
        ("SignalWorkflow", {"workflow_id": "nobody", "name": "n"}, "NOT_FOUND"),
        ("SignalWorkflow", {"workflow_id": "w"}, "INVALID_ARGUMENT"),
        ("Nonsense", {}, "INVALID_ARGUMENT"),
    ],
)
def test_refusals_have_their_codes(bare, op, args, code):
    assert bare.error(op, **args) == code


def test_noise_harms_nobody(node, sockets, bare):
    noisy = sockets(zmq.DEALER, node.endpoint)
    dice = random.Random(7)
    before = node.pid_of("gateway")
    for n in range(300):
        noisy.send(dice.randbytes(dice.choice((0, 1, 40, 2_000))))
        noisy.send(b'{"id": 1, "op": "StartWorkflow", "args": ' + dice.randbytes(n))
        noisy.send_multipart([b"a", b"", b"c", b"d"])
    noisy.send(b"{" + os.urandom(1024 * 1024))
    noisy.send(b"\x91" * 1_000_000)
    assert bare.ok("Ping")
    assert node.pid_of("gateway") == before


def test_a_message_above_4_mib_is_not_taken_and_harms_nobody_else(node, sockets, bare):
    sockets(zmq.DEALER, node.endpoint).send(b"{" + b" " * (4 * 1024 * 1024))
    assert bare.ok("Ping")


@pytest.mark.parametrize("role", ["gateway", "history", "scheduler", "dlq", "lease_keeper"])
def test_a_client_survives_the_death_of_any_actor(node, role):
    with node.client(timeout_ms=30_000) as client:
        before = client.start_workflow("double", 1, workflow_id=f"before-{role}")
        node.kill(role)
        after = client.start_workflow("double", 2, workflow_id=f"after-{role}")
        assert before.result(timeout_ms=30_000) == [1, 1]
        assert after.result(timeout_ms=30_000) == [2, 2]
        assert client.list_dead_letters(workflow_id="nobody") == []


def test_fifty_starts_with_one_request_id_make_one_workflow(node):
    outcomes = []

    def start():
        with node.client() as client:
            for _ in range(10):
                handle = client.start_workflow("echo", 1, workflow_id="r82", request_id="k")
                outcomes.append(handle.workflow_id)

    threads = [threading.Thread(target=start) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["r82"] * 50
    with node.client() as client:
        with pytest.raises(errors.FailedPrecondition):
            client.start_workflow("echo", 2, workflow_id="r82", request_id="k")
        assert [it for it in client.history("r82") if it.kind == "WorkflowStarted"][1:] == []


def test_eight_threads_on_one_client_get_their_own_answers(node):
    wrong = []

    def work(client, name):
        for n in range(250):
            workflow_id = f"t{name}-{n}"
            client.start_workflow("echo", workflow_id, workflow_id=workflow_id)
            if client.result(workflow_id, timeout_ms=30_000) != workflow_id:
                wrong.append(workflow_id)

    with node.client() as client:
        threads = [threading.Thread(target=work, args=(client, name)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
