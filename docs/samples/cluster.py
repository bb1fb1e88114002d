"""Handlers that wait, made safe: a lock between them, and an end that waits for them.

A cluster hands nodes to jobs. Assigning and releasing are updates that call activities, a health
check runs between them, and each of the three looks at the nodes and then changes them: so they
take turns. Before it ends or goes on as new, the workflow waits until no handler is under way.
"""

import asyncio
from dataclasses import dataclass, field

from perdure import RetryPolicy, activity, workflow


@dataclass
class Cluster:
    nodes: dict[str, str | None] = field(default_factory=dict)
    is_started: bool = False
    checks: int = 0


@activity.define
def assign(job: str, nodes: list[str]) -> None:
    print(f"{job}: {nodes}")


@activity.define
def release(job: str, nodes: list[str]) -> None:
    print(f"{job}: no longer {nodes}")


@activity.define(retry=RetryPolicy(max_attempts=1), on_exhausted="fail")
def find_bad(nodes: list[str]) -> list[str]:
    return [node for node in nodes if node.endswith("bad")]


class Manager:
    """What the workflow knows, and what can be asked of it: methods are handlers, too."""

    def __init__(self, state: Cluster) -> None:
        self.state = state
        self.lock = asyncio.Lock()
        self.is_over = False
        self.checks = 0

    def serve(self) -> None:
        workflow.signal(self.start)
        workflow.signal(self.shut_down)
        workflow.query(self.nodes)
        workflow.update(self.assign_nodes).validator(self.check_assign)
        workflow.update(self.delete_job)

    def held_by(self, job: str | None) -> list[str]:
        return [node for node, holder in self.state.nodes.items() if holder == job]

    # --- signals and queries
    def start(self, names: list[str]) -> None:
        self.state.nodes = dict.fromkeys(names)
        self.state.is_started = True

    def shut_down(self) -> None:
        self.is_over = True

    def nodes(self) -> dict[str, str | None]:
        return self.state.nodes

    # --- updates
    def check_assign(self, job: str, count: int) -> None:
        if self.is_over:
            raise ValueError("the cluster shuts down")
        if count < 1:
            raise ValueError("count must be at least 1")

    async def assign_nodes(self, job: str, count: int) -> list[str]:
        await workflow.wait_condition(lambda: self.state.is_started)
        async with self.lock:
            if held := self.held_by(job):
                return held  # The same job again is answered as the first time.
            free = self.held_by(None)[:count]
            if len(free) < count:
                raise ValueError(f"{count} nodes are wanted, {len(free)} are free")
            await workflow.execute_activity(assign, job, free)
            self.state.nodes.update(dict.fromkeys(free, job))
            return free

    async def delete_job(self, job: str) -> None:
        async with self.lock:
            await workflow.execute_activity(release, job, self.held_by(job))
            self.state.nodes.update(dict.fromkeys(self.held_by(job)))

    # --- its own work
    async def check_health(self) -> None:
        async with self.lock:
            busy = [node for node, job in self.state.nodes.items() if job is not None]
            try:
                bad = await workflow.execute_activity(find_bad, busy)
            except workflow.ActivityFailed:
                bad = []  # The next check is soon.
            for node in bad:
                del self.state.nodes[node]
            self.checks += 1
            self.state.checks += 1


@workflow.define
async def cluster(state: Cluster | None = None, check_ms: int = 60_000, run_checks: int = 3) -> int:
    manager = Manager(state or Cluster())
    manager.serve()
    await workflow.wait_condition(lambda: manager.state.is_started)
    while not manager.is_over:
        await manager.check_health()
        try:
            await workflow.wait_condition(lambda: manager.is_over, timeout_ms=check_ms)
        except TimeoutError:
            if manager.checks >= run_checks or workflow.info().continue_as_new_suggested:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(manager.state, check_ms, run_checks)
    await workflow.wait_condition(workflow.all_handlers_finished)
    return len(manager.held_by(None))
