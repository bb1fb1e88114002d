"""The samples of docs/samples, each with an engine of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perdure import registry
from perdure.errors import DeadlineExceeded
from perdure.testing import LocalEngine, ManualClock

SAMPLES = Path(__file__).resolve().parents[2] / "docs" / "samples"
ROUNDS_MAX = 1_000


class Stage:
    """A sample, loaded afresh, and an engine that serves what it defines."""

    def __init__(self, name: str) -> None:
        self.module = load(name)
        found = registry.collect([self.module])
        self.engine = LocalEngine(
            [one.function for one in found.workflows.values()],
            [one.function for one in found.activities.values()],
            ManualClock(0),
            jitter=lambda delay_ms, _: delay_ms,
        )
        self.client = self.engine.client

    def start(self, workflow: str, *args: Any, workflow_id: str = "w", **options: Any) -> Any:
        handle = self.client.start_workflow(workflow, *args, workflow_id=workflow_id, **options)
        self.run()
        return handle

    def run(self) -> None:
        """All that can run without letting time pass."""
        self.engine.run_until_idle(skip_time=False)

    def until(self, at_ms: int) -> None:
        """Let time pass until then, running all that falls due when it does."""
        for _ in range(ROUNDS_MAX):
            self.run()
            now_ms = self.engine.clock.now_ms
            due_ms = self.engine._core.next_skip_ms()
            if due_ms is None or due_ms > at_ms:
                self.engine.clock.advance_ms(at_ms - now_ms)
                self.run()
                return
            self.engine.clock.advance_ms(max(0, due_ms - now_ms))
        raise AssertionError("it is never idle")

    def result(self, workflow_id: str = "w") -> Any:
        """The result, with all the time that it takes, forgetting everything at each step."""
        for _ in range(ROUNDS_MAX):
            try:
                return self.client.result(workflow_id)
            except DeadlineExceeded:
                self.engine.restart()
                self.run()
                due_ms = self.engine._core.next_skip_ms()
                if due_ms is not None:
                    self.engine.clock.advance_ms(max(0, due_ms - self.engine.clock.now_ms))
        raise AssertionError("it does not end")


def load(name: str) -> ModuleType:
    """A sample as a module, its state fresh."""
    spec = importlib.util.spec_from_file_location(name, SAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def stage() -> Any:
    """Makes a stage of the sample that is named."""
    made: list[str] = []

    def make(name: str) -> Stage:
        made.append(name)
        return Stage(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


Make = Callable[[str], Stage]
