"""What clients heard, line by line, and what that says about the log.

The format is JSON, one object a line. The first line is a `Header`; each other one is an
`Operation`: one call of a client, however often it was sent. Instants are milliseconds of one clock
that all clients share (the machine's boot time, or the simulator's). A database with an outbox is
a history too (chaos.auditor.outboxes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from chaos.auditor import names, outboxes
from chaos.auditor.findings import Findings, Operations
from chaos.auditor.fold import Fold
from chaos.auditor.interactions import RUN_MARK, newest_run
from chaos.auditor.state import CANCELLED, COMPLETED, FAILED, TERMINATED, Workflow

FORMAT = "perdure client history"
OK = "ok"
REFUSED = "refused"
UNKNOWN = "unknown"
OUTCOMES = (OK, REFUSED, UNKNOWN)

START = "StartWorkflow"
RESULT = "GetResult"
FAILED_CODE = "WORKFLOW_FAILED"
_NOT_COMPLETED = (FAILED, CANCELLED, TERMINATED)
# Which record an operator's request makes.
RESOLUTIONS = {
    "RedriveDeadLetter": names.TAGS["ActivityRedriven"],
    "FailDeadLetter": names.TAGS["ActivityTaskFailed"],
    "CompleteDeadLetter": names.TAGS["ActivityTaskCompleted"],
}


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. `all_clients`: the histories given together are all that anybody asked."""

    format: str = FORMAT
    version: int = 1
    all_clients: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call: who, what, under which request id, from when to when, and what was heard.

    `digest` is of the arguments, as hex; `code` of a refusal; `n` a commit number in the answer.
    """

    client: str
    op: str
    t0_ms: int
    t1_ms: int
    outcome: str
    digest: str | None = None
    request_id: str | None = None
    workflow_id: str | None = None
    activity_id: str | None = None
    code: str | None = None
    n: int | None = None


class History(msgspec.Struct, kw_only=True):
    """The operations of one file, or of one simulated run."""

    name: str
    operations: Sequence[Operation]
    all_clients: bool = False


_encode = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(Header).decode
_decode_operation = msgspec.json.Decoder(Operation).decode


def line_of(item: Header | Operation) -> bytes:
    """One line of a history file, its end included."""
    return _encode(item) + b"\n"


def read(path: Path, found: Findings) -> History:
    """The history in this file. OSError where it can't be read, or is not there.

    ValueError where it is of another format. A last line that is cut off was never finished: its
    operation is unknown, and is left out.
    """
    try:
        if outboxes.is_database(path):
            asked = [Operation(**fields) for fields in outboxes.read(path, found)]
            return History(name=path.name, operations=asked)
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no history {path}") from None
    except OSError as problem:
        raise OSError(f"cannot read the history {path}: {problem.strerror}") from problem
    try:
        header = _decode_header(lines[0])
    except msgspec.MsgspecError as problem:
        raise ValueError(f"{path} is no client history: {problem}") from problem
    if header.format != FORMAT or header.version != 1:
        raise ValueError(f"{path} is no client history of version 1")
    operations: list[Operation] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        try:
            operations.append(_decode_operation(line))
        except msgspec.MsgspecError as problem:
            if number == len(lines):
                found.note(f"{path.name}: its last line is cut off")
                break
            raise ValueError(f"{path} line {number}: {problem}") from problem
    return History(name=path.name, operations=operations, all_clients=header.all_clients)


class HistoryCheck:
    """Compares what clients heard with the whole log.

    `present` names workflows that the store knows, though a pruned log does not tell of their
    start.
    """

    def __init__(self, found: Findings, fold: Fold, last_n: int, present: set[str]) -> None:
        self._found = found
        self._fold = fold
        self._last_n = last_n
        self._present = present

    def run(self, histories: Iterable[History]) -> Operations:
        """Report every contradiction; how many operations there were of each outcome."""
        histories = list(histories)
        operations = [one for history in histories for one in history.operations]
        counts = dict.fromkeys(OUTCOMES, 0)
        possible: dict[tuple[str | None, ...], str] = {}
        for one in operations:
            counts[one.outcome] += 1
            if one.outcome != REFUSED:
                possible[_identity(one)] = one.outcome
        for one in operations:
            self._one(one, possible)
        if any(history.all_clients for history in histories):
            self._phantoms(operations)
        elif histories:
            self._found.note("invariant 7: the histories are not said to be of all clients")
        self._order(operations)
        return Operations(**counts)

    # --- one answer ----------------------------------------------------------
    def _one(self, one: Operation, possible: dict[tuple[str | None, ...], str]) -> None:
        if one.n is not None and one.n > self._last_n:
            text = f"{one.client} was told of commit {one.n}, the log ends at {self._last_n}"
            self._found.add(9, one.workflow_id or one.op, text)
        if one.workflow_id is None:
            return
        workflow = self._fold.workflows.get(one.workflow_id)
        is_known = workflow is not None and not workflow.is_partial
        if not is_known and one.workflow_id in self._present:
            return  # It began before the log did.
        if one.op == RESULT and one.outcome == OK:
            self._result(one, workflow)
        elif one.request_id is None:
            return
        elif one.op == START:
            self._start(one, workflow, possible)
        elif one.op in RESOLUTIONS:
            self._resolution(one, workflow, possible)

    def _start(
        self,
        one: Operation,
        workflow: Workflow | None,
        possible: dict[tuple[str | None, ...], str],
    ) -> None:
        assert one.workflow_id is not None
        where = one.workflow_id
        is_same = workflow is not None and workflow.request_id == one.request_id
        digest = None if workflow is None else workflow.digest.hex()
        if one.outcome == OK:
            if workflow is None:
                text = f"{one.client} was told that it is started; the log has no such workflow"
                self._found.add(5, where, text)
            elif not is_same:
                text = f"{one.client} was told that request {one.request_id} started it"
                self._found.add(6, where, f"{text}, but {workflow.request_id} did")
            elif one.digest is not None and one.digest != digest:
                text = f"request {one.request_id} was accepted with two different sets of arguments"
                self._found.add(6, where, text)
        elif (
            one.outcome == REFUSED
            and is_same
            and one.digest in (None, digest)
            and _identity(one) not in possible
        ):
            text = f"{one.client} was refused ({one.code}), and it was started all the same"
            self._found.add(8, where, text)

    def _result(self, one: Operation, workflow: Workflow | None) -> None:
        told = FAILED if one.code == FAILED_CODE else COMPLETED
        workflow = None if workflow is None else newest_run(self._fold.workflows, workflow)
        has = "nothing of it" if workflow is None else workflow.status
        if has not in (_NOT_COMPLETED if told == FAILED else (COMPLETED,)):
            text = f"{one.client} was told that it is {told}; the log has {has}"
            self._found.add(9, str(one.workflow_id), text)

    def _resolution(
        self,
        one: Operation,
        workflow: Workflow | None,
        possible: dict[tuple[str | None, ...], str],
    ) -> None:
        assert one.request_id is not None
        made = None
        if workflow is not None:
            made = workflow.requests.get((RESOLUTIONS[one.op], one.request_id))
        where = f"{one.workflow_id}/{one.activity_id}"
        if one.outcome == OK and made is None:
            text = f"{one.client} was told that {one.op} was done; the log has no record of it"
            self._found.add(9, where, text)
        elif one.outcome == REFUSED and made is not None and _identity(one) not in possible:
            text = f"{one.client} was refused {one.op} ({one.code}), and it was done all the same"
            self._found.add(8, where, text)

    # --- all of them ---------------------------------------------------------
    def _phantoms(self, operations: Sequence[Operation]) -> None:
        asked = {
            (one.workflow_id, one.request_id, one.digest)
            for one in operations
            if one.op == START and one.outcome != REFUSED
        }
        for workflow_id, workflow in self._fold.workflows.items():
            if workflow.is_partial or workflow.is_tainted:
                continue
            if workflow.parent is not None or RUN_MARK in workflow_id:
                continue  # Its parent, or the run before, is what asked for it.
            key = (workflow_id, workflow.request_id)
            if (*key, workflow.digest.hex()) not in asked and (*key, None) not in asked:
                self._found.add(7, workflow_id, "it was started, and no client asked for that")

    def _order(self, operations: Sequence[Operation]) -> None:
        """What was acknowledged before something else was asked for stands before it."""
        starts: dict[tuple[str | None, ...], Operation] = {}
        for one in operations:
            if one.op == START and one.outcome != REFUSED:
                request = (one.workflow_id, one.request_id)
                first = starts.get(request)
                if first is None or one.t0_ms < first.t0_ms:
                    starts[request] = one
        acked = sorted(
            (one.t1_ms, n)
            for one in operations
            if one.op == START and one.outcome == OK and (n := self._commit_of(one))
        )
        at, newest = 0, 0
        for one in sorted(starts.values(), key=lambda each: each.t0_ms):
            while at < len(acked) and acked[at][0] < one.t0_ms:
                newest = max(newest, acked[at][1])
                at += 1
            n = self._commit_of(one)
            if n and n <= newest:
                text = f"commit {n} started it; commit {newest} was known before it was asked for"
                self._found.add(14, str(one.workflow_id), text)
        self._sessions(operations)

    def _sessions(self, operations: Sequence[Operation]) -> None:
        heard: dict[str, list[Operation]] = {}
        for one in operations:
            if one.n is not None and one.outcome == OK:
                heard.setdefault(one.client, []).append(one)
        for client, some in heard.items():
            ended = sorted((one.t1_ms, one.n or 0) for one in some)
            at, newest = 0, 0
            for one in sorted(some, key=lambda each: each.t0_ms):
                while at < len(ended) and ended[at][0] < one.t0_ms:
                    newest = max(newest, ended[at][1])
                    at += 1
                if (one.n or 0) < newest:
                    text = f"it heard of commit {newest}, and then of commit {one.n}"
                    self._found.add(14, f"client {client}", text)

    def _commit_of(self, one: Operation) -> int:
        """The commit that this start made, or 0."""
        workflow = self._fold.workflows.get(one.workflow_id or "")
        if workflow is None or workflow.is_tainted or workflow.request_id != one.request_id:
            return 0
        return workflow.started_n


def _identity(one: Operation) -> tuple[str | None, ...]:
    return (one.op, one.workflow_id, one.activity_id, one.request_id, one.digest)
