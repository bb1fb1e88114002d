from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from perdure import errors, wire
from perdure.client import Client
from perdure.failures import Failure


def test_a_start_sends_name_input_and_a_request_id_of_its_own(node, client):
    def checkout(order: str, cents: int) -> None: ...

    handle = client.start_workflow(checkout, "o-42", cents=1999, workflow_id="w", task_queue="q")
    op, args = node.heard[0]
    assert op == "StartWorkflow"
    assert len(args.pop("request_id")) == 24
    assert args == {
        "type": "checkout",
        "workflow_id": "w",
        "input": {"order": "o-42", "cents": 1999},
        "task_queue": "q",
    }
    assert (handle.workflow_id, handle.result()) == ("w", "w")


def test_every_operation_sends_the_names_of_the_contract(node, client):
    node.handler = lambda op, args: {
        "events": [],
        "next_after": None,
        "workflows": [],
        "dead_letters": [],
        "next_page": None,
        "state": "Retrying",
        "lease_deadline_ms": 9,
        "token": "t",
    }
    client.describe_workflow("w")
    client.history("w")
    client.list_workflows(type="T", status="Running", limit=5)
    client.list_dead_letters(failure_type="E")
    client.redrive_dead_letter("w", "a", request_id="r")
    client.fail_dead_letter("w", "a", request_id="r")
    client.complete_dead_letter("w", "a", 7, request_id="r")
    assert client.poll_activity_task("q", "w2", types=["a"], wait_ms=5, request_id="r").token == "t"
    client.complete_activity_task("t", {"a": 1})
    assert client.fail_activity_task("t", Failure("E", "m", details={"a": 1})) == "Retrying"
    assert client.record_heartbeat("t", {"at": 1}) == 9
    assert client.record_heartbeat("t") == 9
    dead = {"workflow_id": "w", "activity_id": "a", "request_id": "r"}
    assert node.heard == [
        ("DescribeWorkflow", {"workflow_id": "w"}),
        ("GetHistory", {"workflow_id": "w", "after": 0, "limit": 1000}),
        ("ListWorkflows", {"type": "T", "status": "Running", "limit": 5}),
        ("ListDeadLetters", {"failure_type": "E"}),
        ("RedriveDeadLetter", dead),
        ("FailDeadLetter", dead),
        ("CompleteDeadLetter", {**dead, "result": 7}),
        (
            "PollActivityTask",
            {"worker_id": "w2", "task_queue": "q", "types": ["a"], "wait_ms": 5, "request_id": "r"},
        ),
        ("CompleteActivityTask", {"token": "t", "result": {"a": 1}}),
        (
            "FailActivityTask",
            {"token": "t", "failure": {"type": "E", "message": "m", "details": {"a": 1}}},
        ),
        ("RecordHeartbeat", {"token": "t", "details": {"at": 1}}),
        ("RecordHeartbeat", {"token": "t"}),
    ]


def test_a_whole_history_is_read_page_by_page(node, client):
    pages = {0: ([{"event_id": 1}], 1), 1: ([{"event_id": 2}], 2), 2: ([], None)}

    def handler(op, args):
        events, after = pages[args["after"]]
        return {"events": events, "next_after": after}

    node.handler = handler
    assert [event.event_id for event in client.history("w")] == [1, 2]
    assert [event.event_id for event in client.history("w", limit=1)] == [1]


def test_refusals_are_raised_as_what_they_are(node, client):
    def handler(op, args):
        raise errors.WorkflowFailed("text", "Failed", Failure("Boom", "why"))

    node.handler = handler
    with pytest.raises(errors.WorkflowFailed) as caught:
        client.result("w")
    assert (caught.value.status, caught.value.failure.type) == ("Failed", "Boom")
    assert len(node.heard) == 1


def test_what_does_not_fit_is_refused_before_anything_is_sent(node, client):
    with pytest.raises(errors.InvalidArgument, match="workflow_id"):
        client.describe_workflow("")
    assert node.heard == []


@pytest.mark.parametrize("problem", [errors.Unavailable, errors.Internal, errors.ResourceExhausted])
def test_an_unknown_outcome_is_asked_again_with_the_same_request_id(node, client, problem, echoes):
    def handler(op, args):
        if len(node.heard) < 3:
            raise problem("not now")
        return echoes(op, args)

    node.handler = handler
    client.start_workflow("T", workflow_id="w")
    assert len(node.heard) == 3
    assert len({args["request_id"] for _, args in node.heard}) == 1


def test_an_unknown_outcome_is_raised_when_the_time_is_up(node):
    def handler(op, args):
        raise errors.Unavailable("not now")

    node.handler = handler
    with Client(node.endpoint, timeout_ms=100) as client, pytest.raises(errors.Unavailable):
        client.ping()


def test_a_request_without_an_answer_is_sent_again_as_it_was(node, client, echoes):
    def handler(op, args):
        if len(node.heard) < 2:
            raise TimeoutError
        return echoes(op, args)

    node.handler = handler
    client.redrive_dead_letter("w", "a")
    assert node.heard[0] == node.heard[1]


def test_no_node_is_unavailable_and_names_the_endpoint(path):
    with (
        Client(f"ipc://{path}/none", timeout_ms=150) as client,
        pytest.raises(errors.Unavailable, match=r"no node answers at ipc://.* \(waited 150 ms\)"),
    ):
        client.ping()


def test_a_node_that_hangs_is_unavailable_in_time(node):
    def handler(op, args):
        raise TimeoutError

    node.handler = handler
    with (
        Client(node.endpoint, timeout_ms=150) as client,
        pytest.raises(errors.Unavailable, match="did not answer"),
    ):
        client.ping()


def test_a_result_that_does_not_come_in_time_is_deadline_exceeded(node, client):
    def handler(op, args):
        raise errors.DeadlineExceeded("not yet")

    node.handler = handler
    with pytest.raises(errors.DeadlineExceeded, match="25000 ms"):
        client.result("w", timeout_ms=25_000)
    waits = [args["wait_ms"] for _, args in node.heard]
    assert waits[0] == max(waits) == 10_000
    assert 10_000 < sum(waits) <= 25_000


def test_an_endpoint_that_is_none_is_refused(path):
    with (
        Client("nonsense", timeout_ms=100) as client,
        pytest.raises(errors.InvalidArgument, match="nonsense"),
    ):
        client.ping()
    with (
        Client("ipc:///tmp/" + "é" * 60, timeout_ms=100) as client,
        pytest.raises(errors.InvalidArgument, match="107"),
    ):
        client.ping()


def test_the_node_of_a_data_directory_is_found_again_where_it_went(path, make_node):
    file = path / "node.json"
    with Client(data_dir=path, timeout_ms=5_000) as client:
        first = make_node("a")
        file.write_text(json.dumps({"endpoint": first.endpoint}))
        assert client.ping().op == "Ping"
        first.close()
        second = make_node("b")
        file.write_text(json.dumps({"endpoint": second.endpoint}))
        assert client.ping().op == "Ping"
        assert len(second.heard) == 1
        second.close()


def test_a_node_that_comes_back_at_its_endpoint_gets_what_it_did_not_answer(
    path, make_node, silent
):
    first = make_node("s", silent)
    got: list[Any] = []
    with Client(first.endpoint) as client:
        thread = threading.Thread(target=lambda: got.append(client.ping().op))
        thread.start()
        first.until_heard()
        first.close()
        second = make_node("s")
        thread.join()
        second.close()
    assert got == ["Ping"]


def test_no_data_directory_is_said(path, monkeypatch):
    monkeypatch.delenv("PERDURE_ENDPOINT", raising=False)
    monkeypatch.chdir(path)
    with Client(timeout_ms=60) as client, pytest.raises(errors.Unavailable, match=r"node\.json"):
        client.ping()


def test_the_environment_names_the_endpoint(node, monkeypatch):
    monkeypatch.setenv("PERDURE_ENDPOINT", node.endpoint)
    with Client() as client:
        assert client.ping().op == "Ping"


def test_eight_threads_with_a_thousand_calls_each_get_their_own_answers(node, client):
    wrong: list[Any] = []

    def work(name: int) -> None:
        for n in range(1_000):
            workflow_id = f"{name}-{n}"
            got = client.result(workflow_id)
            if got != workflow_id:
                wrong.append((workflow_id, got))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(node.heard) == 8_000


def test_a_thread_that_gives_up_leaves_the_others_their_answers(node, echoes):
    release = threading.Event()

    def handler(op, args):
        if args.get("workflow_id") == "never":
            raise TimeoutError
        release.wait()
        return echoes(op, args)

    node.handler = handler
    with Client(node.endpoint, timeout_ms=300) as client:
        got: list[Any] = []

        def impatient() -> None:
            with pytest.raises(errors.Unavailable):
                client.describe_workflow("never")
            release.set()

        leader = threading.Thread(target=impatient)
        leader.start()
        node.until_heard()
        client.timeout_ms = 5_000
        follower = threading.Thread(target=lambda: got.append(client.ping().op))
        follower.start()
        leader.join()
        follower.join()
        assert got == ["Ping"]


def test_many_calls_at_once_are_answered_in_order(node, client, echoes):
    def handler(op, args):
        if args["workflow_id"] == "w7":
            raise errors.NotFound("no")
        return echoes(op, args)

    node.handler = handler
    calls = [wire.DescribeWorkflow(f"w{n}") for n in range(5_000)]
    got = client.call_many(calls)
    assert isinstance(got[7], errors.NotFound)
    assert [it["workflow_id"] for it in got[8:]] == [f"w{n}" for n in range(8, 5_000)]


def test_a_closed_client_says_so_also_to_a_call_under_way(node):
    def handler(op, args):
        raise TimeoutError

    node.handler = handler
    client = Client(node.endpoint)
    raised: list[BaseException] = []

    def call() -> None:
        try:
            client.ping()
        except errors.Unavailable as problem:
            raised.append(problem)

    thread = threading.Thread(target=call)
    thread.start()
    node.until_heard()
    client.close()
    client.close()
    thread.join(30)
    assert "closed" in str(raised[0])
    with pytest.raises(errors.Unavailable, match="closed"):
        client.ping()


def test_a_payload_that_is_sent_is_the_one_that_is_encoded(node, client):
    client.complete_activity_task("t", {"b": b"x", "a": [1.5, None]})
    assert node.heard[0][1]["result"] == {"a": [1.5, None], "b": b"x"}
