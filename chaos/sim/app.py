"""What the simulated workers run: two workflows whose shape and steps come with their input.

The activities are names only: their attempts are run by scripts (chaos.sim.worker).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from chaos.sim.plan import Child, Flow, Step, Talk
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
        cancellation=step.cancellation,
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
    if given.shape in ("race", "part"):
        return await _race(steps, given.nap_ms, awaits=given.shape == "part")
    done: list[str] = []
    for step in steps:
        done.append(await _outcome(_start(step)))
        if given.nap_ms:
            await asyncio.sleep(given.nap_ms / 1_000)
    return done


async def _race(steps: tuple[Step, ...], nap_ms: int, *, awaits: bool) -> list[str]:
    """The first that ends, or the nap, cancels the others; `awaits`: and hears what they make of
    it.
    """
    handles = [_start(step) for step in steps]
    tasks = [asyncio.ensure_future(_outcome(handle)) for handle in handles]
    done, _ = await asyncio.wait(
        tasks, timeout=max(nap_ms, 1) / 1_000, return_when=asyncio.FIRST_COMPLETED
    )
    for handle in handles:
        handle.cancel()
    if awaits:
        every = await asyncio.gather(*tasks, return_exceptions=True)
        return [one if isinstance(one, str) else type(one).__name__ for one in every]
    return [task.result() for task in tasks if task in done]


# --- talk -------------------------------------------------------------------------------
class Said(msgspec.Struct):
    """What a talking workflow has heard and done so far, handed on from run to run."""

    run: int = 0
    seen: list[int] = []
    done: list[int] = []
    marks: list[int] = []
    patched: list[bool] = []
    steps: list[str] = []
    heard: list[tuple[int, int]] = []  # From its children: which one, and the number of its report.
    ends: list[tuple[int, list[int]]] = []  # Of children: which one, and the signals it had seen.
    was_cancelled: bool = False


_numbers: Iterator[int] = itertools.count()


def begin() -> None:
    """Another simulated run: its side effects are counted anew."""
    global _numbers
    _numbers = itertools.count()


@workflow.define(name="talk")
async def talk(plan: dict[str, Any], said: dict[str, Any] | None = None) -> dict[str, Any]:
    """Take signals, updates and queries, have children, go on as another run; what was said."""
    given = msgspec.convert(plan, Flow)
    assert given.talk is not None
    so_far = msgspec.convert(said or {}, Said)
    so_far.run += 1
    _task = _listen(so_far, given.talk)
    try:
        await _say(given, given.talk, so_far)
    except workflow.Cancelled:
        so_far.was_cancelled = True
        so_far.steps.append(await _outcome(_start(Step(id="cleanup", ms=5))))
        if not given.talk.stubborn:
            raise
    if so_far.run < given.talk.runs:
        workflow.continue_as_new(plan, msgspec.to_builtins(so_far))
    found: dict[str, Any] = msgspec.to_builtins(so_far)
    return found


def _listen(so_far: Said, terms: Talk) -> asyncio.Future[None] | None:
    """Take what comes; the task that does so, where there is one, is to be kept."""

    @workflow.query
    def said() -> Any:
        return msgspec.to_builtins(so_far)

    @workflow.update
    async def add(number: int) -> int:
        await workflow.sleep_ms(terms.gap_ms)
        so_far.done.append(number)
        return len(so_far.done)

    @add.validator
    def check(number: int) -> None:
        if is_bad(number):
            raise ValueError(f"{number} is none that is taken")

    @workflow.signal
    def report(child: int, number: int) -> None:
        so_far.heard.append((child, number))

    async def collect(box: workflow.Box) -> None:
        async for number in box:
            so_far.seen.append(number)

    if terms.boxed:
        return asyncio.ensure_future(collect(workflow.receive("number")))

    @workflow.signal(name="number")
    def take(number: int) -> None:
        so_far.seen.append(number)

    return None


async def _say(given: Flow, terms: Talk, so_far: Said) -> None:
    so_far.patched.append(workflow.patched("patch"))
    so_far.marks.append(workflow.side_effect(lambda: next(_numbers)))
    workflow.set_search_attributes({"run": so_far.run})
    if terms.greets:
        workflow.external(terms.greets).signal("hello", given.id)
    if terms.stops and so_far.run == 1:
        await _stop(terms.stops)
    for number in range(terms.reports):
        workflow.external(terms.reports_to).signal("report", terms.reports_as, number)
    is_last = so_far.run >= terms.runs
    children = [
        await _child(given, child, at) for at, child in enumerate(terms.children) if so_far.run == 1
    ]
    for step in given.steps:
        so_far.steps.append(await _outcome(_start(step)))
        _go_on_or_end()
        if given.nap_ms:
            await workflow.sleep_ms(given.nap_ms)
    for at, (child, handle) in enumerate(zip(terms.children, children, strict=False)):
        if child.cancels:
            handle.cancel()
        if child.awaits and is_last:
            end = await _end_of(handle)
            so_far.steps.append(str(end))
            if isinstance(end, dict):
                so_far.ends.append((at, end["seen"]))
            _go_on_or_end()
    so_far.patched.append(workflow.patched("patch"))
    wanted = terms.signals * so_far.run // terms.runs
    await workflow.wait_condition(lambda: len(so_far.seen) >= wanted)
    if is_last and terms.endless and not so_far.was_cancelled:
        await workflow.wait_condition(lambda: False)


async def _child(given: Flow, child: Child, number: int) -> workflow.ChildHandle[Any]:
    plan = Flow(id=given.id, steps=child.steps)
    kind: Any = flow
    if child.signals or child.reports:
        terms = Talk(
            signals=child.signals, reports=child.reports, reports_to=given.id, reports_as=number
        )
        kind, plan = talk, msgspec.structs.replace(plan, talk=terms)
    handle: workflow.ChildHandle[Any] = await workflow.start_child(
        kind, msgspec.to_builtins(plan), workflow_id=child.id or None, parent_close=child.close
    )
    for signal in range(child.signals):
        handle.signal("number", signal)
    # Not all are awaited: what becomes of the others is nobody's concern.
    handle.add_done_callback(lambda one: one.cancelled() or one.exception())
    return handle


async def _stop(workflow_id: str) -> None:
    """Ask it to end, as soon as it is there."""
    while True:
        try:
            await workflow.external(workflow_id).cancel("planned")
        except workflow.ExternalFailed:
            await workflow.sleep_ms(300)
        else:
            return


async def _end_of(handle: workflow.ChildHandle[Any]) -> Any:
    try:
        return await handle
    except workflow.ChildFailed as problem:
        return f"child: {problem.failure.type}"
    except workflow.Cancelled:
        _go_on_or_end()
        return "child: cancelled"


def _go_on_or_end() -> None:
    """Where what was waited for ended well all the same, nobody has told the workflow itself."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise workflow.Cancelled


def is_bad(number: int) -> bool:
    """Whether the validator of updates says no to it."""
    return number % 5 == 4


REGISTRY = Registry([flow, talk], [plain_step, async_step])


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
