from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors, values, wire, wire_checks
from perdure.core import limits
from perdure.errors import InvalidArgument
from perdure.failures import Failure


def ask(op, args, form=wire.JSON, request_id=1):
    return form.encode({"id": request_id, "op": op, "args": args})


def refusal(body):
    form = wire.form_of(body)
    assert form is not None
    with pytest.raises(wire.Refused) as caught:
        form.read(body)
    return caught.value


def test_the_bounds_are_those_of_the_engine():
    assert wire.REQUEST_BYTES_MAX == limits.REQUEST_BYTES_MAX
    assert wire.OPEN_REQUESTS_MAX == limits.CLIENT_REQUESTS_MAX
    assert wire_checks.ID_BYTES_MAX == limits.ID_BYTES_MAX
    assert wire_checks.NAME_CHARS_MAX == limits.NAME_CHARS_MAX
    assert wire_checks.PAGE_MAX == limits.PAGE_MAX
    assert wire_checks.INTEGER_MAX == limits.INTEGER_MAX
    assert values.PAYLOAD_MAX == limits.PAYLOAD_BYTES_MAX


@pytest.mark.parametrize("form", [wire.JSON, wire.MSGPACK], ids=lambda it: it.name)
@pytest.mark.parametrize("request_id", [0, 7, "a", None, [1, {"b": 2}], 1.5])
def test_an_id_of_any_kind_comes_back_as_it_was(form, request_id):
    request = wire.form_of(ask("Ping", {}, form, request_id)).read(
        ask("Ping", {}, form, request_id)
    )
    answer = form.ok(request.id, {})
    decode = msgspec.json.decode if form is wire.JSON else msgspec.msgpack.decode
    assert decode(answer) == {"id": request_id, "ok": {}}


@pytest.mark.parametrize("args", [None, {}])
def test_arguments_that_are_absent_or_null_are_none(args):
    assert wire.JSON.read(ask("Ping", args)).args == wire.Ping()
    assert wire.JSON.read(b'{"id": 1, "op": "Ping"}').args == wire.Ping()


@pytest.mark.parametrize("form", [wire.JSON, wire.MSGPACK], ids=lambda it: it.name)
@pytest.mark.parametrize(
    ("op", "args", "field"),
    [
        ("GetResult", {}, "workflow_id"),
        ("GetResult", [], "args"),
        ("GetResult", "w", "args"),
        ("Ping", 1, "args"),
        ("GetResult", {"workflow_id": 1}, "workflow_id"),
        ("GetResult", {"workflow_id": "w", "wait_ms": -1}, "wait_ms"),
        ("GetResult", {"workflow_id": "w", "wait_ms": 2**53 + 1}, "wait_ms"),
        ("GetResult", {"workflow_id": "w", "wait_ms": True}, "wait_ms"),
        ("GetResult", {"workflow_id": "w", "wait_ms": 1.5}, "wait_ms"),
        ("GetHistory", {"workflow_id": "w", "limit": 1_001}, "limit"),
        ("GetHistory", {"workflow_id": "w", "limit": 0}, "limit"),
        ("DescribeWorkflow", {"workflow_id": "w", "wait": 1}, "wait"),
        ("ListWorkflows", {"status": "running"}, "status"),
        ("StartWorkflow", {"type": "", "workflow_id": "w"}, "type"),
        ("StartWorkflow", {"type": "x" * 129, "workflow_id": "w"}, "type"),
        ("StartWorkflow", {"type": "T", "workflow_id": "w", "task_queue": "a/b"}, "task_queue"),
        ("StartWorkflow", {"type": "T", "workflow_id": "w", "request_id": "\n"}, "request_id"),
        ("StartWorkflow", {"type": "T", "workflow_id": "w", "options": {"x": 1}}, "options"),
        ("PollActivityTask", {"worker_id": "w 1"}, "worker_id"),
        ("PollActivityTask", {"worker_id": "w1", "types": ["a b"]}, "types"),
        ("CompleteActivityTask", {"token": "t"}, "result"),
        ("CompleteActivityTask", {"token": "", "result": 1}, "token"),
        ("FailActivityTask", {"token": "t", "failure": {"message": "m"}}, "failure"),
        ("RedriveDeadLetter", {"workflow_id": "w", "activity_id": "a", "by": ""}, "by"),
        ("SignalWorkflow", {"workflow_id": "w", "name": "a b"}, "name"),
        ("QueryWorkflow", {"workflow_id": "w", "name": "n", "run": 0}, "run"),
        ("UpdateWorkflow", {"workflow_id": "w", "name": "n", "request_id": ""}, "request_id"),
        ("CancelWorkflow", {"workflow_id": "w", "reason": "x" * 5_000}, "reason"),
        ("ReadEvents", {"after": "x"}, "after"),
        ("CompleteDeadLetter", {"workflow_id": "w", "activity_id": "a"}, "result"),
    ],
)
def test_what_does_not_fit_is_refused_naming_the_field(form, op, args, field):
    refused = refusal(ask(op, args, form))
    assert bytes(refused.id) == form.encode(1)
    assert refused.error.code == "INVALID_ARGUMENT"
    assert field in refused.error.message


@pytest.mark.parametrize("workflow_id", ["a", "é" * 100, "a b/c#%", "@1", "日本", "x" * 200])
def test_ids_are_any_text_of_200_bytes_at_most(workflow_id):
    assert wire.DescribeWorkflow(workflow_id).workflow_id == workflow_id


@pytest.mark.parametrize(
    "workflow_id", ["", "a\x00", "tab\t", "\x7f", "\x85", "x" * 201, "é" * 101, "\ud800"]
)
def test_other_ids_are_refused(workflow_id):
    with pytest.raises(InvalidArgument, match="workflow_id"):
        wire.DescribeWorkflow(workflow_id)


@pytest.mark.parametrize("op", ["SignalWorkflows", "Nothing", ""])
def test_an_operation_that_is_not_there_is_named(op):
    refused = refusal(ask(op, {}))
    assert repr(op) in refused.error.message or op in refused.error.message
    assert refused.error.field == "op"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"id": 7, "op"', b"7"),
        (b'{"id": "x", "op": ' + b"[" * 3_000, b'"x"'),
        (b'{"op": "Ping", "id": 7, ' + b"[" * 3_000, b"null"),
        (b"\x82\xa2id\x07\xa2op" + b"\x91" * 3_000, b"\x07"),
        (b"\x82\xa2id\xa1x\xa2op" + b"\x91" * 3_000, b"\xa1x"),
        (b"\x82\xa2id\xa5x", b"\xc0"),
        (b'{"op": "Ping"}', b"null"),
    ],
)
def test_the_id_of_a_broken_request_is_found_where_it_stands_first(body, found):
    assert bytes(refusal(body).id) == found


@pytest.mark.parametrize("body", [b"", b"\x00", b"[1]", b" {}", b"\x91\x01", b"text"])
def test_what_is_no_map_has_no_form(body):
    assert wire.form_of(body) is None


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(noise):
    for body in (noise, b"{" + noise, b"\x83" + noise, b"\x82\xa2id\x01\xa2op\xa4Ping" + noise):
        form = wire.form_of(body)
        if form is None:
            continue
        try:
            form.read(body)
        except wire.Refused as refused:
            form.error(refused.id, refused.error)


# --- payloads -----------------------------------------------------------------


def payload(form, value):
    return form.payload(msgspec.Raw(form.encode(value)), "input")


def test_a_payload_keeps_its_encoding():
    assert payload(wire.JSON, {"a": 1}) == b'j{"a":1}'
    assert payload(wire.MSGPACK, {"a": 1}) == b"m\x81\xa1a\x01"


@pytest.mark.parametrize("form", [wire.JSON, wire.MSGPACK], ids=lambda it: it.name)
def test_absent_and_null_are_no_payload(form):
    assert form.payload(wire.ABSENT, "input") is None
    assert payload(form, None) is None


@pytest.mark.parametrize(
    "raw",
    [
        wire.MSGPACK.encode(float("nan")),
        wire.MSGPACK.encode({1: 2}),
        wire.MSGPACK.encode(msgspec.msgpack.Ext(5, b"x")),
        b"\x91" * 500 + b"\x01",
        b"\xa1\xff",
        b"\xc1",
        wire.MSGPACK.encode("x" * (2 * 1024 * 1024)),
    ],
)
def test_what_is_no_value_is_refused_naming_the_field(raw):
    with pytest.raises(InvalidArgument, match="input"):
        wire.MSGPACK.payload(msgspec.Raw(raw), "input")


@pytest.mark.parametrize(
    "raw",
    [b"\xca\x7f\xc0\x00\x00", b"\xcb\xff\xf0" + bytes(6), b"\x81\xc4\x01a\x01", b"\xd4\x05x"],
    ids=["short nan", "infinity", "key of bytes", "extension"],
)
@pytest.mark.parametrize("before", [b"\x92\xa3abc", b"\x92\x90", b"\x92\xcd\x01\x00"])
def test_what_is_no_value_is_found_wherever_it_stands(raw, before):
    with pytest.raises(InvalidArgument, match="input"):
        wire.MSGPACK.payload(msgspec.Raw(before + raw), "input")


def test_plain_messagepack_stays_byte_for_byte():
    # 5 in nine bytes: valid, though no encoder of ours would write it.
    raw = b"\x92\xcf" + bytes(7) + b"\x05\xa1a"
    assert wire.MSGPACK.payload(msgspec.Raw(raw), "input") == b"m" + raw
    assert values.digest(b"m" + raw) == values.digest(values.encode([5, "a"]))


@pytest.mark.parametrize("raw", [b"1e999", b'"\xff"', b"[" * 201 + b"]" * 201, b"1" * 30])
def test_json_that_is_no_value_is_refused_naming_the_field(raw):
    with pytest.raises(InvalidArgument, match="input"):
        wire.JSON.payload(msgspec.Raw(raw), "input")


def test_two_hundred_levels_are_kept():
    raw = msgspec.Raw(b"[" * 200 + b"]" * 200)
    assert wire.JSON.payload(raw, "input") == b"j" + bytes(raw)


def test_many_containers_beside_each_other_are_not_deep():
    wide = [[]] * 1_000
    assert values.decode(payload(wire.MSGPACK, wide)) == wide
    assert values.decode(payload(wire.JSON, wide)) == wide


def test_a_payload_is_shown_in_the_form_of_the_answer():
    shown = wire.JSON.ok(msgspec.Raw(b"1"), {"result": wire.JSON.render(b"m\xc4\x01x")})
    assert shown == b'{"id":1,"ok":{"result":"eA=="}}'
    shown = wire.MSGPACK.ok(msgspec.Raw(b"\x01"), {"result": wire.MSGPACK.render(b'j{"a":1}')})
    assert msgspec.msgpack.decode(shown)["ok"] == {"result": {"a": 1}}
    spliced = wire.JSON.render(b'j{"a"  :1}')
    assert bytes(spliced) == b'{"a"  :1}'


# --- errors ---------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(errors.CODES))
def test_an_error_is_the_same_on_both_ends(code):
    sent = errors.from_code(code, "text")
    body = wire.MSGPACK.error(msgspec.Raw(b"\x01"), sent, 5)
    answer = wire.read_answer(body)
    assert (answer.id, answer.n) == (1, 5)
    got = wire.to_error(answer.error)
    assert (type(got), got.message) == (type(sent), "text")


def test_a_failed_workflow_is_the_same_on_both_ends():
    failure = Failure("Boom", "why", cause=Failure("Deep"))
    sent = errors.WorkflowFailed("text", "Failed", failure)
    got = wire.to_error(wire.read_answer(wire.MSGPACK.error(msgspec.Raw(b"\x01"), sent)).error)
    assert (got.status, got.failure) == ("Failed", failure)


def test_a_failure_arrives_as_it_was_sent():
    failure = Failure(
        "Boom", "why", True, 5, {"a": b"x"}, "stack", Failure("Deep"), ("builtins.ValueError",)
    )
    fields = {name: getattr(failure, name) for name in Failure.__struct_fields__}
    body = wire.write_request(1, wire.FailActivityTask("t", wire.FailureArgs(**fields)))
    assert wire.MSGPACK.read(body).args.failure.to_failure() == failure


def test_a_request_above_4_mib_is_refused_before_it_is_sent():
    raw = msgspec.Raw(msgspec.msgpack.encode(b"x" * wire.REQUEST_BYTES_MAX))
    with pytest.raises(InvalidArgument, match="4 MiB"):
        wire.write_request(1, wire.CompleteActivityTask("t", raw))
