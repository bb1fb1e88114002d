"""For code that `perdure verify` looks at: which of its calls are effects, and what outlives it.

In a worker these do nothing. What goes through perdure.effects is seen without them.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, TypeVar

__all__ = ["Effect", "effect", "outside"]

State = TypeVar("State")


class Effect:
    """What `effect` gives: nothing to do with it, but to use it in a `with` or `async with`."""

    __slots__ = ()

    def __enter__(self) -> Effect:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    async def __aenter__(self) -> Effect:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, problem, trace)


class Watch(Protocol):
    """A verification, as this module knows it."""

    def effect(self, name: str, key: str | None) -> Effect:
        """An effect is being applied."""

    def no_more_outside(self) -> None:
        """Raises: what is outside has to be said while the application is loaded."""


watch: Watch | None = None
"""Set by a verification for the time of one run; else None."""

outsiders: list[Any] = []
"""What `outside` was told of, in order."""

_NOTHING = Effect()


def effect(name: str, key: object = None) -> Effect:
    """Say that an effect named `name` is applied under `key`, to a receiver outside.

    Around the call, `with effect("mail", key): send(…)`, it counts when the block is left without
    an exception; as a plain call it counts there. `key`, as text, is what the receiver tells
    repeats by; without one (None) every call is another effect.
    """
    if watch is None:
        return _NOTHING
    return watch.effect(str(name), None if key is None else str(key))


def outside(state: State) -> State:
    """`state` itself: a dict, list, set or object that stands for the world outside, in a test.

    A verification lets the memory of a process die with it, and this not. To be called while a
    module is loaded: `provider = outside(FakeProvider())`. What is in it must pickle.
    """
    if watch is not None:
        watch.no_more_outside()
    outsiders.append(state)
    return state
