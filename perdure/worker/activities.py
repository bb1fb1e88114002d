"""The attempts that this worker holds: which run, until when, and what became of them.

All of it belongs to the main loop. Threads and coroutines of activities come in through the inbox.
A token is held from the receipt of its task until history has answered its report, or says that it
is not live: a task that is sent again meanwhile, or shortly after, is not run again.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator
from enum import Enum, auto

from perdure import logs, values
from perdure.core import commands, links
from perdure.core.records import Payload
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.failures import BAD_RESULT, Failure, engine_failure
from perdure.log_names import LogName
from perdure.worker.asks import TO_HISTORY, TO_LEASE_KEEPER, UNKNOWN_CODES, Asks
from perdure.worker.attempts import Attempt, Runner
from perdure.worker.outcome import Outcome
from perdure.worker.sockets import GatewayLink
from perdure.worker.stage import Following
from perdure.worker.workflows import Workflows

ENDED_KEPT = 10_000
BEATS_KEPT = 16
HEAP_SLACK = 1_000
# Who stood still may find that a lease has lasted on: so long it waits to be told.
ASK_MS = 1_000
LOST_CODES = frozenset({"FAILED_PRECONDITION", "NOT_FOUND"})
# What the workflow did then is not, or not surely, what it has in memory here.
_NOT_AS_HERE = (commands.STEP_DROPPED, commands.REPEATED)


class State(Enum):
    """What is with an attempt, from this worker's side."""

    WAITING = auto()
    RUNNING = auto()
    ENDING = auto()  # It is over; its workflow runs on before both are reported.
    REPORTED = auto()  # Waits for history's answer.
    FENCED = auto()  # Lost by our own clock; waits until the node says so too.


class Held:
    """One token that this worker holds."""

    __slots__ = ("attempt", "beat_n", "beats_sent", "lease_until_ms", "report", "state", "until_ms")

    def __init__(self, attempt: Attempt, now_ms: int) -> None:
        self.attempt = attempt
        self.state = State.WAITING
        self.until_ms = now_ms + attempt.task.attempt_ms
        self.lease_until_ms = min(self.until_ms, now_ms + attempt.task.lease_ms)
        self.report: commands.Command | None = None
        self.beat_n = 0
        self.beats_sent: dict[int, tuple[int, int]] = {}  # n: (beat, sent_ms)


Heap = list[tuple[int, int, Held]]


class Activities:
    """The activity side of a worker with `slots` attempts at a time."""

    def __init__(
        self,
        runner: Runner,
        slots: int,
        asks: Asks,
        gateway: GatewayLink,
        workflows: Workflows | None = None,
        *,
        is_local: bool = False,
    ) -> None:
        self._is_local = is_local
        self._workflows = workflows
        self.base_ms = 0  # Of history's clock; 0: not known.
        self._runner = runner
        self._slots = slots
        self._asks = asks
        self._gateway = gateway
        self._held: dict[str, Held] = {}
        self._waiting: deque[Held] = deque()
        self._running = 0
        self._ending = 0
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._leases: Heap = []
        self._beats: Heap = []
        self._sent: dict[int, Held] = {}
        self._order = 0
        self._draining = False
        self._fence_from_ms = 0  # Before this no lease is given up.

    # --- what the session asks ------------------------------------------------
    def tokens(self) -> tuple[str, ...]:
        """Every token that is held."""
        return tuple(self._held)

    @property
    def running(self) -> int:
        """How many attempts run that still count, or are over and not reported yet."""
        return self._running + self._ending

    def next_ms(self) -> int | None:
        """When `due` has something to do, at the earliest."""
        times = [heap[0][0] for heap in (self._leases, self._beats) if heap]
        return min(times, default=None)

    # --- tasks ------------------------------------------------------------------
    def take(self, task: links.ActivityTask, now_ms: int) -> None:
        """A task came; one that is known is left alone."""
        if task.token in self._held or task.token in self._ended:
            return
        if ARMED:
            reached(CrashPoint.WORKER_ACTIVITY_TASK_TAKEN)
        attempt = self._runner.attempt(task, self.beat_recorded)
        held = Held(attempt, now_ms)
        self._held[task.token] = held
        if attempt.definition is None:
            self._hand_back(held, "unknown_type", now_ms)
        elif self._draining:
            self._hand_back(held, "shutdown", now_ms)
        elif task.input is not None and values.is_reference(task.input):
            # Not the caller's fault, as a BadInput would have it.
            failure = Failure("Internal", "the node sent a reference in place of the input")
            self._report(held, commands.FailActivity(task.token, failure), now_ms)
        else:
            self._push(self._leases, held.lease_until_ms, held)
            self._waiting.append(held)
            self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self._running < self._slots:
            held = self._waiting.popleft()
            if held.state is State.WAITING:
                held.state = State.RUNNING
                self._running += 1
                self._runner.start(held.attempt, self.finished)

    def finished(self, token: str, outcome: Outcome, now_ms: int) -> None:
        """The function of this attempt is over, in whichever way."""
        if ARMED:
            reached(CrashPoint.WORKER_ACTIVITY_ENDED_NOT_REPORTED)
        held = self._held.get(token)
        if held is None or held.state is not State.RUNNING:
            return  # It was given up before: whatever it says does not count.
        self._running -= 1
        self._runner.ended(held.attempt)
        match outcome:
            case Failure():
                details, beat = held.attempt.beats.unacknowledged()
                self._report(held, commands.FailActivity(token, outcome, details, beat), now_ms)
            case bytes():
                if not self._follow(held, outcome, now_ms):
                    self._report(held, commands.CompleteActivity(token, outcome), now_ms)
            case None:
                if ARMED:
                    reached(CrashPoint.WORKER_ATTEMPT_LEFT_NOT_REPORTED)
                # Whoever has the token reports; until history knows that, it is ours.
                details, beat = held.attempt.beats.unacknowledged()
                self._report(held, commands.DetachLease(token, details, beat), now_ms)
        self._start_waiting()

    def _follow(self, held: Held, result: Payload, now_ms: int) -> bool:
        """Have the workflow run on from this result at once, if it is here and waits for it."""
        if self._workflows is None or not self.base_ms or self._draining:
            return False
        task = held.attempt.task
        at_ms = self.base_ms + now_ms

        def done(following: commands.CompleteWorkflowTask | None, now_ms: int) -> None:
            self._ending -= 1
            if following is not None and self._workflows is not None:
                following = self._workflows.with_hire(following)
            report = commands.CompleteActivity(task.token, result, at_ms, following)
            self._report(held, report, now_ms)

        following = Following(task.workflow_id, task.activity_id, result, at_ms, done)
        if not self._workflows.follow(following):
            return False
        held.state = State.ENDING
        self._ending += 1
        return True

    def cancel(self, token: str, reason: str) -> None:
        """The node says that this token is not live, or ("wait") that nobody wants more of it."""
        held = self._held.get(token)
        if held is None or held.state in (State.ENDING, State.REPORTED):
            return  # Its report is on the way, and will be answered.
        if reason == "wait":
            self._ask_to_end(held)
            return
        self._give_up(held, reason)
        self._forget(held)

    # --- time -------------------------------------------------------------------
    def due(self, now_ms: int) -> None:
        """Send the heartbeats whose time has come, and fence what has lost its lease."""
        while self._beats and self._beats[0][0] <= now_ms:
            self._send_beat(heapq.heappop(self._beats)[2], now_ms)
        while self._leases and self._leases[0][0] <= now_ms:
            held = heapq.heappop(self._leases)[2]
            if held.state not in (State.WAITING, State.RUNNING):
                continue
            until_ms = max(held.lease_until_ms, self._fence_from_ms, self._unheard_ms(held))
            if until_ms > now_ms:
                self._push(self._leases, until_ms, held)
                continue
            logs.logger().warning(
                LogName.WORKER_FENCED,
                workflow_id=held.attempt.task.workflow_id,
                activity_id=held.attempt.task.activity_id,
                attempt=held.attempt.task.attempt,
            )
            self._give_up(held, "timeout")
            # Still held: until the node says that it is over it must not send the task again.
            held.state = State.FENCED

    def _unheard_ms(self, held: Held) -> int:
        """Until when its newest heartbeat, if it was not answered, would have it last; else 0.

        Where worker and node share a machine, an answer is late because an actor stands still or
        begins anew, and no lease ends before what came in meanwhile was heard. One that ends all
        the same is told of. A worker elsewhere may be cut off, which nobody waits for.
        """
        if not self._is_local or not held.beat_n:
            return 0
        _, sent_ms = held.beats_sent[held.beat_n]
        return min(held.until_ms, sent_ms + held.attempt.task.options.heartbeat_ms)

    def _give_up(self, held: Held, reason: str) -> None:
        """Cancel what runs; its slot is free from now on, whether it listens or not."""
        was, held.state = held.state, State.FENCED
        held.attempt.context.cancel(reason)
        if was is State.RUNNING:
            self._running -= 1
            self._runner.give_up(held.attempt)
            self._start_waiting()

    def _forget(self, held: Held) -> None:
        token = held.attempt.task.token
        self._held.pop(token, None)
        if held.beat_n:
            self._asks.close(held.beat_n)
        for n in held.beats_sent:
            self._sent.pop(n, None)
        # A copy of its task may still be on the way.
        self._ended[token] = None
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    def stood_still(self, now_ms: int) -> None:
        """This process did, until now: the node is asked what it has lost before it gives it up."""
        self._fence_from_ms = now_ms + ASK_MS

    def terms(self, message: links.LeaseTerms) -> None:
        """The node stood still: leases last longer than their tasks said."""
        for token, lease_ms, attempt_ms in message.leases:
            held = self._held.get(token)
            if held is not None:
                until_ms = message.sent_ms + attempt_ms
                held.until_ms = max(held.until_ms, until_ms)
                renewed_ms = max(held.lease_until_ms, message.sent_ms + lease_ms)
                held.lease_until_ms = min(held.until_ms, renewed_ms)

    # --- heartbeats ---------------------------------------------------------------
    def beat_recorded(self, token: str, now_ms: int) -> None:
        """The activity recorded a heartbeat since the last one left."""
        held = self._held.get(token)
        if held is not None:
            self._send_beat(held, now_ms)

    def _send_beat(self, held: Held, now_ms: int) -> None:
        if held.state is not State.RUNNING:
            return
        beats = held.attempt.beats
        if now_ms < beats.next_ms:
            self._push(self._beats, beats.next_ms, held)
            return
        taken = beats.take(now_ms)
        if taken is None:
            return
        beat, details = taken
        if held.beat_n:
            self._asks.close(held.beat_n)  # This one says all that the earlier said.
        n = held.beat_n = self._asks.next_n()
        held.beats_sent[n] = (beat, now_ms)
        self._sent[n] = held
        if len(held.beats_sent) > BEATS_KEPT:
            oldest = next(iter(held.beats_sent))
            del held.beats_sent[oldest]
            self._sent.pop(oldest, None)
        token = held.attempt.task.token
        message = links.Heartbeat(n, token, beat, details, details is not None)
        self._asks.add(n, TO_LEASE_KEEPER, message, self, now_ms)
        self._gateway.send(TO_LEASE_KEEPER, message)
        reached(CrashPoint.WORKER_HEARTBEAT_MADE)

    # --- reports --------------------------------------------------------------------
    def _report(self, held: Held, command: commands.AnyCommand, now_ms: int) -> None:
        held.state = State.REPORTED
        held.report = command
        if held.beat_n:
            # The report carries what it said.
            self._asks.close(held.beat_n)
            held.beat_n = 0
        n = self._asks.next_n()
        self._sent[n] = held
        message = links.Ask(n, command)
        self._asks.add(n, TO_HISTORY, message, self, now_ms)
        self._gateway.send(TO_HISTORY, message)
        if ARMED:
            reached(CrashPoint.WORKER_REPORT_MADE)

    def _hand_back(self, held: Held, reason: str, now_ms: int) -> None:
        details: Payload | None
        details, beat = held.attempt.beats.unacknowledged()
        token = held.attempt.task.token
        self._report(held, commands.ReleaseActivity(token, reason, details, beat), now_ms)

    def answered(self, n: int, answer: commands.AnyAnswer, now_ms: int) -> None:
        """History or the lease keeper answered message `n`, for good or with "unknown"."""
        held = self._sent.get(n)
        if held is None or (isinstance(answer, commands.Refusal) and answer.code in UNKNOWN_CODES):
            return
        del self._sent[n]
        self._asks.close(n)
        if n in held.beats_sent:
            self._beat_answered(held, n, answer)
            return
        report = held.report
        if isinstance(report, commands.CompleteActivity) and report.following is not None:
            assert self._workflows is not None
            counts = isinstance(answer, commands.Done) and answer.state not in _NOT_AS_HERE
            self._workflows.followed(report.following.workflow_id, counts)
        if isinstance(answer, commands.Refusal):
            self._report_refused(held, answer, now_ms)
        else:
            self._forget(held)

    def _beat_answered(self, held: Held, n: int, answer: commands.AnyAnswer) -> None:
        beat, sent_ms = held.beats_sent.pop(n)
        if n == held.beat_n:
            held.beat_n = 0
        if isinstance(answer, commands.Refusal):
            if answer.code in LOST_CODES and held.state not in (State.ENDING, State.REPORTED):
                self._give_up(held, "stale")
                self._forget(held)
            return
        held.attempt.beats.acknowledged(beat)
        # From when it left, not from when it was answered: never later than history has it.
        heartbeat_ms = held.attempt.task.options.heartbeat_ms
        renewed_ms = sent_ms + heartbeat_ms if heartbeat_ms else held.until_ms
        held.lease_until_ms = min(held.until_ms, max(held.lease_until_ms, renewed_ms))
        if isinstance(answer, commands.Deadline) and answer.cancel_requested:
            self._ask_to_end(held)

    def _ask_to_end(self, held: Held) -> None:
        """Its code is told, once; what it makes of that is its outcome."""
        context = held.attempt.context
        if not context.is_cancelled:
            context.cancel("cancelled")
            if held.state is State.RUNNING:
                self._runner.interrupt(held.attempt)

    def _report_refused(self, held: Held, refusal: commands.Refusal, now_ms: int) -> None:
        if refusal.code not in LOST_CODES:
            task = held.attempt.task
            logs.logger().error(
                LogName.WORKER_REFUSED,
                workflow_id=task.workflow_id,
                activity_id=task.activity_id,
                code=refusal.code,
                message=refusal.message,
            )
            if isinstance(held.report, commands.CompleteActivity):
                # The effect is done: silence would have it run again at the timeout.
                failure = engine_failure(BAD_RESULT, refusal.message)
                self._report(held, commands.FailActivity(task.token, failure), now_ms)
                return
        self._forget(held)

    # --- the end ----------------------------------------------------------------------
    def drain(self, now_ms: int) -> None:
        """Start nothing more: what did not start goes back."""
        self._draining = True
        waiting, self._waiting = self._waiting, deque()
        for held in waiting:
            if held.state is State.WAITING:
                self._hand_back(held, "shutdown", now_ms)

    def hand_back(self, now_ms: int) -> None:
        """Give back what still runs, and cancel it."""
        for held in list(self._in_state(State.RUNNING)):
            self._running -= 1
            self._hand_back(held, "shutdown", now_ms)
            held.attempt.context.cancel("shutdown")
            self._runner.give_up(held.attempt)

    def _in_state(self, state: State) -> Iterator[Held]:
        return (held for held in self._held.values() if held.state is state)

    def _push(self, heap: Heap, at_ms: int, held: Held) -> None:
        if len(heap) > HEAP_SLACK + 2 * len(self._held):
            # Leases last for minutes, most attempts do not: let go of those that are over.
            heap[:] = [entry for entry in heap if entry[2].state in (State.WAITING, State.RUNNING)]
            heapq.heapify(heap)
        self._order += 1
        heapq.heappush(heap, (at_ms, self._order, held))
