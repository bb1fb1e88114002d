"""Turns numbers into commands for a ledger that are mostly, not always, about what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core import commands as c
from perdure.core.dead_letters import DeadLetters
from perdure.core.decide_steps import PARENT_CLOSES
from perdure.core.ids import Address
from perdure.core.more import More
from perdure.core.records import ActivityOptions, SignalNotes, decode_body
from perdure.core.start import StartTerms
from perdure.core.task_queues import TaskQueues
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import LOCAL, Rig

WORKFLOWS = ("w0", "w1")
ACTIVITIES = ("a", "b")
PAYLOADS = (None, b"m\x01", b"m" + b"x" * 2_000)
FAILURES = (
    Failure("Boom", "again"),
    Failure("Bad", "listed"),
    Failure("Late", retry_after_ms=5_000),
)
POLICIES = (
    RetryPolicy(100, 2.0, 300, 3, ("Bad",)),
    RetryPolicy(100, 1.5, 10_000, 1),
    RetryPolicy(100, 2.0, 1_000, 4, min_interval_ms=50),
)
OPTIONS = (
    {},
    {"heartbeat_ms": 400, "start_to_close_ms": 1_000},
    {"schedule_to_close_ms": 900},
    {"schedule_to_start_ms": 300, "priority": 2},
)
ENDS = ("worker_died", "node_restart", "undelivered")


class Script:
    """Turns numbers into commands that are mostly, not always, about what is there."""

    def __init__(self, store: Any = None) -> None:
        self.rig = Rig(store, jitter=None)
        self.queues = TaskQueues()
        self.letters = DeadLetters()  # Hears only of commits that the ledger marks for it.
        self.n = 1  # What the queues have heard of.
        self.is_strict = False  # Whether workflow tasks are only of workflows that were woken.
        self.timers = 0
        self.children = 0
        self.proposals: list[c.AnyCommand] = []  # Made by the queues, and not asked yet.

    def run(self, op: str, x: int, y: int) -> None:
        workflow_id = self.rig.ledger.newest(WORKFLOWS[x % 2])
        command = OPS[op](self, workflow_id, x // 2, y)
        if command is not None and not (self.is_strict and self._is_unwoken(command)):
            self.rig.ask(*command) if isinstance(command, tuple) else self.rig.ask(command)
        self.hear()

    def _is_unwoken(self, command: Any) -> bool:
        """Whether it is a workflow task that no scheduler would have given out."""
        if not isinstance(command, c.CompleteWorkflowTask):
            return False
        execution = self.rig.ledger.execution(command.workflow_id)
        return execution is not None and not execution.task_ready

    def hear(self) -> None:
        reader = self.rig.store.reader()
        marked = {batch.n for batch in self.rig.batches if batch.dead_letters}
        for row in reader.commits(self.n, 1_000):
            for group in decode_body(row.body).groups:
                name, records = group.workflow_id, group.records
                self.queues.apply(name, row.at_ms, records, row.n)
                if row.n in marked and self.letters.concerns(name, records):
                    self.letters.refresh(name, reader.execution(name))
            self.n = row.n

    # --- operations -------------------------------------------------------------
    def start(self, workflow_id: str, x: int, y: int) -> Any:
        return (self.rig.start(workflow_id, f"r{y % 2}"), self.rig.start(workflow_id, f"r{x % 2}"))

    def step(self, workflow_id: str, x: int, y: int) -> Any:
        execution = self.rig.ledger.execution(workflow_id)
        if execution is None:
            return None
        known = set(execution.activities)
        again = [] if execution.more is None else sorted(execution.more.again)
        steps: list[c.Step] = []
        for at, activity_id in enumerate(ACTIVITIES):
            name = f"{activity_id}{execution.last_event_id}"
            if again and y % 2:
                name = again.pop(y % len(again))  # It was scheduled before a reset.
            if x >> at & 1 and len(known) < 3:
                options = ActivityOptions(POLICIES[y % 3], **OPTIONS[(x + y) % 4])
                steps.append(c.ScheduleActivity(name, "t", PAYLOADS[y % 3], options))
        if x & 4:
            self.timers += 1
            steps.append(c.StartTimer(self.timers, y * 37))
        if x & 8 and known:
            steps.append(c.CancelActivity(sorted(known)[y % len(known)]))
        if x & 16 and execution.timers:
            steps.append(c.CancelTimer(min(execution.timers)))
        cursor = (execution.consumed, execution.commands, execution.last_event_id)
        return c.CompleteWorkflowTask(workflow_id, *cursor, tuple(steps))

    def close(self, workflow_id: str, x: int, y: int) -> Any:
        execution = self.rig.ledger.execution(workflow_id)
        if execution is None or y % 16 != 7:
            return None
        cursor = (execution.consumed, execution.commands, execution.last_event_id)
        last = c.FailWorkflow(FAILURES[0]) if y == 7 else c.CompleteWorkflow(PAYLOADS[x % 3])
        return c.CompleteWorkflowTask(workflow_id, *cursor, (c.StartTimer(0, 5), last))

    def more_steps(self, workflow_id: str, x: int, y: int) -> Any:
        """What concerns others, or is said once."""
        execution = self.rig.ledger.execution(workflow_id)
        if execution is None:
            return None
        open_activities = sorted(execution.activities) or ["none"]
        more = execution.more or More()
        child_id = min(more.children, default="none")
        self.children += 1
        new_id = f"c{self.children if x % 4 else 1}"
        terms = (None, StartTerms(delay_ms=y * 9), StartTerms(timeout_ms=1 + y * 50))[x % 3]
        update = (min(more.updates, default="none"), PAYLOADS[x % 3], None, False)
        steps: tuple[c.Step, ...] = (
            c.CancelActivity(open_activities[x % len(open_activities)], "wait"),
            c.CancelActivity(open_activities[x % len(open_activities)], "abandon"),
            c.StartChild(new_id, "C", "q", PAYLOADS[y % 3], PARENT_CLOSES[x % 3], terms),
            c.CancelChild(child_id),
            c.SendSignal((*WORKFLOWS, "none")[x % 3], "s", PAYLOADS[y % 3], answered=x % 5 > 0),
            c.CancelExternal("none" if x % 7 else WORKFLOWS[x % 2], "so"),
            c.RecordMarker("side_effect", "1", PAYLOADS[y % 3]),
            c.SetSearchAttributes((("a", y), ("b", None if x % 2 else "t"))),
            c.EndUpdate(*update),
        )
        cursor = (execution.consumed, execution.commands, execution.last_event_id)
        notes = SignalNotes(("s",), (("t", y),), ((1, "s", "why"),) * (x % 3)) if x % 2 else None
        both = (steps[y % 9], steps[x % 9])
        return c.CompleteWorkflowTask(workflow_id, *cursor, both, signals=notes)

    def child(self, workflow_id: str, x: int, y: int) -> Any:
        """A child ends, or waits."""
        execution = self.rig.ledger.execution(workflow_id)
        more = None if execution is None else execution.more
        child_id = None if more is None else min(more.children, default=None)
        child = None if child_id is None else self.rig.ledger.execution(child_id)
        if child is None:
            return None
        steps = (
            c.CompleteWorkflow(PAYLOADS[y % 3]),
            c.FailWorkflow(FAILURES[0]),
            c.CancelWorkflowStep("so"),
            c.StartTimer(y, 100),
        )
        cursor = (child.consumed, child.commands, child.last_event_id)
        return c.CompleteWorkflowTask(child.workflow_id, *cursor, (steps[y % 4],))

    def message(self, workflow_id: str, x: int, y: int) -> Any:
        name = WORKFLOWS[x % 2]
        request_id = (None, f"r{y % 5}")[x % 2]
        if y % 3:
            return c.SignalWorkflow(name, "s", PAYLOADS[y % 3], request_id)
        if y % 2:
            return c.CancelWorkflow(name, "enough", request_id)
        return c.UpdateWorkflow(name, "u", PAYLOADS[y % 3], f"u{y}")

    def end_run(self, workflow_id: str, x: int, y: int) -> Any:
        execution = self.rig.ledger.execution(workflow_id)
        if execution is None or y % 16 > 8:
            return None
        if y % 16 == 8:
            return c.TerminateWorkflow(WORKFLOWS[x % 2], "enough", None) if x % 4 == 3 else None
        cursor = (execution.consumed, execution.commands, execution.last_event_id)
        signals = tuple(("s", payload) for payload in PAYLOADS[: y % 4])
        last: c.Step = c.ContinueAsNew("T", "default", PAYLOADS[x % 3], signals)
        if y == 1 and x % 4 == 2:
            last = c.CancelWorkflowStep("enough")
        return c.CompleteWorkflowTask(workflow_id, *cursor, (last,))

    def detach(self, *where: Any) -> Any:
        return c.DetachLease(self._token(*where), PAYLOADS[where[2] % 3], where[2] % 6)

    def fail_task(self, workflow_id: str, x: int, y: int) -> Any:
        execution = self.rig.ledger.execution(workflow_id)
        if execution is None or not execution.task_ready:
            return None
        cursor = (execution.consumed, execution.commands)
        reason = ("mismatch", "handed_back", "unknown_type", "error")[y % 4]
        return c.FailWorkflowTask(workflow_id, *cursor, reason, FAILURES[0])

    def _activity(self, workflow_id: str, x: int) -> Any:
        execution = self.rig.ledger.execution(workflow_id)
        if execution is None or not execution.activities:
            return None
        names = sorted(execution.activities)
        return execution.activities[names[x % len(names)]]

    def grant(self, workflow_id: str, x: int, y: int) -> Any:
        held = self._activity(workflow_id, x)
        if held is None:
            return None
        name = (workflow_id, held.activity_id, held.generation, held.grant + 1, held.attempt)
        return c.GrantLease(*name, f"w{y % 3}", LOCAL if y % 2 else None)

    def _address(self, workflow_id: str, x: int, y: int) -> Address:
        held = self._activity(workflow_id, x)
        if held is None:
            return Address(workflow_id, "a2", 1, 1)
        older = 1 if y % 8 == 7 else 0
        return Address(workflow_id, held.activity_id, held.generation, held.grant - older)

    def _token(self, *where: Any) -> str:
        return self.rig.token(self._address(*where))

    def complete(self, *where: Any) -> Any:
        report = c.CompleteActivity(self._token(*where), PAYLOADS[where[2] % 3])
        return (report, report) if where[2] % 2 else report

    def fail(self, *where: Any) -> Any:
        y = where[2]
        report = c.FailActivity(self._token(*where), FAILURES[y % 3], PAYLOADS[y % 3], y)
        return (report, report) if y % 2 else report

    def heartbeat(self, *where: Any) -> Any:
        y = where[2]
        return c.RecordHeartbeat(self._token(*where), y % 6, PAYLOADS[y % 3], y % 3 > 0)

    def release(self, *where: Any) -> Any:
        return c.ReleaseActivity(self._token(*where), "shutdown", PAYLOADS[where[2] % 3], where[2])

    def expire(self, *where: Any) -> Any:
        return c.ExpireLease(self._address(*where), PAYLOADS[where[2] % 3], where[2])

    def end(self, *where: Any) -> Any:
        return c.EndLease(self._address(*where), ENDS[where[2] % 3], None, where[2])

    def resolve(self, workflow_id: str, x: int, y: int) -> Any:
        held = self._activity(workflow_id, x)
        activity_id = "none" if held is None else held.activity_id
        request_id = (None, f"r{y}")[y % 2]
        if y % 5 == 0:
            return c.FailDeadLetter(workflow_id, activity_id, request_id)
        if y % 5 == 1:
            return c.CompleteDeadLetter(workflow_id, activity_id, PAYLOADS[y % 3], request_id)
        return c.RedriveDeadLetter(workflow_id, activity_id, request_id)

    def pause(self, workflow_id: str, x: int, y: int) -> Any:
        request_id = (None, f"p{x}")[y % 2]
        return c.PauseWorkflow(workflow_id, y % 3 == 0, f"because {y % 2}", request_id)

    def gate(self, workflow_id: str, x: int, y: int) -> Any:
        kind, name = (("queue", "default"), ("activity_type", "t"))[x % 2]
        return c.SetGate("", kind, name, y % 3 == 0, f"because {y % 2}", (None, f"g{x}")[y % 2])

    def retry(self, workflow_id: str, x: int, y: int) -> Any:
        held = self._activity(workflow_id, x)
        return c.RetryNow(workflow_id, "" if held is None or y % 2 else held.activity_id)

    def advance(self, workflow_id: str, x: int, y: int) -> None:
        """Time passes, and the scheduler proposes what fell due."""
        self.rig.now_ms += y * y
        self.proposals += self.queues.due(self.rig.now_ms)
        while self.proposals:
            for proposal in self.proposals:
                self.rig.ask(proposal)
            self.hear()
            self.proposals = self.queues.due(self.rig.now_ms)

    def reset(self, workflow_id: str, x: int, y: int) -> Any:
        execution = self.rig.ledger.execution(workflow_id)
        if execution is None or y % 4:
            return None  # Seldom: much of what is to be seen needs its time.
        to_event = 1 + (x * 31 + y) % (execution.last_event_id + 1)
        request_id = (None, f"r{y % 5}")[x % 2]
        return c.ResetWorkflow(WORKFLOWS[x % 2], to_event, "", request_id, y % 8 == 4)

    def restart(self, workflow_id: str, x: int, y: int) -> None:
        self.rig.open()


OPS: dict[str, Callable[..., Any]] = {
    name: getattr(Script, name)
    for name in (
        "start",
        "step",
        "close",
        "more_steps",
        "child",
        "message",
        "end_run",
        "detach",
        "fail_task",
        "grant",
        "complete",
        "fail",
        "heartbeat",
        "release",
        "expire",
        "end",
        "resolve",
        "pause",
        "gate",
        "retry",
        "advance",
        "reset",
        "restart",
    )
}
# What moves things on comes often, so that scripts reach far.
FREQUENT = [
    "step",
    "grant",
    "grant",
    "pause",
    "gate",
    "fail",
    "fail",
    "advance",
    "advance",
    "detach",
    "resolve",
]


def begun(store: Any = None) -> Script:
    """Two workflows with two activities and a timer each."""
    script = Script(store)
    for workflow in (0, 1):
        script.run("start", workflow, 0)
        script.run("step", workflow + 14, 2)
    return script
