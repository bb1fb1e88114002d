"""Invariants 47 and 49, over a real node with debug logs: values stay in the store, tokens and keys
with those they were given to; and what changed the store says for whom.
"""

from __future__ import annotations

import base64
import os
import stat

import apsw
import msgspec
import pytest
import zmq

from chaos.auditor import names
from perdure.errors import PerdureError
from tests.process.conftest import HurtNode, until

pytestmark = pytest.mark.process

SECRETS = {
    what: f"canary-{what}-0b5e9d7c41"
    for what in ("input", "result", "details", "message", "environment", "frame", "cause")
}


def forms(text):
    """The text, and as base64 and hex would show it wherever it stands in what they encode."""
    raw = text.encode()
    yield raw
    yield raw.hex().encode()
    for shift in range(3):
        # Without what depends on the bytes before it and behind it.
        yield base64.b64encode(bytes(shift) + raw)[4:-4]


def leaks(where, secrets):
    """The names of the secrets that can be read there."""
    return sorted(name for name, text in secrets.items() if any(it in where for it in forms(text)))


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A node at whose every place a secret was put: (node, its log, what clients were told)."""
    directory = tmp_path_factory.mktemp("s")
    environment = {
        "PERDURE_LOG_LEVEL": "debug",
        "SECRET_DETAILS": SECRETS["details"],
        "SECRET_MESSAGE": SECRETS["message"],
        "SHOP_PASSWORD": SECRETS["environment"],
    }
    node = HurtNode(directory, app="secret_app", workers=1, environment=environment)
    with node:
        node.start()
        answers = use(node)
        database = apsw.Connection(str(node.data / "perdure.db"), flags=apsw.SQLITE_OPEN_READONLY)
        key = database.execute("SELECT value FROM meta WHERE name = 'key'").get
        bodies = [body for (body,) in database.execute("SELECT body FROM commits ORDER BY n")]
        database.close()
        tokens = [token for token, _, _ in node.calls()]
        modes = {
            name: stat.S_IMODE(os.stat(node.data / name).st_mode)
            for name in ("", "run/node", "perdure.db", "perdure.db-wal", "witness")
        }
    secrets = SECRETS | {f"token {n}": token for n, token in enumerate(tokens)}
    return {
        "log": node.log_path.read_bytes(),
        "answers": "\n".join(answers).encode(),
        "secrets": secrets,
        "key": key,
        "records": [record for body in bodies for record in records(body)],
        "modes": modes,
    }


def use(node):
    """Work that succeeds, fails, does not fit, is repeated after deaths; each refusal's text."""
    answers = []
    with node.client(timeout_ms=30_000) as client:

        def refused(call, *args, **options):
            with pytest.raises(PerdureError) as caught:
                call(*args, **options)
            answers.append(f"{caught.value.code} {caught.value.message}")

        given = (SECRETS["input"], SECRETS["result"])
        client.start_workflow("carries", *given, workflow_id="w1").result()
        client.start_workflow("carries", *given, 60_000, workflow_id="w2")
        until(lambda: len(node.calls()) == 2, "the second attempt")
        node.kill("worker-1")
        node.kill("history")
        until(lambda: len(node.calls()) == 3, "the attempt after its worker's death")
        client.start_workflow("spills", SECRETS["input"], workflow_id="w3")
        client.start_workflow("misfits", SECRETS["input"], workflow_id="w4")
        client.start_workflow("breaks", SECRETS["cause"], workflow_id="w5")
        until(lambda: client.list_dead_letters(workflow_id="w3"), "the dead letter of w3")
        until(lambda: client.describe_workflow("w5").status == "Failed", "the end of w5")
        client.redrive_dead_letter("w3", "s")
        # The same id with other input; a token that is none; one whose lease is over; no JSON.
        refused(client.start_workflow, "carries", SECRETS["frame"], "x", workflow_id="w1")
        refused(client.complete_activity_task, SECRETS["frame"], "x")
        for token, _, _ in node.calls()[:2]:
            refused(client.complete_activity_task, token, SECRETS["frame"])
            refused(client.record_heartbeat, token, SECRETS["frame"])
        answers += raw(node, SECRETS["frame"])
    return answers


def raw(node, secret):
    """What is answered to frames that are no requests, with a secret in them."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(node.endpoint)
    heard = []
    # A name, as of an operation that there is not, is told to whoever asked for it; values are not.
    frames = [
        f'{{"id":"1","op":"StartWorkflow","args":{{"type":7,"input":"{secret}"}}}}',
        f'{{"id":"2","op":"CompleteActivityTask","args":{{"token":["{secret}"]}}}}',
        f'{{"id":"3","op":"Ping","args":"{secret}',
        f"{{{secret} is no JSON",
    ]
    try:
        for frame in frames:
            socket.send(frame.encode())
            if socket.poll(10_000):
                heard.append(b" ".join(socket.recv_multipart()).decode(errors="replace"))
    finally:
        context.destroy(linger=0)
    assert len(heard) == len(frames)
    return heard


def records(body):
    """(kind, fields by name) of every record in one commit's body."""
    for group in msgspec.msgpack.decode(body)[names.BODY.index("groups")]:
        for tag, *values in group[1]:
            kind = names.KINDS[tag]
            yield kind.name, dict(zip(kind.fields, values, strict=False))


def test_no_line_of_the_log_has_what_was_handed_in_handed_out_or_given_to_a_worker(told):
    assert b"worker.ready" in told["log"]
    assert leaks(told["log"], told["secrets"]) == []
    assert told["key"].hex().encode() not in told["log"]
    assert base64.b64encode(told["key"])[:-4] not in told["log"]


def test_no_refusal_says_what_others_handed_in_and_none_the_value_that_it_refuses(told):
    assert leaks(told["answers"], told["secrets"]) == []


@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_a_secret_is_found_in_whatever_form(before):
    text = f"{before}{SECRETS['input']} and more"
    for shown in (text.encode(), text.encode().hex().encode(), base64.b64encode(text.encode())):
        assert leaks(b"x" + shown, SECRETS) == ["input"]


def test_what_a_client_or_a_worker_changed_names_the_request_or_the_worker(told):
    kinds = {kind for kind, _ in told["records"]}
    assert kinds >= {"WorkflowStarted", "LeaseGranted", "ActivityTaskCompleted", "ActivityRedriven"}
    for kind, fields in told["records"]:
        if kind in ("WorkflowStarted", "ActivityRedriven"):
            assert fields["request_id"], kind
        elif kind in ("LeaseGranted", "RetryScheduled", "ActivityTaskCompleted"):
            assert fields["worker_id"], kind


def test_nobody_but_the_user_of_the_node_reaches_its_store_or_its_sockets(told):
    assert told["modes"][""] == told["modes"]["run/node"] == 0o700
    assert told["modes"]["perdure.db"] == told["modes"]["perdure.db-wal"] == 0o600
    assert told["modes"]["witness"] == 0o600
