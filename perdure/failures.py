"""What a failed attempt reports, and the exceptions by which activity code says how it failed.

A Failure is made where the exception was raised, from anything that can be raised, and is all
that travels: no exception object ever leaves its process.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from perdure import values
from perdure.errors import InvalidArgument, PerdureError

TYPE_CHARS_MAX = 256
TEXT_BYTES_MAX = 64 * 1024
CAUSE_TEXT_BYTES_MAX = 8 * 1024  # Of a cause that we record ourselves: ten of them must fit.
CAUSES_MAX = 10
TYPE_CHAIN_MAX = 64
RETRY_AFTER_MS_MAX = 2**53 - 1

# --- types of the failures that the engine makes itself ----------------------
START_TO_CLOSE_TIMEOUT = "StartToCloseTimeout"
HEARTBEAT_TIMEOUT = "HeartbeatTimeout"
WORKER_DIED = "WorkerDied"
SCHEDULE_TO_START_TIMEOUT = "ScheduleToStartTimeout"
SCHEDULE_TO_CLOSE_TIMEOUT = "ScheduleToCloseTimeout"
BAD_INPUT = "BadInput"
BAD_RESULT = "BadResult"
PAYLOAD_TOO_LARGE = "PayloadTooLarge"
CANCELLED = "Cancelled"
TERMINATED = "Terminated"
WORKFLOW_TIMEOUT = "WorkflowTimeout"

ENGINE_NON_RETRYABLE = frozenset(
    {SCHEDULE_TO_START_TIMEOUT, SCHEDULE_TO_CLOSE_TIMEOUT, BAD_INPUT, BAD_RESULT, PAYLOAD_TOO_LARGE}
)
"""Engine failures that end the activity at once."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt failed.

    `type` (1 to 256 characters) is what a retry policy names; `details` any value that encodes;
    `type_chain` the qualified names of the exception's class and bases and of its explicit causes.
    `message` and `stack` are cut to 64 KiB, the causes to ten, the chain to 64 names. Raises
    InvalidArgument, naming the field, for anything else.
    """

    type: str
    message: str = ""
    non_retryable: bool = False
    retry_after_ms: int | None = None
    details: Any = None
    stack: str | None = None
    cause: Failure | None = None
    type_chain: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(isinstance(self.type, str), "type", "a text")
        _require(0 < len(self.type) <= TYPE_CHARS_MAX, "type", f"1 to {TYPE_CHARS_MAX} characters")
        _require(isinstance(self.message, str), "message", "a text")
        _require(isinstance(self.non_retryable, bool), "non_retryable", "true or false")
        _require(self.stack is None or isinstance(self.stack, str), "stack", "a text")
        _require(self.cause is None or isinstance(self.cause, Failure), "cause", "a Failure")
        _require(
            all(isinstance(name, str) for name in self.type_chain),
            "type_chain",
            "texts",
        )
        settled: dict[str, Any] = {
            "type": _utf8(self.type)[:TYPE_CHARS_MAX],
            "message": cut(self.message),
            "retry_after_ms": _retry_after(self.retry_after_ms),
            "details": _details(self.details),
            "stack": None if self.stack is None else cut(self.stack),
            "cause": _bounded(self.cause),
            "type_chain": _both_ends([_utf8(name) for name in self.type_chain], TYPE_CHAIN_MAX),
        }
        for name, value in settled.items():
            if value is not getattr(self, name):
                msgspec.structs.force_setattr(self, name, value)


class Error(Exception):
    """A failure with a type that the retry policy can name. Retryable unless it says otherwise.

    `retry_after_ms` asks for at least that much time before the next attempt; `details` is any
    value that encodes, kept with the failure.
    """

    # On the class, so that a subclass with a constructor of its own still has them.
    type: str = ""
    message: str = ""
    retry_after_ms: int | None = None
    details: Any = None
    non_retryable: bool = False

    def __init__(
        self,
        type: str,
        message: str = "",
        *,
        retry_after_ms: int | None = None,
        details: Any = None,
        non_retryable: bool = False,
    ) -> None:
        _require(isinstance(type, str), "type", "a text")
        _require(0 < len(type) <= TYPE_CHARS_MAX, "type", f"1 to {TYPE_CHARS_MAX} characters")
        super().__init__(type, message)
        self.type = type
        self.message = message
        self.retry_after_ms = _retry_after(retry_after_ms)
        self.details = details
        if non_retryable:
            self.non_retryable = True

    def __str__(self) -> str:
        return str(self.message) if self.message else Exception.__str__(self)


class NonRetryable(Error):
    """A failure that ends the activity at once, however often it is wrapped with `raise … from`."""

    non_retryable = True


class Cancelled(asyncio.CancelledError):
    """The attempt is cancelled or no longer counts. Not swallowed by `except Exception`."""


class CompleteLater(BaseException):
    """Leaves the attempt open: whoever holds its task token will report it.

    No Exception, so that a handler for failures does not take it for one.
    """


def qualified_name(kind: type) -> str:
    """The name by which a class is known in policies and chains: "module.Class"."""
    return f"{kind.__module__}.{kind.__qualname__}"


def engine_failure(type: str, message: str, *, cause: Failure | None = None) -> Failure:
    """A failure that the engine makes itself, retryable or not as its type is."""
    return Failure(type, message, non_retryable=type in ENGINE_NON_RETRYABLE, cause=cause)


def is_non_retryable(exc: BaseException) -> bool:
    """Whether this exception ends the activity, whatever the policy lists.

    True for a marked Error or an engine error of that kind, for what was raised explicitly from
    one, at any depth, and for an ExceptionGroup whose every leaf is. An implicit `__context__`
    does not count.
    """
    return _marked(exc, frozenset())


def failure_from_exception(exc: BaseException) -> Failure:
    """The Failure that reports `exc`. Never raises, whatever the exception does when looked at."""
    try:
        return _failure(exc)
    except Exception as trouble:  # noqa: BLE001 - reported in the failure that it would have hidden
        kind = _class_name(exc)
        note = f"<the exception could not be examined: {_class_name(trouble)}>"
        return Failure(kind, note, non_retryable=isinstance(exc, NonRetryable))


def cut(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """`text` as valid UTF-8 of at most `bytes_max` bytes; both ends are kept, the cut is marked."""
    if len(text) * 4 <= bytes_max and text.isascii():
        return text
    # Characters first: a text of a gigabyte must not be encoded to learn that it is long.
    if len(text) <= bytes_max:
        text = _utf8(text)
        if len(text.encode()) <= bytes_max:
            return text
    mark = f"\n[... cut, {len(text)} characters in all ...]\n"
    keep = (bytes_max - len(mark)) // 2
    head = _utf8(text[:keep]).encode()[:keep].decode(errors="ignore")
    tail = _utf8(text[-keep:]).encode()[-keep:].decode(errors="ignore")
    return head + mark + tail


# --- from an exception -------------------------------------------------------


def _failure(exc: BaseException) -> Failure:
    links = list(_links(exc))
    cause: Failure | None = None
    shown = links[1:] if len(links) <= CAUSES_MAX else [*links[1:CAUSES_MAX], links[-1]]
    for link in reversed(shown):
        cause = Failure(
            _type(link),
            cut(_message(link), CAUSE_TEXT_BYTES_MAX),
            non_retryable=is_non_retryable(link),
            details=_safe_details(link),
            cause=cause,
            type_chain=_names(link),
        )
    return Failure(
        _type(exc),
        _message(exc),
        non_retryable=is_non_retryable(exc),
        retry_after_ms=_asked_wait(exc, frozenset()),
        details=_safe_details(exc),
        stack=_stack(exc),
        cause=cause,
        type_chain=_both_ends(
            _unique(name for link in links for name in _names(link)), TYPE_CHAIN_MAX
        ),
    )


def _links(exc: BaseException) -> Iterator[BaseException]:
    """The exception and its explicit causes, outermost first; a circle ends where it closes."""
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    rest: list[BaseException] = [group]
    while rest:
        exc = rest.pop()
        if isinstance(exc, BaseExceptionGroup):
            rest.extend(reversed(exc.exceptions))
        else:
            leaves.append(exc)
    return leaves


def _marked(exc: BaseException, groups: frozenset[int]) -> bool:
    """`groups` are those being judged: a leaf may have been raised from its own group."""
    for link in _links(exc):
        if isinstance(link, Error) and link.non_retryable:
            return True
        if isinstance(link, PerdureError) and _engine_type(link) in ENGINE_NON_RETRYABLE:
            return True
        if isinstance(link, BaseExceptionGroup) and id(link) not in groups:
            inside = groups | {id(link)}
            if all(_marked(leaf, inside) for leaf in _leaves(link)):
                return True
    return False


def _asked_wait(exc: BaseException, groups: frozenset[int]) -> int | None:
    """The nearest wait that the exception or a cause asks for; of a group, its longest."""
    for link in _links(exc):
        if isinstance(link, Error) and link.retry_after_ms is not None:
            return _retry_after(link.retry_after_ms)
        if isinstance(link, BaseExceptionGroup) and id(link) not in groups:
            inside = groups | {id(link)}
            asked = [_asked_wait(leaf, inside) for leaf in _leaves(link)]
            if any(wait is not None for wait in asked):
                return max(wait for wait in asked if wait is not None)
    return None


def _names(exc: BaseException) -> tuple[str, ...]:
    """The names of one exception: its given type, its class and all bases that are exceptions.

    A group also bears the names that all its leaves share: it is what each of them is.
    """
    given = _given_type(exc)
    own = (
        *((given,) if given else ()),
        *(qualified_name(k) for k in type(exc).__mro__ if k is not object),
    )
    if not isinstance(exc, BaseExceptionGroup):
        return own
    chains = [
        _unique(name for link in _links(leaf) if link is not exc for name in _leaf_names(link))
        for leaf in _leaves(exc)
    ]
    common = set.intersection(*map(set, chains))
    return (*own, *(name for name in chains[0] if name in common))


def _leaf_names(exc: BaseException) -> tuple[str, ...]:
    """A group among a leaf's causes stands for itself only, so that no circle is walked."""
    if isinstance(exc, BaseExceptionGroup):
        return (qualified_name(type(exc)),)
    return _names(exc)


def _type(exc: BaseException) -> str:
    given = _given_type(exc)
    if given:
        return given
    if isinstance(exc, PerdureError):
        return _engine_type(exc)
    if isinstance(exc, asyncio.CancelledError):
        return CANCELLED
    return _class_name(exc)


def _given_type(exc: BaseException) -> str:
    """The type that an Error was given; a subclass may have put anything there, or nothing."""
    return _utf8(str(exc.type or ""))[:TYPE_CHARS_MAX] if isinstance(exc, Error) else ""


def _engine_type(exc: PerdureError) -> str:
    return str(getattr(exc, "failure_type", _class_name(exc)))


def _class_name(exc: BaseException) -> str:
    return (_utf8(type(exc).__name__) or "Exception")[:TYPE_CHARS_MAX]


def _message(exc: BaseException) -> str:
    try:
        return cut(str(exc))
    except Exception as trouble:  # noqa: BLE001 - a foreign __str__; the message says so
        return f"<no message: its __str__ raised {_class_name(trouble)}>"


def _stack(exc: BaseException) -> str:
    """The traceback with those of its causes and contexts, as Python prints it."""
    try:
        return cut("".join(traceback.TracebackException.from_exception(exc, limit=-200).format()))
    except Exception as trouble:  # noqa: BLE001 - foreign code runs in here; the stack says so
        return f"<no stack: formatting it raised {_class_name(trouble)}>"


def _safe_details(exc: BaseException) -> Any:
    """The details of an Error, or a text that says why they can't be kept."""
    if not isinstance(exc, Error) or exc.details is None:
        return None
    try:
        return _details(exc.details)
    except Exception as trouble:  # noqa: BLE001 - foreign data; the details say so
        return f"<details left out: {cut(_message(trouble), 1_000)}>"


# --- checks and bounds -------------------------------------------------------


def _require(holds: bool, field: str, what: str) -> None:
    if not holds:
        raise InvalidArgument(f"failure.{field} must be {what}", field=field)


def _retry_after(value: object) -> int | None:
    if value is None:
        return None
    number = int(value) if type(value) is float and value.is_integer() else value
    if type(number) is int and 0 <= number <= RETRY_AFTER_MS_MAX:
        return number
    raise InvalidArgument(
        "retry_after_ms must be a whole number of milliseconds of at least 0",
        field="retry_after_ms",
    )


def _details(value: Any) -> Any:
    """The details as they will be after any journey: plain data."""
    if value is None or isinstance(value, bool):
        return value
    try:
        payload = values.encode(value)
        values.check_size(payload, "failure.details")
    except InvalidArgument as refusal:
        refusal.field = "details"
        raise
    return values.decode(payload)


def _bounded(cause: Failure | None) -> Failure | None:
    """At most ten causes: the nearest, and the deepest one, which started it."""
    chain: list[Failure] = []
    link = cause
    while link is not None:
        chain.append(link)
        link = link.cause
    if len(chain) <= CAUSES_MAX:
        return cause
    kept: Failure | None = None
    for failure in reversed([*chain[: CAUSES_MAX - 1], chain[-1]]):
        kept = msgspec.structs.replace(failure, cause=kept)
    return kept


def _both_ends(names: Iterable[str], count_max: int) -> tuple[str, ...]:
    """The names, or the first and the last where there are too many: the root is the last."""
    every = tuple(names)
    if len(every) <= count_max:
        return every
    half = count_max // 2
    return every[:half] + every[-half:]


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _utf8(text: str) -> str:
    """`text` with what can't be UTF-8 (lone surrogates) spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()
