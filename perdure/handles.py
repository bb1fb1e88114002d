"""WorkflowHandle, and for asyncio AsyncWorkflowHandle and AsyncScheduleHandle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.answers import Answer

if TYPE_CHECKING:
    from perdure.async_client import AsyncClient
    from perdure.operations import Operations
    from perdure.wire_schedules import Policy


Result = TypeVar("Result")


class WorkflowHandle(Generic[Result]):
    """One workflow, by its id. Cheap: it holds no state, and may be made for any id.

    To a type checker `result` is what the function returns that was started with it.
    `run` is the one that was started; where it is set, `describe`, `history` and `query` speak of
    that run, else of the newest. `result` follows the chain of runs.
    """

    __slots__ = ("_client", "run", "workflow_id")

    def __init__(self, client: Operations, workflow_id: str, run: int | None = None) -> None:
        self._client = client
        self.workflow_id = workflow_id
        self.run = run

    def result(self, timeout_ms: int | None = None) -> Result:
        """See Client.result."""
        found: Result = self._client.result(self.workflow_id, timeout_ms=timeout_ms, run=self.run)
        return found

    def describe(self) -> Answer:
        """See Client.describe_workflow."""
        return self._client.describe_workflow(self.workflow_id, run=self.run)

    def history(self) -> list[Answer]:
        """See Client.history."""
        return self._client.history(self.workflow_id, run=self.run)

    def signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """See Client.signal_workflow."""
        self._client.signal_workflow(self.workflow_id, name, *args, **kwargs)

    def query(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """See Client.query_workflow."""
        kwargs.setdefault("run", self.run)
        return self._client.query_workflow(self.workflow_id, name, *args, **kwargs)

    def update(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """See Client.update_workflow."""
        return self._client.update_workflow(self.workflow_id, name, *args, **kwargs)

    def cancel(self, reason: str = "") -> None:
        """See Client.cancel_workflow."""
        self._client.cancel_workflow(self.workflow_id, reason)

    def terminate(self, reason: str = "") -> None:
        """See Client.terminate_workflow."""
        self._client.terminate_workflow(self.workflow_id, reason)

    def __repr__(self) -> str:
        return f"WorkflowHandle({self.workflow_id!r})"


class AsyncWorkflowHandle(Generic[Result]):
    """WorkflowHandle for asyncio: the same methods, each awaited."""

    __slots__ = ("_client", "run", "workflow_id")

    def __init__(self, client: AsyncClient, workflow_id: str, run: int | None = None) -> None:
        self._client = client
        self.workflow_id = workflow_id
        self.run = run

    async def result(self, timeout_ms: int | None = None) -> Result:
        """See Client.result."""
        found: Result = await self._client.result(
            self.workflow_id, timeout_ms=timeout_ms, run=self.run
        )
        return found

    async def describe(self) -> Answer:
        """See Client.describe_workflow."""
        found: Answer = await self._client.describe_workflow(self.workflow_id, run=self.run)
        return found

    async def history(self) -> list[Answer]:
        """See Client.history."""
        found: list[Answer] = await self._client.history(self.workflow_id, run=self.run)
        return found

    async def signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """See Client.signal_workflow."""
        await self._client.signal_workflow(self.workflow_id, name, *args, **kwargs)

    async def query(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """See Client.query_workflow."""
        kwargs.setdefault("run", self.run)
        return await self._client.query_workflow(self.workflow_id, name, *args, **kwargs)

    async def update(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """See Client.update_workflow."""
        return await self._client.update_workflow(self.workflow_id, name, *args, **kwargs)

    async def cancel(self, reason: str = "") -> None:
        """See Client.cancel_workflow."""
        await self._client.cancel_workflow(self.workflow_id, reason)

    async def terminate(self, reason: str = "") -> None:
        """See Client.terminate_workflow."""
        await self._client.terminate_workflow(self.workflow_id, reason)

    def __repr__(self) -> str:
        return f"AsyncWorkflowHandle({self.workflow_id!r})"


class AsyncScheduleHandle:
    """ScheduleHandle for asyncio: the same methods, each awaited."""

    __slots__ = ("_client", "schedule_id")

    def __init__(self, client: AsyncClient, schedule_id: str) -> None:
        self._client = client
        self.schedule_id = schedule_id

    async def describe(self, upcoming: int = 10) -> Answer:
        """See Client.describe_schedule."""
        found: Answer = await self._client.describe_schedule(self.schedule_id, upcoming)
        return found

    async def pause(self, reason: str = "") -> None:
        """See Client.pause_schedule."""
        await self._client.pause_schedule(self.schedule_id, reason)

    async def resume(self, reason: str = "") -> None:
        """See Client.resume_schedule."""
        await self._client.resume_schedule(self.schedule_id, reason)

    async def trigger(self, overlap: Policy | None = None) -> None:
        """See Client.trigger_schedule."""
        await self._client.trigger_schedule(self.schedule_id, overlap)

    async def backfill(self, first_ms: int, last_ms: int, overlap: Policy | None = None) -> None:
        """See Client.backfill_schedule."""
        await self._client.backfill_schedule(self.schedule_id, first_ms, last_ms, overlap)

    async def delete(self) -> None:
        """See Client.delete_schedule."""
        await self._client.delete_schedule(self.schedule_id)

    def __repr__(self) -> str:
        return f"AsyncScheduleHandle({self.schedule_id!r})"
