"""New code against recorded histories: `perdure replay`, and the same for tests.

A history is what `perdure wf history ID --json` prints. It is fed to the code as a worker does it
that has nothing in memory; where the code asks for something else than what was recorded the two
part, and that is what would happen to this workflow with this code.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from perdure import values
from perdure.answers import Answer
from perdure.core import records
from perdure.core.ids import execution_id
from perdure.core.start import Parent, StartTerms
from perdure.errors import InvalidArgument
from perdure.policy import RetryPolicy
from perdure.registry import Registry
from perdure.worker import guard
from perdure.worker.replay import Replayer
from perdure.workflow import NonDeterminism

__all__ = ["Blocked", "History", "Verdict", "check", "history_of", "read_histories"]

CHUNK = 500
BLOCKED_S = 5.0
FITS, DIFFERS, UNKNOWN_TYPE, BLOCKED, FAILED = (
    "fits",
    "differs",
    "unknown_type",
    "blocked",
    "failed",
)
_STARTED = "ActivityTaskStarted"
_KINDS: dict[str, type[records.Record]] = {kind.__name__: kind for kind in records.EVENT_TYPES}
_PAYLOADS = frozenset({"input", "result", "details"})
# What the printed history leaves out, and no replay has a use for.
_UNSAID: dict[str, Any] = {"digest": b"", "grant": 1, "beat": 0, "state": b""}
_OPTIONS = records.ActivityOptions(RetryPolicy())


class Blocked(BaseException):
    """Raised into workflow code that does not give its loop a turn."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one workflow, as recorded. `source` says where that was read."""

    workflow_id: str
    workflow_type: str
    events: tuple[Any, ...]
    run: int = 1
    source: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How one history and the code agree.

    `verdict`: "fits"; "differs", with the id of the event at which they part, what is `expected`
    there, what the code wanted (`got`), and `where` in the code; "unknown_type", "blocked", or
    "failed": it could not be replayed at all. `message` is all of it in one sentence.
    """

    workflow_id: str
    run: int
    workflow_type: str
    events: int
    verdict: str = FITS
    event_id: int | None = None
    expected: str = ""
    got: str = ""
    where: str = ""
    message: str = ""
    source: str = ""

    @property
    def fits(self) -> bool:
        """Whether the code agrees with the history."""
        return self.verdict == FITS


# --- reading ------------------------------------------------------------------
def read_histories(path: Path) -> list[History]:
    """The histories in a file, or in all .json files of a folder and its folders, by name.

    InvalidArgument, naming the file, where one is no history, and where there is none.
    """
    try:
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        texts = [(file, file.read_bytes()) for file in files]
    except OSError as problem:
        raise InvalidArgument(f"{path} can't be read: {problem.strerror}") from problem
    if not texts:
        raise InvalidArgument(f"there is no .json file in {path}")
    found = []
    for file, text in texts:
        try:
            found.append(history_of(msgspec.json.decode(text), file.stem, str(file)))
        except (msgspec.MsgspecError, InvalidArgument) as problem:
            raise InvalidArgument(
                f"{file} is no history, as `perdure wf history ID --json` prints it: {problem}"
            ) from problem
    return found


def history_of(
    shown: Any, workflow_id: str = "", source: str = "", run: int | None = None
) -> History:
    """A history from the events as `wf history --json` and Client.history show them.

    `workflow_id` and `run` hold where the first event does not say them. InvalidArgument, naming
    the event, for what is none.
    """
    if not isinstance(shown, list) or not shown:
        raise InvalidArgument("a history is a list of events")
    of = workflow_id if not source else ""
    events = tuple(_events(map(_plain, shown), f"{of}: " if of else ""))
    first = events[0] if events else None
    if not isinstance(first, records.WorkflowStarted):
        raise InvalidArgument("a history begins with WorkflowStarted")
    return History(
        workflow_id=str(shown[0].get("workflow_id") or workflow_id),
        workflow_type=first.workflow_type,
        events=events,
        run=int(shown[0].get("run") or run or 1),
        source=source,
    )


def _plain(view: Any) -> Any:
    """A client gives Answers, also inside of an event; a file gives dicts."""
    return view.to_dict() if isinstance(view, Answer) else view


def _events(shown: Iterable[Any], of: str = "") -> Iterator[records.Event]:
    started_ms: int | None = None
    for view in shown:
        if not isinstance(view, Mapping) or not isinstance(view.get("kind"), str):
            raise InvalidArgument("an event is an object with a kind")
        if view["kind"] == _STARTED:
            started_ms = view.get("at_ms")
            continue
        try:
            yield _event(view, started_ms, of)
        except (msgspec.ValidationError, TypeError, ValueError, AttributeError) as problem:
            text = f"{of}event {view.get('event_id')}, {view['kind']}: {problem}"
            raise InvalidArgument(text) from problem
        started_ms = None


def _event(view: Mapping[str, Any], started_ms: int | None, of: str) -> Any:
    kind = _KINDS.get(view["kind"])
    if kind is None:
        raise InvalidArgument(
            f"{of}event {view.get('event_id')} is a {view['kind'][:80]!r}: of a newer perdure?"
        )
    said: dict[str, Any] = {"started_ms": started_ms} if started_ms is not None else {}
    for field in msgspec.structs.fields(kind):
        name = field.name
        if name in view:
            said[name] = _field(name, field.type, view[name])
        elif name in said or not field.required:
            continue
        elif name in _UNSAID:
            said[name] = _UNSAID[name]
        else:
            said[name] = None
    made = kind(**said)
    # The printed form may be written by hand: what it says has to be of the types of the record.
    return msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=kind)


def _field(name: str, annotation: Any, it: Any) -> Any:
    if it is None:
        return None
    if name in _PAYLOADS:
        return values.encode(it) if _has_bytes(it) else values.from_json_value(it)
    if name == "terms":
        return _terms(it)
    if name == "options":
        return _OPTIONS
    if name == "attributes":
        return tuple(dict(it).items())
    return msgspec.convert(msgspec.to_builtins(it, builtin_types=(bytes,)), annotation)


def _has_bytes(it: Any) -> bool:
    """Of a client, not of a file: JSON has none, and there a text may stand for them."""
    if isinstance(it, Mapping):
        return any(map(_has_bytes, it.values()))
    if isinstance(it, list):
        return any(map(_has_bytes, it))
    return isinstance(it, bytes)


def _terms(it: Mapping[str, Any]) -> StartTerms:
    parent = it.get("parent")
    signals = tuple(
        (each["name"], _field("input", None, each.get("input"))) for each in it.get("signals") or ()
    )
    return StartTerms(
        delay_ms=it.get("delay_ms") or 0,
        timeout_ms=it.get("timeout_ms") or 0,
        timeout_at_ms=it.get("timeout_at_ms") or 0,
        parent=None if parent is None else Parent(**parent),
        attributes=tuple(dict(it.get("attributes") or {}).items()),
        first_started_ms=it.get("first_started_ms") or 0,
        signals=signals,
        signalled=bool(it.get("signalled")),
        children=tuple(
            (each["workflow_id"], each["parent_close"]) for each in it.get("children") or ()
        ),
    )


# --- checking -----------------------------------------------------------------
def check(registry: Registry, history: History) -> Verdict:
    """How the code of an application agrees with a history. Effects: none; nothing is run but
    workflow code.

    Guards have to be installed before the application was loaded (perdure.worker.guard.install),
    so that they hold for what it imports by name.
    """
    about: dict[str, Any] = {
        "workflow_id": history.workflow_id,
        "run": history.run,
        "workflow_type": history.workflow_type,
        "events": history.events[-1].event_id,
        "source": history.source,
    }
    definition = registry.workflow(history.workflow_type)
    if definition is None:
        near = registry.nearest_workflow(history.workflow_type)
        hint = f"; did it become {near}?" if near else ""
        text = f"there is no workflow {history.workflow_type!r} any more{hint}"
        return Verdict(verdict=UNKNOWN_TYPE, message=text, **about)
    guard.install()
    replayer = Replayer(definition, execution_id(history.workflow_id, history.run))
    try:
        _replay(replayer, history.events)
    except NonDeterminism as problem:
        return Verdict(
            verdict=DIFFERS,
            event_id=replayer.consumed,
            expected=problem.expected,
            got=problem.got,
            where=problem.where,
            message=problem.message,
            **about,
        )
    except Blocked:
        text = f"its code did not give its loop a turn for {BLOCKED_S:g} s"
        return Verdict(verdict=BLOCKED, event_id=replayer.consumed, message=text, **about)
    except Exception as problem:  # noqa: BLE001 - of one history; the others are looked at all the same
        text = f"{type(problem).__name__}: {problem}"
        return Verdict(verdict=FAILED, event_id=replayer.consumed, message=text, **about)
    finally:
        replayer.close()
    return Verdict(**about)


def _replay(replayer: Replayer, events: Sequence[Any]) -> None:
    replayer.learn(events, events[-1].event_id)
    # What nobody has recorded is not found out here: it would be somebody's real side effect.
    replayer.known.is_check = True
    for start in range(0, len(events), CHUNK):
        with _watched():
            replayer.feed(events[start : start + CHUNK])


@contextmanager
def _watched() -> Iterator[None]:
    """Raises Blocked into the main thread where what is done takes too long; elsewhere nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def blocked(*_: object) -> None:
        raise Blocked

    before = signal.signal(signal.SIGALRM, blocked)
    signal.setitimer(signal.ITIMER_REAL, BLOCKED_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
