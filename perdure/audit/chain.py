"""What a chain is: layers of calls, outermost caller first, each with its retry settings.

`parse_chain` is the door: what passes is right in form, and nothing behind it checks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.audit import given
from perdure.errors import InvalidArgument

FAILURE_RATE_DEFAULT = 0.2
MAX_AMPLIFICATION_DEFAULT = 10.0
ATTEMPTS_MAX = 10_000
LAYERS_MAX = 1_000
ATTEMPTS_TOTAL_MAX = 250_000

JITTERS = ("none", "full", "equal", "decorrelated")
IMPORTED_JITTERS = ("symmetric", "additive")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Retries as a share of requests, with a number per second that is always allowed."""

    ratio: float = 0.1
    min_per_s: float = 10.0


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """Opens when this share of at least `min_calls` calls failed; probes after `open_ms`."""

    failure_ratio: float = 0.5
    min_calls: int = 20
    open_ms: float = 30_000.0
    half_open_calls: int = 3


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What an importer has to say about a layer: a finding's code and its text."""

    code: str
    detail: str


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One hop. Lengths in milliseconds, None where there is no limit; `attempts` counts the first.

    The fields from `origin` on are facts that importers know and a plain chain does not have;
    a soft deadline is looked at between tries only, and ends none.
    """

    name: str
    attempts: int = 1
    base_delay_ms: float = 0.0
    multiplier: float = 2.0
    max_delay_ms: float | None = None
    jitter: str = "none"
    per_try_timeout_ms: float | None = None
    deadline_ms: float | None = None
    retry_on: tuple[int | str, ...] = ()
    idempotent: bool = True
    idempotency_key: bool = False
    respect_retry_after: bool = False
    retry_budget: Budget | None = None
    circuit_breaker: Breaker | None = None
    failure_rate: float | None = None
    assumed: tuple[str, ...] = ()
    origin: dict[str, str] | None = None
    first_retry_immediate: bool = False
    methods: tuple[str, ...] | None = None
    unbounded: bool = False
    notes: tuple[Note, ...] = ()
    kind: str = ""
    min_delay_ms: float = 0.0
    jitter_spread: float = 0.0
    jitter_ms: float = 0.0
    increment_ms: float = 0.0
    steps_ms: tuple[float, ...] = ()
    heartbeat_ms: float | None = None
    deadline_is_soft: bool = False

    @property
    def retries(self) -> bool:
        """Whether it has a retry policy at all."""
        return self.attempts > 1

    @property
    def is_imported(self) -> bool:
        """Whether it was read from where it lives, so that the further findings apply."""
        return self.origin is not None

    @property
    def is_safe(self) -> bool:
        """Whether making the call twice does no harm."""
        return self.idempotent or self.idempotency_key

    @property
    def callee(self) -> str:
        """Who is called: what stands behind the arrow in "caller -> callee"."""
        return self.name.replace("→", "->").rpartition("->")[2].strip() or self.name

    @property
    def caller(self) -> str:
        """Who calls: what stands before the arrow, else the layer's name."""
        return self.name.replace("→", "->").partition("->")[0].strip() or self.name


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A chain; `failure_rate` holds for every layer that gives none of its own.

    `alternatives`: the layers stand side by side and do not call each other, as in a file that
    holds several policies.
    """

    name: str
    failure_rate: float = FAILURE_RATE_DEFAULT
    max_amplification: float = MAX_AMPLIFICATION_DEFAULT
    layers: tuple[Layer, ...]
    alternatives: bool = False

    def rate(self, layer: Layer) -> float:
        """The chance, 0 to 1, that one try at `layer` fails."""
        return self.failure_rate if layer.failure_rate is None else layer.failure_rate


# --- parsing -----------------------------------------------------------------

_CHAIN_KEYS = ("name", "failure_rate", "max_amplification", "layers", "alternatives")


def parse_chain(data: Any) -> Chain:
    """The chain that `data` (maps and lists, as JSON has them) describes.

    InvalidArgument, on one line, names layer, key, and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise InvalidArgument('a chain is an object with "layers", not ' + given.shown(data))
    given.known_keys(data, _CHAIN_KEYS, "chain")
    layers = data.get("layers")
    if not isinstance(layers, list) or not layers:
        raise InvalidArgument(
            "chain, layers: must be a list of at least one layer, outermost caller first",
            field="layers",
        )
    if len(layers) > LAYERS_MAX:
        raise InvalidArgument(f"chain, layers: at most {LAYERS_MAX} layers", field="layers")
    parsed = tuple(parse_layer(layer, number) for number, layer in enumerate(layers, 1))
    if sum(layer.attempts for layer in parsed) > ATTEMPTS_TOTAL_MAX:
        raise InvalidArgument(
            f"chain, layers: at most {ATTEMPTS_TOTAL_MAX} attempts in all are computed",
            field="layers",
        )
    return Chain(
        name=given.text(data.get("name", "chain"), "chain, name"),
        failure_rate=given.share(
            data.get("failure_rate", FAILURE_RATE_DEFAULT), "chain, failure_rate"
        ),
        max_amplification=given.number(
            data.get("max_amplification", MAX_AMPLIFICATION_DEFAULT),
            "chain, max_amplification",
            at_least=1,
        ),
        layers=parsed,
        alternatives=given.boolean(data.get("alternatives", False), "chain, alternatives"),
    )


def parse_layer(data: Any, number: int) -> Layer:
    """The layer in `data`; `number`, from 1, is its place, and names it where it has no name."""
    where = f"layer {number}"
    if not isinstance(data, Mapping):
        raise InvalidArgument(f"{where}: must be an object, not {given.shown(data)}")
    name = given.text(data.get("name", where), f"{where}, name")
    if name != where:
        where = f"{where} ({name[:80]})"
    given.known_keys(data, LAYER_KEYS, where)
    fields: dict[str, Any] = {"name": name}
    for key, value in data.items():
        if key != "name" and not (value is None and key in _NULLABLE):
            fields[key] = _READERS[key](value, f"{where}, {key}")
    return Layer(**fields)


def _attempts(value: Any, where: str) -> int:
    return given.whole(value, where, at_least=1, at_most=ATTEMPTS_MAX)


def _delay(value: Any, where: str) -> float:
    return given.number(value, where, at_least=0)


def _limit(value: Any, where: str) -> float:
    return given.number(value, where, at_least=1)


def _jitter(value: Any, where: str) -> str:
    if value in JITTERS or value in IMPORTED_JITTERS:
        return str(value)
    allowed = ", ".join(JITTERS)
    raise InvalidArgument(f"{where}: must be one of {allowed}, not {given.shown(value)}")


def _retry_on(value: Any, where: str) -> tuple[int | str, ...]:
    what = 'must be a list of status numbers and words, such as [503, "timeout"]'
    if not isinstance(value, list):
        raise InvalidArgument(f"{where}: {what}, not {given.shown(value)}")
    return tuple(_condition(item, where, what) for item in value)


def _condition(item: Any, where: str, what: str) -> int | str:
    if isinstance(item, str) and item.strip():
        word = item.strip()
        return int(word) if word.isascii() and word.isdigit() and len(word) == 3 else word
    if isinstance(item, int) and not isinstance(item, bool) and 100 <= item <= 599:
        return item
    raise InvalidArgument(f"{where}: {what}; {given.shown(item)} is neither")


def _budget(value: Any, where: str) -> Budget:
    given.mapping(value, ("ratio", "min_per_s"), where)
    return Budget(**{key: _delay(each, f"{where}.{key}") for key, each in value.items()})


def _breaker(value: Any, where: str) -> Breaker:
    readers: dict[str, Any] = {
        "failure_ratio": given.share,
        "min_calls": _count,
        "open_ms": _delay,
        "half_open_calls": _count,
    }
    given.mapping(value, tuple(readers), where)
    return Breaker(**{key: readers[key](each, f"{where}.{key}") for key, each in value.items()})


def _count(value: Any, where: str) -> int:
    return given.whole(value, where, at_least=1, at_most=10**9)


def _notes(value: Any, where: str) -> tuple[Note, ...]:
    if not isinstance(value, list):
        raise InvalidArgument(f"{where}: must be a list of objects with code and detail")
    notes = []
    for item in value:
        given.mapping(item, ("code", "detail"), where)
        texts = {key: given.text(item.get(key), f"{where}.{key}") for key in ("code", "detail")}
        notes.append(Note(**texts))
    return tuple(notes)


def _origin(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{where}: must be an object of texts")
    return {str(key): given.text(each, f"{where}.{key}") for key, each in value.items()}


def _steps(value: Any, where: str) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise InvalidArgument(f"{where}: must be a list of delays in milliseconds")
    return tuple(_delay(item, where) for item in value)


_READERS: dict[str, Any] = {
    "attempts": _attempts,
    "base_delay_ms": _delay,
    "multiplier": lambda value, where: given.number(value, where, at_least=1),
    "max_delay_ms": _delay,
    "jitter": _jitter,
    "per_try_timeout_ms": _limit,
    "deadline_ms": _limit,
    "retry_on": _retry_on,
    "idempotent": given.boolean,
    "idempotency_key": given.boolean,
    "respect_retry_after": given.boolean,
    "retry_budget": _budget,
    "circuit_breaker": _breaker,
    "failure_rate": given.share,
    "assumed": given.texts,
    "origin": _origin,
    "first_retry_immediate": given.boolean,
    "methods": given.texts,
    "unbounded": given.boolean,
    "notes": _notes,
    "kind": given.text,
    "min_delay_ms": _delay,
    "jitter_spread": given.share,
    "jitter_ms": _delay,
    "increment_ms": _delay,
    "steps_ms": _steps,
    "heartbeat_ms": _limit,
    "deadline_is_soft": given.boolean,
}
LAYER_KEYS = ("name", *_READERS)
_NULLABLE = frozenset(
    {
        "max_delay_ms",
        "per_try_timeout_ms",
        "deadline_ms",
        "retry_budget",
        "circuit_breaker",
        "failure_rate",
        "methods",
        "heartbeat_ms",
    }
)


# --- and back ----------------------------------------------------------------


def as_data(chain: Chain) -> dict[str, Any]:
    """The chain as JSON has it; `parse_chain` takes it back. Settings at their default are left
    out, `attempts` and those of a known origin apart.
    """
    data = {
        "name": chain.name,
        "failure_rate": tidy(chain.failure_rate),
        "max_amplification": tidy(chain.max_amplification),
        "layers": [layer_data(layer) for layer in chain.layers],
    }
    return data | ({"alternatives": True} if chain.alternatives else {})


def layer_data(layer: Layer) -> dict[str, Any]:
    """One layer as JSON has it."""
    plain = Layer(name=layer.name)
    data: dict[str, Any] = {"name": layer.name, "attempts": layer.attempts}
    for key in LAYER_KEYS:
        value = getattr(layer, key)
        is_said = layer.origin is not None and key in layer.origin
        if key not in data and (is_said or value != getattr(plain, key)):
            data[key] = tidy(msgspec.to_builtins(value))
    return data


def tidy(value: Any) -> Any:
    """Whole floats as integers, at any depth: 200.0 ms reads as 200."""
    if isinstance(value, float) and value == int(value) and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: tidy(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [tidy(each) for each in value]
    return value
