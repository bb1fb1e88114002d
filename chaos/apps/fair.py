"""Fair: workflows that people talk to, cancel, pause and take back; and activities that run outside
of the worker: in a program, in a process of their own, in somebody else's hands.

Every run and effect goes to the ledger of FlakyDemo. Whatever runs outside starts a process that
would outlive it, if nobody saw to it: `LINGERERS` says how such a one can be recognised.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from typing import Any

import perdure.subprocess
from chaos.workload import PATIENT, Step
from perdure import activity, workflow

# Nobody sleeps that long by chance.
PROGRAM_LINGERS_S, ENCLOSED_LINGERS_S = "86311", "86312"
LINGERERS = (PROGRAM_LINGERS_S, ENCLOSED_LINGERS_S)
LONG_MS = 600_000
GRACE_MS = 300
HEARTBEAT_MS = 30_000
BEAT_S = 0.1
WORK_MS = 60
ASKED = "asked"
GATED = "gated"
LATER = "later"
RUN_LENGTH = 12
ERRAND_EFFECTS = 4
CHILD = "/@1"  # Behind the id of a visit that brings a child: that of the child, a visit too.
VISITS = ("timer", "beat", "program", "enclosed", "child")
"""What a visit waits in until it is asked to end."""


# --- activities -----------------------------------------------------------------------
@activity.define(retry=PATIENT, start_to_close_ms=60_000)
def note(work_ms: int, ledger: str) -> str:
    """An effect, in the middle of some work."""
    step = Step(ledger)
    time.sleep(work_ms / 2_000)
    receipt = step.apply()
    time.sleep(work_ms / 2_000)
    return step.returned(receipt)


@activity.define(retry=PATIENT, start_to_close_ms=60_000)
def gated(work_ms: int, ledger: str) -> str:
    """As `note`; operators pause this type."""
    return note(work_ms, ledger)


@activity.define(retry=PATIENT, start_to_close_ms=LONG_MS, grace_ms=GRACE_MS)
def program(work_ms: int, ledger: str) -> str:
    """A program that leaves a process behind, in a session of its own; then the effect."""
    step = Step(ledger)
    script = f"setsid sleep {PROGRAM_LINGERS_S} & exec sleep {work_ms / 1_000}"
    try:
        perdure.subprocess.run(["sh", "-c", script], grace_ms=GRACE_MS)
    except activity.Cancelled:
        step.cancelled()
        raise
    return step.returned(step.apply())


@activity.define(retry=PATIENT, start_to_close_ms=LONG_MS, isolation="process", grace_ms=GRACE_MS)
def enclosed(work_ms: int, ledger: str) -> str:
    """Works in a process of its own, leaves one behind, has its effect."""
    step = Step(ledger)
    subprocess.Popen(["sleep", ENCLOSED_LINGERS_S], start_new_session=True)
    try:
        time.sleep(work_ms / 1_000)
    except activity.Cancelled:
        step.cancelled()
        raise
    return step.returned(step.apply())


@activity.define(
    retry=PATIENT, start_to_close_ms=LONG_MS, heartbeat_ms=HEARTBEAT_MS, cancellation="wait"
)
def beat(work_ms: int, ledger: str) -> str:
    """Works with heartbeats, has its effect; the workflow waits until it has really ended."""
    step, until = Step(ledger), time.monotonic() + work_ms / 1_000
    try:
        while time.monotonic() < until:
            activity.record_heartbeat()
            time.sleep(BEAT_S)
    except activity.Cancelled:
        step.cancelled()
        raise
    return step.returned(step.apply())


@activity.define(retry=PATIENT, start_to_close_ms=LONG_MS)
def ask(ledger: str) -> str:
    """Is finished by whoever reads its token in the ledger."""
    Step(ledger).returned(LATER)
    raise activity.CompleteLater


# --- workflows ------------------------------------------------------------------------
@workflow.define(name="FairErrand")
async def errand(ledger: str, work_ms: int = WORK_MS) -> list[str]:
    """One of each, one after the other; their results."""
    return [
        await workflow.execute_activity(note, work_ms, ledger, activity_id="first"),
        await workflow.execute_activity(program, 3 * work_ms, ledger, activity_id="program"),
        await workflow.execute_activity(enclosed, 3 * work_ms, ledger, activity_id="enclosed"),
        await workflow.execute_activity(ask, ledger, activity_id=ASKED),
        await workflow.execute_activity(gated, work_ms, ledger, activity_id=GATED),
    ]


@workflow.define(name="FairStall")
async def stall(
    ledger: str, heard: Sequence[int] = (), orders: Sequence[int] = ()
) -> dict[str, list[int]]:
    """Hears signals and takes orders until it is closed, and goes on as a new run every now and
    then; all that it heard and did, in order.
    """
    calls, done = list(heard), list(orders)
    begun = len(calls) + len(done)
    closed = False

    @workflow.signal
    def call(number: int) -> None:
        calls.append(number)

    @workflow.signal
    def close() -> None:
        nonlocal closed
        closed = True

    @workflow.query
    def content() -> dict[str, list[int]]:
        return {"heard": calls, "orders": done}

    @workflow.update
    async def order(number: int) -> str:
        receipt = await workflow.execute_activity(
            note, WORK_MS, ledger, activity_id=f"order-{number}"
        )
        done.append(number)
        return receipt

    @order.validator
    def check(number: int) -> None:
        if number < 0:
            raise ValueError("orders count from 0")

    await workflow.wait_condition(lambda: closed or len(calls) + len(done) - begun >= RUN_LENGTH)
    await workflow.wait_condition(workflow.all_handlers_finished)
    if not closed:
        workflow.continue_as_new(ledger, calls, done)
    return {"heard": calls, "orders": done}


@workflow.define(name="FairVisit")
async def visit(kind: str, ledger: str) -> None:
    """Comes, stays until it is asked to end, and tidies up; `kind` is one of VISITS."""
    await workflow.execute_activity(note, WORK_MS, ledger, activity_id="enter")
    stays: dict[str, Any] = {"beat": beat, "program": program, "enclosed": enclosed}
    try:
        if kind == "child":
            await workflow.execute_child(visit, "timer", ledger)
        elif kind in stays:
            await workflow.execute_activity(stays[kind], LONG_MS, ledger, activity_id="stay")
        else:
            await workflow.sleep_ms(LONG_MS)
    finally:
        await workflow.execute_activity(note, WORK_MS, ledger, activity_id="leave")


@workflow.define(name="FairBell")
async def bell(ledger: str) -> list[str]:
    """One effect: what schedules start."""
    return [await workflow.execute_activity(note, WORK_MS, ledger, activity_id="ring")]


@workflow.define(name="FairParcel")
async def parcel(ledger: str) -> list[str]:
    """One effect, once its label has come as a signal: what an outbox starts."""
    label = await workflow.receive("label").get()
    receipt = await workflow.execute_activity(note, WORK_MS, ledger, activity_id=f"send-{label}")
    return [receipt]


@workflow.define(name="FairPair")
async def pair(ledger: str) -> list[str]:
    """Two effects; operators take it back behind the first one."""
    return [
        await workflow.execute_activity(note, WORK_MS, ledger, activity_id=name)
        for name in ("first", "second")
    ]
