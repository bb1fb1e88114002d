"""What clients were told, noted while they work: the auditor's client histories.

    recorder = Recorder(path)
    client = RecordingClient(recorder, "client-1", data_dir=data_dir)

A call is one operation, however often the client sent it: `ok`; `refused`, when the answer is
final; `unknown`, when none came or it was one that says nothing of the outcome.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chaos.auditor.histories import OK, REFUSED, UNKNOWN, Header, History, Operation, line_of
from perdure import values, wire
from perdure.client import Client
from perdure.clock import boottime_ms
from perdure.errors import PerdureError, WorkflowFailed

UNDER_WAY = "UNDER_WAY"


class Recorder:
    """Keeps operations, and writes each to `path` as it ends. Any number of threads may use one.

    `all_clients`: nobody else asks anything of the store, so that what has no request is a phantom.
    """

    def __init__(self, path: Path | None = None, *, all_clients: bool = False) -> None:
        self.name = "memory" if path is None else path.name
        self._all_clients = all_clients
        self._operations: list[Operation] = []
        self._begun: dict[int, Operation] = {}
        self._calls = 0
        self._lock = threading.Lock()
        # Unbuffered: what a killed process was told is not lost with it.
        self._file = None if path is None else path.open("wb", buffering=0)
        if self._file is not None:
            self._file.write(line_of(Header(all_clients=all_clients)))

    def begin(self, client: str, args: wire.Args, now_ms: int) -> int:
        """A call begins; the number to end it with."""
        operation = operation_of(client, args, now_ms)
        with self._lock:
            self._calls += 1
            self._begun[self._calls] = operation
            return self._calls

    def end(self, call: int, outcome: Any, now_ms: int, n: int | None = None) -> None:
        """The call ended with this answer, or PerdureError. `n`: the commit that it names."""
        with self._lock:
            self._note(_ended(self._begun.pop(call), outcome, now_ms, n))

    def history(self) -> History:
        """All so far. Calls under way are in it as unknown: they may have been carried out."""
        with self._lock:
            operations = [*self._operations, *self._begun.values()]
        return History(name=self.name, operations=operations, all_clients=self._all_clients)

    def close(self) -> None:
        """Write calls under way as unknown, and let go of the file. Idempotent."""
        with self._lock:
            for operation in self._begun.values():
                self._note(operation)
            self._begun.clear()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _note(self, operation: Operation) -> None:
        self._operations.append(operation)
        if self._file is not None:
            self._file.write(line_of(operation))


class RecordingClient(Client):
    """A Client whose every call is noted, under the name `name`."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        endpoint: str | None = None,
        *,
        now_ms: Callable[[], int] = boottime_ms,
        **options: Any,
    ) -> None:
        super().__init__(endpoint, **options)
        self._recorder = recorder
        self._name = name
        self._now_ms = now_ms

    def _window(self, calls: Sequence[wire.Args], timeout_ms: int) -> list[Any | PerdureError]:
        recorder, now_ms = self._recorder, self._now_ms()
        numbers = [recorder.begin(self._name, args, now_ms) for args in calls]
        # If this raises, the calls stay under way, and so unknown.
        outcomes = super()._window(calls, timeout_ms)
        now_ms = self._now_ms()
        for number, outcome in zip(numbers, outcomes, strict=True):
            recorder.end(number, outcome, now_ms)
        return outcomes


def operation_of(client: str, args: wire.Args, now_ms: int) -> Operation:
    """The operation that this request begins; unknown until it is answered."""
    return Operation(
        client=client,
        op=type(args).__name__,
        t0_ms=now_ms,
        t1_ms=now_ms,
        outcome=UNKNOWN,
        digest=_digest(args),
        request_id=getattr(args, "request_id", None),
        workflow_id=getattr(args, "workflow_id", None),
        activity_id=getattr(args, "activity_id", None),
        code=UNDER_WAY,
    )


def _ended(operation: Operation, outcome: Any, now_ms: int, n: int | None) -> Operation:
    is_error = isinstance(outcome, PerdureError)
    code = outcome.code if is_error else None
    if not is_error or isinstance(outcome, WorkflowFailed):
        heard = OK  # That a workflow failed is an answer to the question how it ended.
    else:
        heard = UNKNOWN if code in wire.UNKNOWN_OUTCOME else REFUSED
    fields = {name: getattr(operation, name) for name in Operation.__struct_fields__}
    return Operation(**fields | {"t1_ms": now_ms, "outcome": heard, "code": code, "n": n})


def _digest(args: wire.Args) -> str | None:
    """The digest of the arguments as the store keeps it, where it keeps one."""
    if not isinstance(args, wire.StartWorkflow):
        return None
    payload = wire.MSGPACK.payload(args.input, "input")
    return values.digest(payload, args.type, args.task_queue).hex()
