"""Notes what happens in a run, and the world at each crash point of it.

It is the watch of perdure.verify and of perdure.effects while a run lasts. Effects may come from
any thread of the user's code, so all of it is under one lock.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import apsw

from perdure import effects, verify
from perdure.errors import FailedPrecondition
from perdure.verifying.doubles import Doubles
from perdure.verifying.kept import Picture
from perdure.verifying.world import Applied, Point, Step, StepKind, Who, World
from perdure.worker import guard

KEY_CHARS_SHOWN = 80
# Of one run. A workflow that has more of them is too large to be tried at each, or has no end.
POINTS_MAX = 2_000

# The store's picture, the clock, and whether a lease is live, at a crash point.
Durable = Callable[[], tuple[Picture, int, bool]]


class Recorder:
    """What was applied and done so far, and the points: kept only if `keep_points`.

    `durable` has to be set before the first point.
    """

    durable: Durable

    def __init__(self, world: World, *, keep_points: bool) -> None:
        self.applied = world.applied
        self.steps = world.steps
        self.points: list[Point] = []
        self.redrives = world.redrives
        self.running = Who()
        self.is_too_long = False
        self.crashes = world.crashes
        self._keep_points = keep_points
        self._doubles = Doubles(world.receivers)
        self._outside = _Outside(world.outside)
        self.lock = threading.RLock()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See the effects of this process, while it lasts."""
        verify.watch = effects.watch = self
        try:
            yield
        finally:
            verify.watch = effects.watch = None

    def step(self, kind: StepKind, who: Who, text: str, applied: Applied | None = None) -> None:
        """Note that something happened."""
        with self.lock:
            self.steps = (*self.steps, Step(kind, who, text, applied))

    def point(self, place: str, who: Who) -> None:
        """A crash point: the world as it is now, if it is wanted."""
        if not self._keep_points:
            return
        with self.lock:
            if len(self.points) >= POINTS_MAX:
                self.is_too_long = True
                return
            store, now_ms, is_leased = self.durable()
            world = World(
                store=store,
                now_ms=now_ms,
                receivers=dict(self._doubles.images),
                outside=self._outside.picture(),
                applied=self.applied,
                steps=self.steps,
                crashes=self.crashes,
                redrives=self.redrives,
                is_leased=is_leased,
            )
            self.points.append(Point(place, who, world))

    def forget_point(self) -> None:
        """The newest point was none after all."""
        if self._keep_points and not self.is_too_long:
            self.points.pop()

    def who(self) -> Who:
        """Whose code runs on this thread."""
        return Who() if guard.current() is not None else self.running

    # --- verify.Watch -----------------------------------------------------------
    def effect(self, name: str, key: str | None) -> verify.Effect:
        """An effect that the user's code says is applied: now, or when its block is left."""
        with self.lock:
            who = self.who()
            self.point(f"right before {name} is applied", who)
            return _Mark(self, self._apply(name, key, who))

    def no_more_outside(self) -> None:
        """Raises: by now the world outside is there."""
        raise FailedPrecondition(
            "verify.outside has to be called while the module is loaded, not by running code"
        )

    # --- effects.Watch ----------------------------------------------------------
    def connection(self, path: str) -> apsw.Connection:
        """The stand-in for the database at `path`."""
        with self.lock:
            return self._doubles.connection(path)

    def asked(self, path: str, key: str) -> None:
        """A receiver is asked for an effect."""
        with self.lock:
            self._doubles.refresh(path)
            self.point(f"right before {Path(path).name} is applied", self.who())

    def answered(self, path: str, key: str) -> None:
        """It is applied, or was."""
        with self.lock:
            self._doubles.committed(path)
            self._apply(Path(path).name, key, self.who())

    # --- effects ----------------------------------------------------------------
    def _apply(self, name: str, key: str | None, who: Who) -> Applied:
        applied = Applied(name, key, who)
        self.applied = (*self.applied, applied)
        shown = "without a key" if key is None else f"key {key[:KEY_CHARS_SHOWN]}"
        self.step(StepKind.EFFECT, who, f"{who}, applies {name}, {shown}", applied)
        self.point(f"right after {name} is applied", who)
        return applied

    def take_back(self, applied: Applied) -> None:
        """It is not applied yet: its block only begins."""
        with self.lock:
            self.applied = tuple(one for one in self.applied if one is not applied)
            self.steps = tuple(one for one in self.steps if one.applied is not applied)
            # The point after it goes; other threads may have made some since.
            kept = []
            is_taken = False
            for point in self.points:
                if not any(one is applied for one in point.world.applied):
                    kept.append(point)
                elif is_taken:
                    kept.append(_without(point, applied))
                else:
                    is_taken = True
            self.points = kept

    def apply_again(self, applied: Applied) -> None:
        """Its block has been left."""
        with self.lock:
            self._apply(applied.name, applied.key, applied.who)


def _without(point: Point, applied: Applied) -> Point:
    world = replace(
        point.world,
        applied=tuple(one for one in point.world.applied if one is not applied),
        steps=tuple(one for one in point.world.steps if one.applied is not applied),
    )
    return Point(point.place, point.who, world)


class _Mark(verify.Effect):
    """An effect that has been noted as a plain call; as a block it is noted at its end."""

    __slots__ = ("_applied", "_recorder")

    def __init__(self, recorder: Recorder, applied: Applied) -> None:
        self._recorder = recorder
        self._applied = applied

    def __enter__(self) -> verify.Effect:
        self._recorder.take_back(self._applied)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._recorder.apply_again(self._applied)


class _Outside:
    """What verify.outside was told of, as far as it was while the application was loaded."""

    def __init__(self, picture: bytes | None) -> None:
        self._states: list[Any] = list(verify.outsiders)
        if picture is not None:
            for state, was in zip(self._states, pickle.loads(picture), strict=True):
                _become(state, was)

    def picture(self) -> bytes | None:
        """All of it, to begin from."""
        return pickle.dumps(self._states) if self._states else None


def _become(state: Any, was: Any) -> None:
    """In place: the application has it under names of its own."""
    if isinstance(state, (dict, set)):
        state.clear()
        state.update(was)
    elif isinstance(state, list):
        state[:] = was
    else:
        vars(state).clear()
        vars(state).update(vars(was))
