"""LocalEngine and ManualClock: the engine in this process, for tests that never wait.

The same core, store protocol and replay as a node, without sockets, threads or sleeping. Time is a
ManualClock's, chance a seed's. Every call first does all that fell due by the clock, in order, each
at its own due time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from perdure import local
from perdure.answers import Answer, Page
from perdure.config import rules_of
from perdure.core.facts import Jitter
from perdure.core.limits import GRACE_MS
from perdure.errors import InvalidArgument
from perdure.failures import Failure
from perdure.local_client import LocalClient
from perdure.policy import ATTEMPTS_MAX
from perdure.store.retention import Retention

__all__ = ["LocalEngine", "ManualClock"]


class ManualClock:
    """Time that stands still until it is told to go on. `now_ms`: whole milliseconds."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = _length("start_ms", start_ms)

    @property
    def now_ms(self) -> int:
        """What time it is."""
        return self._now_ms

    def advance_ms(self, n: int) -> None:
        """Let `n` milliseconds pass; InvalidArgument for a negative number."""
        self._now_ms += _length("n", n)


class LocalEngine:
    """A whole engine in memory. `client` has the methods of perdure.Client.

    `workflows` and `activities` are defined functions (an activity may also be left out: then its
    tasks wait to be polled). `jitter(delay_ms, u)` replaces full jitter; `seed` is of the draws;
    `dlq_after_attempts` counts for policies without `max_attempts`; a workflow that has ended is
    removed after `retention_ms` (None: never). `config` has the tables [queues] and [activities] of
    perdure.toml, as a dictionary; `recovery_grace_ms` is as in its [durable]. Every method raises
    perdure.errors.
    """

    def __init__(
        self,
        workflows: Sequence[Callable[..., Any]] = (),
        activities: Sequence[Callable[..., Any]] = (),
        clock: ManualClock | None = None,
        jitter: Jitter | None = None,
        seed: int = 0,
        dlq_after_attempts: int = 5,
        retention_ms: int | None = None,
        config: Mapping[str, Any] | None = None,
        recovery_grace_ms: int = GRACE_MS,
    ) -> None:
        for name, value, fits, what in (
            ("workflows", workflows, isinstance(workflows, Iterable), "a list of functions"),
            ("activities", activities, isinstance(activities, Iterable), "a list of functions"),
            ("clock", clock, clock is None or hasattr(clock, "now_ms"), "a ManualClock"),
            ("jitter", jitter, jitter is None or callable(jitter), "a function of delay_ms and u"),
            ("seed", seed, type(seed) is int, "a whole number"),
            ("dlq_after_attempts", dlq_after_attempts, _counts(dlq_after_attempts), "at least 1"),
        ):
            if not fits:
                raise InvalidArgument(f"{name} must be {what}, not {value!r:.80}", field=name)
        self.clock = ManualClock(0) if clock is None else clock
        self._core = local.Core(
            workflows,
            activities,
            now_ms=lambda: self.clock.now_ms,
            jitter=jitter,
            draw=random.Random(seed).random,
            dlq_after_attempts=dlq_after_attempts,
            retention=Retention(
                None if retention_ms is None else _length("retention_ms", retention_ms)
            ),
            rules=rules_of(config or {}, "config"),
            recovery_grace_ms=_length("recovery_grace_ms", recovery_grace_ms),
        )
        self.client = LocalClient(self._core)

    # --- running ------------------------------------------------------------
    def run_workflow_tasks(self) -> int:
        """Run every workflow task that is ready, or becomes so meanwhile; how many."""
        return self._core.run_workflow_tasks()

    def run_activities(self) -> int:
        """Run, for real, every registered activity that is ready now, once each; how many."""
        return self._core.run_activities()

    def run_until_idle(self, skip_time: bool = True) -> None:
        """Run all that can run. With `skip_time` the clock jumps over timers and backoffs.

        Deadlines, of leases and of callers, are not waited for, nor are parked workflow tasks.
        """
        for _ in range(local.ROUNDS_MAX):
            if self.run_workflow_tasks() or self.run_activities():
                continue
            if not skip_time or not self._skip():
                return
        raise InvalidArgument(
            f"not idle after {local.ROUNDS_MAX} rounds: does a workflow loop for ever?"
        )

    def _skip(self) -> bool:
        due_ms = self._core.next_skip_ms()
        if due_ms is None:
            return False
        self.clock.advance_ms(max(0, due_ms - self.clock.now_ms))
        return True

    def restart(self) -> None:
        """Forget everything but the store, as when a node is started again.

        The time since the last call counts as downtime. Tasks that were polled are held elsewhere:
        their leases live on, for min(lease, `recovery_grace_ms`) at least.
        """
        self._core.restart()

    # --- activities by hand -------------------------------------------------
    def poll_activity_task(
        self,
        task_queue: str = "default",
        worker_id: str = "w1",
        types: Sequence[str] | None = None,
    ) -> Answer | None:
        """One task (token, workflow_id, activity_id, type, attempt, input, …) or None."""
        return self.client.poll_activity_task(task_queue, worker_id, types)

    def complete_activity_task(self, token: str, result: Any = None) -> None:
        """Report that the attempt is done. FailedPrecondition if the token is not live."""
        self.client.complete_activity_task(token, result)

    def fail_activity_task(self, token: str, failure: Failure) -> str:
        """Report that the attempt failed: "Retrying", "DeadLettered" or "Dropped"."""
        return self.client.fail_activity_task(token, failure)

    def record_heartbeat(self, token: str, details: Any = None) -> int:
        """Move the lease's deadline, keep `details` (None: those before); the new deadline."""
        return self.client.record_heartbeat(token, details)

    # --- looking ------------------------------------------------------------
    def describe_workflow(self, workflow_id: str) -> Answer:
        """As Client.describe_workflow."""
        return self.client.describe_workflow(workflow_id)

    def history(self, workflow_id: str, after: int = 0, limit: int | None = None) -> list[Answer]:
        """As Client.history."""
        return self.client.history(workflow_id, after, limit)

    def explain(self, workflow_id: str, activity_id: str | None = None) -> Answer:
        """As Client.explain_workflow."""
        return self.client.explain_workflow(workflow_id, activity_id)

    def list_dead_letters(self, **filters: Any) -> Page:
        """As Client.list_dead_letters; the page is a list of its entries as well."""
        return self.client.list_dead_letters(**filters)

    def redrive_dead_letter(self, workflow_id: str, activity_id: str) -> None:
        """As Client.redrive_dead_letter."""
        self.client.redrive_dead_letter(workflow_id, activity_id)

    def fail_dead_letter(self, workflow_id: str, activity_id: str) -> None:
        """As Client.fail_dead_letter."""
        self.client.fail_dead_letter(workflow_id, activity_id)

    def complete_dead_letter(self, workflow_id: str, activity_id: str, result: Any) -> None:
        """As Client.complete_dead_letter."""
        self.client.complete_dead_letter(workflow_id, activity_id, result)


def _counts(value: object) -> bool:
    return type(value) is int and 1 <= value <= ATTEMPTS_MAX


def _length(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(f"{name} must be whole milliseconds, at least 0", field=name)
    return value
