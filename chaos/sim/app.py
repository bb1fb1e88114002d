"""What the simulated workers run: one workflow whose shape and steps come with its input.

The activities are names only: their attempts are run by scripts (chaos.sim.worker).
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from chaos.sim.plan import Flow, Step
from perdure import activity, values, workflow
from perdure.policy import RetryPolicy
from perdure.registry import Registry
from perdure.workflow import ActivityFailed


@activity.define(name="sync")
def plain_step(step: dict[str, Any]) -> str:
    """A plain function, which goes on when it was given up."""
    raise AssertionError("attempts are run by scripts")


@activity.define(name="async")
async def async_step(step: dict[str, Any]) -> str:
    """An async function, which hears of its cancellation."""
    raise AssertionError("attempts are run by scripts")


def _start(step: Step) -> workflow.ActivityHandle[Any]:
    return workflow.start_activity(
        step.kind,
        msgspec.to_builtins(step),
        activity_id=step.id,
        retry=RetryPolicy(
            initial_ms=step.initial_ms,
            max_interval_ms=50 * step.initial_ms,
            max_attempts=step.attempts,
        ),
        start_to_close_ms=step.start_to_close_ms,
        heartbeat_ms=step.heartbeat_ms,
        schedule_to_close_ms=step.schedule_to_close_ms,
        schedule_to_start_ms=step.schedule_to_start_ms,
        task_queue=step.queue,
        priority=step.priority,
        on_exhausted=step.on_exhausted,
    )


async def _outcome(handle: workflow.ActivityHandle[Any]) -> str:
    try:
        outcome = str(await handle)
    except ActivityFailed as problem:
        outcome = f"failed: {problem.failure.type}"
    return f"{outcome} at {workflow.now_ms()}"


@workflow.define(name="flow")
async def flow(plan: dict[str, Any]) -> list[str]:
    """Run the steps in the given shape; what became of each."""
    given = msgspec.convert(plan, Flow)
    steps = given.steps
    if given.shape == "fan":
        return list(await asyncio.gather(*(_outcome(_start(step)) for step in steps)))
    if given.shape == "race":
        return await _race(steps, given.nap_ms)
    done: list[str] = []
    for step in steps:
        done.append(await _outcome(_start(step)))
        if given.nap_ms:
            await asyncio.sleep(given.nap_ms / 1_000)
    return done


async def _race(steps: tuple[Step, ...], nap_ms: int) -> list[str]:
    """The first that ends, or the nap, cancels the others."""
    handles = [_start(step) for step in steps]
    tasks = [asyncio.ensure_future(_outcome(handle)) for handle in handles]
    done, _ = await asyncio.wait(
        tasks, timeout=max(nap_ms, 1) / 1_000, return_when=asyncio.FIRST_COMPLETED
    )
    for handle in handles:
        handle.cancel()
    return [task.result() for task in tasks if task in done]


REGISTRY = Registry([flow], [plain_step, async_step])


def step_of(payload: bytes | None) -> Step:
    """The step that an attempt's input describes."""
    assert payload is not None
    return step_given(values.decode(payload))


def step_given(arguments: list[Any]) -> Step:
    """Likewise, decoded."""
    return msgspec.convert(arguments[0], Step)


def input_of(flow_: Flow) -> list[Any]:
    """The positional arguments with which a flow is started."""
    return [msgspec.to_builtins(flow_)]
