"""The queue of workflow tasks to be run, and the watch over the one that runs.

The thread that leads the main loop runs them, between two turns of the loop (see Relay). Where one
takes long, another thread leads on, and the rest of the queue waits for it. The watch is that
leader's: after `BLOCKED_MS` in which the workflow gave its loop no turn it
raises Blocked into that thread, again every `AGAIN_MS`, and after `GIVEN_UP_MS` it leaves the
thread, and the workflows that it had in memory, to themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from perdure.clock import boottime_ms
from perdure.core.commands import CompleteWorkflowTask
from perdure.worker.errand import Errand
from perdure.worker.relay import Relay
from perdure.worker.sockets import Inbox
from perdure.worker.stage import Following, Outcome, Stage, Work
from perdure.workflow import Definition

SLICE_MS = 10
LOOK_MS = 250
LOOK_COUNTS_MS = 500
BLOCKED_MS = 2_000
AGAIN_MS = 1_000
GIVEN_UP_MS = 5_000

Done = Callable[[Work, Outcome, int], None]


class Replays:
    """Runs work in order, one at a time. All is the main loop's, whoever leads it."""

    def __init__(
        self,
        definitions: Mapping[str, Definition],
        relay: Relay,
        inbox: Inbox,
        done: Done,
        clock: Callable[[], int] = boottime_ms,
    ) -> None:
        self._definitions = definitions
        self._relay = relay
        self._inbox = inbox
        self._done = done
        self._clock = clock
        self._queue: deque[Work | Following | Errand | str] = deque()
        self._stage = Stage(definitions)
        self._is_away = False  # A thread that has lost the lead is still on the stage.
        self._seen = 0
        self._looked_ms = 0
        self._still_ms = 0
        self._interrupt_at_ms = 0

    @property
    def is_ready(self) -> bool:
        """Whether `run` has something to do."""
        return bool(self._queue) and not self._is_away

    def submit(self, work: Work | Errand) -> None:
        """Have `work` run; `done` is called with its outcome, or it is told that it is over."""
        self._queue.append(work)

    def follow(self, following: Following) -> bool:
        """Run a workflow on ahead of history, if it is in memory and waits for just that.

        False: it can't be; `following.done` is not called then.
        """
        if self._is_away or self._stage.awaits(following.workflow_id) != following.activity_id:
            return False
        self._queue.append(following)
        return True

    def evict(self, workflow_id: str) -> None:
        """Forget the cached state of a workflow, in its turn."""
        self._queue.append(workflow_id)

    def hand_back(self) -> None:
        """Run nothing more that has not begun."""
        self._stage.handing_back = True

    def run(self, now_ms: int) -> Stage | None:
        """Run what is queued, for a slice of time.

        The stage where the lead has been lost in that: the caller must touch nothing any more.
        """
        until_ms = now_ms + SLICE_MS
        while self.is_ready and now_ms < until_ms:
            stage, work = self._stage, self._queue.popleft()
            number = self._relay.enter()
            outcome = stage.run(work)
            if not self._relay.leave(number):
                self._inbox.post(self._returned, stage, work, outcome)
                return stage
            now_ms = self._clock()
            self._end(work, outcome, now_ms)
        return None

    def _end(
        self, work: Work | Following | Errand | str, outcome: Outcome | None, now_ms: int
    ) -> None:
        if isinstance(work, Following):
            if work.given_up:
                self.evict(work.workflow_id)  # It is ahead of what history was told.
            else:
                taken = isinstance(outcome, CompleteWorkflowTask)
                work.done(outcome if taken else None, now_ms)  # type: ignore[arg-type]
        elif isinstance(work, Errand):
            work.over(now_ms)
        elif isinstance(work, Work) and outcome is not None:
            self._done(work, outcome, now_ms)

    def _returned(
        self,
        stage: Stage,
        work: Work | Following | Errand | str,
        outcome: Outcome | None,
        now_ms: int,
    ) -> None:
        if stage is not self._stage:
            return  # It was given up.
        self._is_away = False
        self._end(work, outcome, now_ms)

    # --- the watch --------------------------------------------------------------------
    def overtaken(self, now_ms: int) -> None:
        """The calling thread has the lead from now on; the one before is still on the stage."""
        self._is_away = True
        self._give_up_following(now_ms)
        self._seen = self._stage.turns
        self._looked_ms = now_ms
        self._still_ms, self._interrupt_at_ms = 0, BLOCKED_MS

    def _give_up_following(self, now_ms: int) -> None:
        """Nothing that is done waits for a workflow that takes its time."""
        works = [self._stage.work, *self._queue]
        for work in works:
            if isinstance(work, Following) and not work.given_up:
                work.given_up = True
                work.done(None, now_ms)
        self._queue = deque(
            work.workflow_id if isinstance(work, Following) else work for work in self._queue
        )

    def next_ms(self) -> int | None:
        """When `watch` wants to look, at the latest; None while there is nothing to watch."""
        return self._looked_ms + LOOK_MS if self._is_away else None

    def watch(self, now_ms: int) -> None:
        """Look whether the work moves, and raise into it, or leave it, if it does not.

        Time counts only while this loop itself ran: a process that was stopped accuses nobody.
        """
        stage = self._stage
        passed_ms, self._looked_ms = min(now_ms - self._looked_ms, LOOK_COUNTS_MS), now_ms
        if stage.work is None or stage.turns != self._seen:
            self._seen = stage.turns
            self._still_ms, self._interrupt_at_ms = 0, BLOCKED_MS
            return
        self._still_ms += passed_ms
        if self._still_ms >= GIVEN_UP_MS:
            self._leave(now_ms)
        elif self._still_ms >= self._interrupt_at_ms:
            self._interrupt_at_ms += AGAIN_MS
            stage.interrupt(BLOCKED_MS)

    def _leave(self, now_ms: int) -> None:
        stage = self._stage
        work = stage.leave()
        self._still_ms, self._interrupt_at_ms = 0, BLOCKED_MS
        if work is None:
            return
        self._stage = Stage(self._definitions)
        self._stage.handing_back = stage.handing_back
        self._is_away = False
        self._relay.appoint()
        if isinstance(work, Work):
            self._done(work, work.fails("blocked", stage.where()), now_ms)
        elif isinstance(work, Errand):
            work.blocked(stage.where())
            work.over(now_ms)
