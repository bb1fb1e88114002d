"""Where workflow functions run: one at a time, with the cache of those that are in memory.

Whatever thread runs the work, the stage is its own until the work is over. The watch is another
thread's: it may raise Blocked into the work, or leave the stage to a thread that does not move.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from perdure import logs
from perdure.core import commands, limits, links
from perdure.core.records import ActivityTaskCompleted, Payload, WorkflowReset, decode_event
from perdure.failures import (
    PAYLOAD_TOO_LARGE,
    Failure,
    cut,
    engine_failure,
    failure_from_exception,
)
from perdure.log_names import LogName
from perdure.values import PAYLOAD_MAX
from perdure.worker.endings import TERMINAL
from perdure.worker.errand import Errand
from perdure.worker.interrupts import raise_in, settle
from perdure.worker.lines import author_line
from perdure.worker.notes import notes_in
from perdure.worker.replay import Replayer
from perdure.worker.workflow_side import size_of
from perdure.workflow import Definition, NonDeterminism

CACHED_MAX = 10_000  # Of a small workflow one takes about 6 kB.
CHUNK = 500
# So few can't be too large together.
FEW_STEPS = limits.WORKFLOW_RESULT_BYTES_MAX // (PAYLOAD_MAX + 1)
# With so much in its steps a task reports before it has taken all its events: how many came
# together is chance, and must not make too much of what the code asks for piece by piece.
ENOUGH_BYTES = limits.WORKFLOW_RESULT_BYTES_MAX // 2


class Blocked(BaseException):
    """Raised into a workflow function that does not give its loop a turn."""


class Missing(msgspec.Struct, frozen=True):
    """The events after `after` are needed first; 0: the whole history."""

    after: int


Outcome = commands.CompleteWorkflowTask | commands.FailWorkflowTask | Missing


class Following:
    """A workflow to be run on from the end of the only activity that it waits for, before history
    knows of that end: `result` at `at_ms`. `done` is told the outcome, None where there is none.
    """

    __slots__ = ("activity_id", "at_ms", "done", "given_up", "result", "workflow_id")

    def __init__(
        self,
        workflow_id: str,
        activity_id: str,
        result: Payload,
        at_ms: int,
        done: Callable[[commands.CompleteWorkflowTask | None, int], None],
    ) -> None:
        self.workflow_id = workflow_id
        self.activity_id = activity_id
        self.result = result
        self.at_ms = at_ms
        self.done = done
        self.given_up = False


class Work:
    """One run of a workflow task. `whole`: `events` are all there are, from the first on."""

    __slots__ = ("events", "task", "whole", "workflow_id")

    def __init__(
        self, task: links.WorkflowTask, events: Sequence[msgspec.Raw] | None, whole: bool
    ) -> None:
        self.task = task
        self.workflow_id = task.workflow_id
        self.events = events
        self.whole = whole

    def fails(self, reason: str, failure: Failure | None = None) -> commands.FailWorkflowTask:
        """The report that this task did not work out."""
        task = self.task
        return commands.FailWorkflowTask(
            task.workflow_id, task.consumed, task.commands, reason, failure
        )


class Stage:
    """Runs work in order, and keeps the workflows that it leaves open."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self.turns = 1
        # A text: that workflow is being evicted.
        self.work: Work | Following | Errand | str | None = None
        self.left = False
        self.handing_back = False
        self._definitions = definitions
        self._cache: OrderedDict[str, Replayer] = OrderedDict()
        self._copies: OrderedDict[str, Replayer] = OrderedDict()  # Of workflows, for queries.
        self._lock = threading.Lock()
        self._ident = 0
        self._interrupted = False
        self._still_ms = 0
        self._where = ""
        self._line = ""

    # --- the watch's --------------------------------------------------------------
    def interrupt(self, still_ms: int) -> None:
        """Raise Blocked into the work at hand, which has not moved for so long."""
        with self._lock:
            if self.work is None:
                return
            frame = sys._current_frames().get(self._ident)
            if frame is not None and not self._interrupted:
                self._where = "".join(traceback.format_stack(frame))
                self._line = author_line(frame)
                self._still_ms = still_ms
            self._interrupted = True
            work = self.work
            workflow_id = work if isinstance(work, str) else work.workflow_id
            logs.logger().warning(
                LogName.WORKER_WORKFLOW_BLOCKED, workflow_id=workflow_id, where=self._line
            )
            raise_in(self._ident, Blocked)

    def leave(self) -> Work | Following | Errand | str | None:
        """Count no more on what runs here: the work that is stuck. None: it has just moved."""
        with self._lock:
            if self.work is None:
                return None
            self.left = True
            return self.work

    def where(self) -> Failure:
        """The failure of work that blocked, with the place."""
        at = f", at {self._line}" if self._line else ""
        return Failure(
            "WorkflowBlocked",
            f"the workflow function did not give its loop a turn for {self._still_ms} ms{at}",
            stack=cut(self._where) or None,
        )

    # --- the thread's that runs the work ---------------------------------------------
    def run(self, work: Work | Following | Errand | str) -> Outcome | None:
        """Run `work`; None: there is nothing to report of it."""
        # Blocked may be raised anywhere from here to the end of `_settle`.
        outcome: Outcome | None = None
        try:
            self.turns += 1
            self._ident = threading.get_ident()
            self.work = work
            if isinstance(work, str):
                self._drop(work)
            elif isinstance(work, Following):
                outcome = self._run_on(work)
            elif isinstance(work, Errand):
                self._run_errand(work)
            else:
                outcome = self._run(work)
        except Blocked:
            pass  # `_settle` knows.
        while True:
            try:
                return self._settle(work, outcome)
            except Blocked:
                continue

    def _settle(
        self, work: Work | Following | Errand | str, outcome: Outcome | None
    ) -> Outcome | None:
        with self._lock:
            self.work = None  # From here on nothing new is raised into this thread.
        if not self._interrupted:
            return outcome
        settle()  # What was raised and has not arrived yet never does.
        self._interrupted = False
        if isinstance(work, str):
            return None
        if isinstance(work, Errand):
            work.blocked(self.where())
            return None
        self._cache.pop(work.workflow_id, None)
        return None if isinstance(work, Following) else work.fails("blocked", self.where())

    def _run_errand(self, errand: Errand) -> None:
        try:
            errand.run(self._copies, self._moved)
        except Blocked:
            raise  # Our own.
        except BaseException as problem:  # noqa: BLE001 - SystemExit of a query ends no worker
            errand.blocked(Failure(type(problem).__name__, f"it raised {problem!r}"))

    def _moved(self) -> None:
        self.turns += 1

    def awaits(self, workflow_id: str) -> str | None:
        """The activity that is all that a cached workflow waits for; None if it is not so."""
        replayer = self._cache.get(workflow_id)
        return None if replayer is None else replayer.awaits

    def _run_on(self, work: Following) -> Outcome | None:
        """The task that follows; None, and the workflow evicted, where anything is amiss: the
        node gives it out then, and what is wrong shows there.
        """
        replayer = self._cache.get(work.workflow_id)
        if self.handing_back or replayer is None or replayer.awaits != work.activity_id:
            return None
        outcome: commands.CompleteWorkflowTask | None = None
        try:
            commands_from, consumed_from = replayer.commands, replayer.consumed
            replayer.recorded()
            event = ActivityTaskCompleted(
                event_id=replayer.consumed + 2,
                at_ms=work.at_ms,
                activity_id=work.activity_id,
                generation=1,
                grant=1,
                attempt=1,
                result=work.result,
                started_ms=work.at_ms,
                worker_id="",
            )
            replayer.feed([event])
            outcome = commands.CompleteWorkflowTask(
                work.workflow_id,
                consumed_from,
                commands_from,
                replayer.consumed,
                replayer.take_steps(),
                signals=replayer.take_notes(),
            )
        except Blocked:
            raise  # Our own.
        except BaseException as problem:  # noqa: BLE001 - see above
            logs.logger().warning(
                LogName.WORKER_WORKFLOW_FAILED, workflow_id=work.workflow_id, problem=repr(problem)
            )
        if outcome is None or len(outcome.steps) > FEW_STEPS:
            self._drop(work.workflow_id)
            return None
        if outcome.steps and isinstance(outcome.steps[-1], TERMINAL):
            self._drop(work.workflow_id)
        return outcome

    def _run(self, work: Work) -> Outcome:
        task = work.task
        if self.handing_back:
            return work.fails("handed_back")
        try:
            return self._replay(work)
        except NonDeterminism as problem:
            self._drop(task.workflow_id)
            return work.fails("mismatch", failure_from_exception(problem))
        except Blocked:
            raise  # Our own.
        except BaseException as problem:  # noqa: BLE001 - reported to history, which shows it
            self._drop(task.workflow_id)
            return work.fails("error", failure_from_exception(problem))

    def _replay(self, work: Work) -> Outcome:
        task, events = work.task, work.events
        definition = self._definitions.get(task.workflow_type)
        if definition is None:
            return work.fails("unknown_type")
        cached = None if work.whole else self._cache.get(task.workflow_id)
        if cached and events and any(isinstance(note, WorkflowReset) for note in notes_in(events)):
            cached = None  # It has seen what does not count any more.
        if cached and (cached.consumed, cached.commands) == (task.consumed, task.commands):
            if events is None:
                return Missing(task.consumed)
            replayer = cached
            replayer.knows(task.commands)
            self._cache.move_to_end(task.workflow_id)
        else:
            self._drop(task.workflow_id)
            if events is None or not (work.whole or task.consumed == 0):
                return Missing(0)
            replayer = self._cache[task.workflow_id] = Replayer(definition, task.workflow_id)
            replayer.learn(notes_in(events), task.consumed)
            if not replayer.known.patches:
                replayer.knows(task.commands)
        is_whole = self._feed(replayer, events, task.consumed)
        steps = replayer.take_steps()
        # What history has of the last task may lie behind what this one leaves for the next.
        if is_whole and replayer.matched != task.commands:
            expected, got = f"{task.commands} commands", f"{replayer.matched}"
            message = f"the code does not agree with history: expected {expected}, got {got}"
            raise NonDeterminism(message, expected=expected, got=got)
        refusal = _too_large(work, steps)
        if refusal is not None:
            self._drop(task.workflow_id)
            return refusal
        result = commands.CompleteWorkflowTask(
            task.workflow_id,
            task.consumed,
            task.commands,
            replayer.consumed,
            steps,
            signals=replayer.take_notes(),
        )
        if steps and isinstance(steps[-1], TERMINAL):
            self._drop(task.workflow_id)
        elif len(self._cache) > CACHED_MAX:
            self._drop(next(iter(self._cache)))
        return result

    def _feed(self, replayer: Replayer, events: Sequence[msgspec.Raw], consumed: int) -> bool:
        """Have the code take these events; False: it asks for enough before it has taken all."""
        for start in range(0, len(events), CHUNK):
            self.turns += 1
            for raw in events[start : start + CHUNK]:
                is_enough = replayer.fresh_bytes > ENOUGH_BYTES and replayer.consumed > consumed
                if is_enough and not replayer.is_finished:  # An end takes the rest along.
                    return False
                replayer.feed((decode_event(raw),))
        return True

    def _drop(self, workflow_id: str) -> None:
        replayer = self._cache.pop(workflow_id, None)
        if replayer is None:
            return
        try:
            replayer.close()
        except Exception as problem:  # noqa: BLE001 - what a user's `finally` raises concerns nobody
            logs.logger().warning(
                LogName.WORKER_WORKFLOW_FAILED, workflow_id=workflow_id, problem=repr(problem)
            )


def _too_large(work: Work, steps: tuple[commands.Step, ...]) -> commands.FailWorkflowTask | None:
    if len(steps) <= FEW_STEPS:
        return None
    size = sum(map(size_of, steps))
    if size <= limits.WORKFLOW_RESULT_BYTES_MAX:
        return None
    message = (
        f"the {len(steps)} steps of one workflow task carry {size} bytes; the limit is "
        f"{limits.WORKFLOW_RESULT_BYTES_MAX} bytes: start less at a time"
    )
    return work.fails("error", engine_failure(PAYLOAD_TOO_LARGE, message))
