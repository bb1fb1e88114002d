"""The public protocol: what clients of any language ask and are answered, in JSON or MessagePack.

One request is one map {"id", "op", "args"}, one answer {"id", "ok"} or {"id", "error"} in the same
form. Gateway and Client share these; the arguments' structs are in perdure.wire_args and can be
had from here. docs/protocol.md is the same for people.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from itertools import starmap
from typing import Any

import msgspec

from perdure import errors, values, wire_flow, wire_schedules
from perdure.errors import InvalidArgument, PerdureError
from perdure.failures import Failure
from perdure.wire_args import (
    ABSENT,
    Args,
    CompleteActivityTask,
    CompleteDeadLetter,
    DescribeWorkflow,
    FailActivityTask,
    FailDeadLetter,
    FailureArgs,
    GetHistory,
    GetResult,
    ListDeadLetters,
    ListWorkflows,
    PendingState,
    Ping,
    PollActivityTask,
    RecordHeartbeat,
    RedriveDeadLetter,
    RestartWorker,
    StartOptions,
    StartWorkflow,
    WorkerEndpoint,
    WorkerTypes,
    WorkflowStatus,
)
from perdure.wire_args import OPERATIONS as _BASIC
from perdure.wire_checks import check_nesting, check_plain, id_at_start, is_surely_plain
from perdure.wire_interactions import OPERATIONS as _INTERACTIONS
from perdure.wire_interactions import (
    CancelWorkflow,
    QueryWorkflow,
    ReadEvents,
    SignalWorkflow,
    StartFirst,
    TerminateWorkflow,
    UpdateWorkflow,
)

__all__ = [
    "ABSENT",
    "JSON",
    "MSGPACK",
    "OPEN_REQUESTS_MAX",
    "OPERATIONS",
    "REQUEST_BYTES_MAX",
    "UNKNOWN_OUTCOME",
    "AnswerBody",
    "Args",
    "CancelWorkflow",
    "CompleteActivityTask",
    "CompleteDeadLetter",
    "DescribeWorkflow",
    "ErrorBody",
    "FailActivityTask",
    "FailDeadLetter",
    "FailureArgs",
    "Form",
    "GetHistory",
    "GetResult",
    "ListDeadLetters",
    "ListWorkflows",
    "PendingState",
    "Ping",
    "PollActivityTask",
    "QueryWorkflow",
    "ReadEvents",
    "RecordHeartbeat",
    "RedriveDeadLetter",
    "Refused",
    "Request",
    "RestartWorker",
    "SignalWorkflow",
    "StartFirst",
    "StartOptions",
    "StartWorkflow",
    "TerminateWorkflow",
    "UpdateWorkflow",
    "WorkerEndpoint",
    "WorkerTypes",
    "WorkflowStatus",
    "described",
    "error_view",
    "form_of",
    "raw_payload",
    "read_answer",
    "to_error",
    "write_request",
]

REQUEST_BYTES_MAX = 4 * 1024 * 1024
OPEN_REQUESTS_MAX = 10_000
OPERATIONS: dict[str, type[Args]] = {
    **_BASIC,
    **_INTERACTIONS,
    **wire_flow.OPERATIONS,
    **wire_schedules.OPERATIONS,
}
UNKNOWN_OUTCOME = frozenset({"UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED"})
"""Codes that say nothing about what became of a request: send it again. All others are final."""


# --- the two forms -----------------------------------------------------------
class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: msgspec.Raw
    op: str
    args: msgspec.Raw = ABSENT


def _whole(op: str, kind: type[Args]) -> type[msgspec.Struct]:
    """A request of `op` with arguments, as one struct."""
    return msgspec.defstruct(
        op,
        [("id", msgspec.Raw), ("args", kind)],
        tag_field="op",
        tag=op,
        frozen=True,
        forbid_unknown_fields=True,
    )


_ANY_WHOLE: Any = functools.reduce(operator.or_, starmap(_whole, OPERATIONS.items()))


class _OnlyId(msgspec.Struct, frozen=True):
    id: msgspec.Raw = ABSENT


class Form:
    """One of the two encodings, with what the gateway needs of it."""

    def __init__(self, name: str, tag: bytes, codec: Any, empty_map: bytes) -> None:
        self.name = name
        self.tag = tag  # Of a payload that stays in this encoding.
        self.encode = codec.Encoder().encode
        self.null = msgspec.Raw(self.encode(None))
        self._codec = codec
        self._empty_map = msgspec.Raw(empty_map)
        self._whole = codec.Decoder(_ANY_WHOLE).decode
        self._envelope = codec.Decoder(_Envelope).decode
        self._only_id = codec.Decoder(_OnlyId).decode
        self._args = {op: codec.Decoder(kind).decode for op, kind in OPERATIONS.items()}

    def read(self, body: bytes) -> Request:
        """The request in `body`. Raises Refused, with the request's id where there is one.

        It refers to `body`, which stays in memory as long as the request does.
        """
        try:
            whole = self._whole(body)
        except (PerdureError, msgspec.MsgspecError, RecursionError, ValueError):
            return self._read_step_by_step(body)
        return Request(self, whole.id, type(whole).__name__, whole.args)

    def _read_step_by_step(self, body: bytes) -> Request:
        """Slower, and says what is wrong where; arguments may be absent or null."""
        try:
            envelope: _Envelope = self._envelope(body)
        except (msgspec.MsgspecError, RecursionError, ValueError) as problem:
            raise Refused(self, self._find_id(body), described(problem)) from problem
        request_id = envelope.id
        try:
            decode = self._args.get(envelope.op)
            if decode is None:
                raise _no_operation(envelope.op)
            raw = envelope.args
            args = decode(self._empty_map if not raw or raw == self.null else raw)
        except PerdureError as problem:
            raise Refused(self, request_id, problem) from problem
        except (msgspec.MsgspecError, RecursionError, ValueError) as problem:
            raise Refused(self, request_id, described(problem, "args")) from problem
        return Request(self, request_id, envelope.op, args)

    def checked(self, args: Args) -> Args:
        """These arguments as a node would get them, or its refusal of them."""
        body = encoded(args, self.encode)
        try:
            found: Args = self._args[type(args).__name__](body)
        except (msgspec.MsgspecError, RecursionError, ValueError) as problem:
            raise described(problem, "args") from problem
        return found

    def _find_id(self, body: bytes) -> msgspec.Raw:
        try:
            found: msgspec.Raw = self._only_id(body).id
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return msgspec.Raw(id_at_start(body) or self.null)
        return found or self.null

    def payload(self, raw: msgspec.Raw, field: str) -> bytes | None:
        """The payload that a field holds: checked, and kept in the encoding in which it came.

        None where the field is absent or null. InvalidArgument, naming `field`, for what is no
        value, nested too deeply or above 2 MiB.
        """
        if not raw or raw == self.null:
            return None
        try:
            if self.tag == b"j":
                payload = values.from_json(bytes(raw))
            else:
                payload = b"m" + bytes(raw)
                value = values.decode(payload)
                if not is_surely_plain(payload):
                    payload = values.encode(value)
                    check_plain(payload)
            check_nesting(payload)
        except InvalidArgument as problem:
            raise InvalidArgument(f"{field}: {problem.message}", field=field) from problem
        return values.check_size(payload, field)

    def render(self, payload: bytes | None) -> Any:
        """What stands for `payload` in an answer of this form; the same encoding is passed on."""
        if payload is None:
            return None
        if payload[:1] == self.tag:
            return msgspec.Raw(payload[1:])
        if self.tag == b"j":
            return msgspec.Raw(values.to_json(payload))
        return values.to_builtins(payload)

    def ok(self, request_id: msgspec.Raw, ok: Any, n: int = 0) -> bytes:
        """The answer to a request that was carried out, as of commit `n` (0: not said)."""
        answer = {"id": request_id, "ok": ok, "n": n} if n else {"id": request_id, "ok": ok}
        body: bytes = self.encode(answer)
        return body

    def error(self, request_id: msgspec.Raw, error: PerdureError, n: int = 0) -> bytes:
        """The answer to a request that was refused."""
        answer: dict[str, Any] = {"id": request_id, "error": error_view(error)}
        if n:
            answer["n"] = n
        body: bytes = self.encode(answer)
        return body


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request that is well-formed: `args` is the struct of `op`."""

    form: Form
    id: msgspec.Raw
    op: str
    args: Args


class Refused(Exception):
    """A request that is not well-formed; the error goes back under `id` (null if it has none)."""

    def __init__(self, form: Form, request_id: msgspec.Raw, error: PerdureError) -> None:
        super().__init__(error.message)
        self.form = form
        self.id = request_id
        self.error = error


JSON = Form("json", b"j", msgspec.json, b"{}")
MSGPACK = Form("msgpack", b"m", msgspec.msgpack, b"\x80")


def form_of(body: bytes) -> Form | None:
    """The form of a request by its first byte, or None: no map, so nothing can be answered."""
    first = body[0] if body else 0
    if first == 0x7B:
        return JSON
    return MSGPACK if 0x80 <= first <= 0x8F or first in (0xDE, 0xDF) else None


def described(problem: Exception, where: str = "") -> InvalidArgument:
    """The refusal of a message that did not decode; msgspec's text names the field."""
    if isinstance(problem, RecursionError):
        return InvalidArgument("the request is nested too deeply")
    text = str(problem).replace("`$.", f"`{where}." if where else "`").replace("`$`", "the request")
    if text.startswith("Expected `object`") and " - at " not in text:
        return InvalidArgument(f"{where or 'the request'}: {text}", field=where or None)
    # Where both a field and its place are given the last one is the outermost that is wrong.
    quoted = text.split("`")
    field = quoted[-2].rpartition(".")[2] if len(quoted) > 2 else None
    return InvalidArgument(text, field=field)


def _no_operation(op: str) -> InvalidArgument:
    return InvalidArgument(f"op: there is no operation {op[:128]!r}", field="op")


# --- errors ------------------------------------------------------------------
class ErrorBody(msgspec.Struct, frozen=True):
    """The error of an answer."""

    code: str
    message: str = ""
    field: str | None = None
    status: str | None = None
    failure: Failure | None = None


def error_view(error: PerdureError) -> dict[str, Any]:
    """What an error is on the wire."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.field:
        body["field"] = error.field
    if isinstance(error, errors.WorkflowFailed):
        body["status"] = error.status
        body["failure"] = error.failure
    elif isinstance(error, errors.UpdateFailed):
        body["failure"] = error.failure
    return body


def to_error(body: ErrorBody) -> PerdureError:
    """The exception that an answer's error stands for."""
    if body.code == errors.WorkflowFailed.code:
        return errors.WorkflowFailed(
            body.message, body.status or "Failed", body.failure, field=body.field
        )
    if body.code in (errors.UpdateFailed.code, errors.UpdateRejected.code):
        return errors.from_code(body.code, body.message, failure=body.failure, field=body.field)
    return errors.from_code(body.code, body.message, field=body.field)


# --- the Client's side: MessagePack, ids are numbers --------------------------
class AnswerBody(msgspec.Struct, frozen=True):
    """An answer as the Client takes it."""

    id: int | None = None
    ok: msgspec.Raw = ABSENT
    error: ErrorBody | None = None
    n: int = 0


read_answer = msgspec.msgpack.Decoder(AnswerBody).decode


def write_request(request_id: int, args: Args) -> bytes:
    """The MessagePack request of the operation that `args` are of."""
    request = {"id": request_id, "op": type(args).__name__, "args": args}
    try:
        body: bytes = MSGPACK.encode(request)
    except (TypeError, ValueError, OverflowError, RecursionError):
        encoded(args, MSGPACK.encode)  # Says which.
        raise
    if len(body) > REQUEST_BYTES_MAX:
        raise InvalidArgument(
            f"the request is {len(body)} bytes; the limit is {REQUEST_BYTES_MAX} bytes (4 MiB)"
        )
    return body


def encoded(args: Args, encode: Callable[[Any], bytes]) -> bytes:
    """The arguments in an encoding; InvalidArgument naming the one that has none."""
    try:
        return encode(args)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        for field in args.__struct_fields__:
            value = getattr(args, field)
            try:
                encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError):
                text = f"{field} can't be a {type(value).__name__}"
                raise InvalidArgument(text, field=field) from problem
        raise


def raw_payload(payload: bytes | None) -> msgspec.Raw:
    """What stands in a MessagePack request for a payload of values.encode; absent for None."""
    return ABSENT if payload is None else msgspec.Raw(payload[1:])
