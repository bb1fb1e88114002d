"""Child workflows, from the side of their parent; and other workflows, by their id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from perdure.errors import InvalidArgument
from perdure.wire_checks import check_id, check_name, check_text
from perdure.workflow.definitions import definition_of
from perdure.workflow.runtime import Children, runtime

Result = TypeVar("Result")

PARENT_CLOSE = ("terminate", "cancel", "abandon")


class ChildOptions(NamedTuple):
    """How a child is started, as it was said."""

    workflow_id: str | None
    parent_close: str
    task_queue: str | None
    start_delay_ms: int
    timeout_ms: int
    search_attributes: Mapping[str, Any]


class Sent(asyncio.Future[None]):
    """What was said to another workflow. It is on its way whether this is awaited or not.

    Awaiting it gives None once that workflow has it, or raises ExternalFailed where it could not
    take it: it has ended, there never was one, it has too much unread. `workflow_id` is its id.
    """

    def __init__(
        self, workflow_id: str, what: str, *, loop: asyncio.AbstractEventLoop, rank: int
    ) -> None:
        super().__init__(loop=loop)
        self.workflow_id = workflow_id
        self.what = what
        self.finished: int | None = None  # Its place in the order of completion.
        self._rank = rank

    # By creation and not by address: sets of them have one order, in every replay.
    def __hash__(self) -> int:
        return self._rank


class ChildHandle(asyncio.Future[Result]):
    """A child workflow: awaitable any number of times, and by any of asyncio's functions.

    Awaiting gives its result, or raises ChildFailed, or Cancelled where it was cancelled from here
    and ended so. `id` is its workflow id.
    """

    def __init__(
        self,
        children: Children,
        workflow_id: str,
        workflow_type: str,
        *,
        loop: asyncio.AbstractEventLoop,
        rank: int,
    ) -> None:
        super().__init__(loop=loop)
        self.id = workflow_id
        self.workflow_type = workflow_type
        self.finished: int | None = None  # Its place in the order of completion.
        self.cancel_requested = False
        self._children = children
        self._rank = rank

    # By creation and not by address: sets of handles have one order, in every replay.
    def __hash__(self) -> int:
        return self._rank

    def signal(self, name: str, *args: Any, **kwargs: Any) -> Sent:
        """Send it a signal, now. Awaiting what this returns raises ExternalFailed where the
        workflow could not take it, for instance because it has ended.
        """
        check_name("name", name)
        return self._children.signal(self.id, name, args, kwargs)

    def cancel(self, msg: Any | None = None) -> bool:
        """Ask it to end. Awaiting raises Cancelled when it has done so; if it ends well all the
        same, its result is the result.

        False if it has ended already.
        """
        if self.done():
            return False
        return super().cancel(msg) if self._children.cancel(self) else True

    def give_up(self) -> None:
        """For the engine: have awaiting raise Cancelled now."""
        super().cancel()


class ExternalHandle:
    """Another workflow, by its id, whoever started it."""

    def __init__(self, children: Children, workflow_id: str) -> None:
        self.id = workflow_id
        self._children = children

    def signal(self, name: str, *args: Any, **kwargs: Any) -> Sent:
        """Send it a signal, now. Awaiting what this returns raises ExternalFailed where the
        workflow could not take it, for instance because it has ended.
        """
        check_name("name", name)
        return self._children.signal(self.id, name, args, kwargs)

    def cancel(self, reason: str = "") -> Sent:
        """Ask it to end, now; asked before, it is not asked again. Awaiting what this returns
        raises ExternalFailed where there was none to be asked. How it ends is not told here.
        """
        if reason != "":
            check_text("reason", reason)
        return self._children.cancel_external(self.id, reason)


def external(workflow_id: str) -> ExternalHandle:
    """A handle of any workflow, to signal it or to ask it to end."""
    check_id("workflow_id", workflow_id)
    return ExternalHandle(runtime("external").children, workflow_id)


def execute_child(
    function: Callable[..., Any] | str,
    /,
    *args: Any,
    workflow_id: str | None = None,
    parent_close: str = "terminate",
    task_queue: str | None = None,
    start_delay_ms: int = 0,
    timeout_ms: int = 0,
    search_attributes: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> ChildHandle[Any]:
    """Start a child workflow, a defined function or a name, now; awaiting gives its result.

    The default id is `<parent's id>/@1`, `/@2`, … in the order of starting, the default queue the
    parent's own. When the parent ends while the child runs, `parent_close` says what becomes of it:
    "terminate", "cancel", or "abandon", which lets it go on. A parent that continues as new has not
    ended: its open children are the next run's (`earlier_children`), until the last run ends. An id
    that is taken fails the child (ChildFailed, type ChildIdTaken). InvalidArgument at once for what
    can't be.
    """
    children = runtime("execute_child").children
    target = function if isinstance(function, str) else definition_of(function)
    if isinstance(target, str):
        check_name("workflow", target)
    if workflow_id is not None:
        check_id("workflow_id", workflow_id)
    if task_queue is not None:
        check_name("task_queue", task_queue)
    if parent_close not in PARENT_CLOSE:
        raise InvalidArgument(
            f'parent_close must be "terminate", "cancel" or "abandon", not {parent_close!r:.80}',
            field="parent_close",
        )
    options = ChildOptions(
        workflow_id,
        parent_close,
        task_queue,
        _length("start_delay_ms", start_delay_ms),
        _length("timeout_ms", timeout_ms),
        search_attributes or {},
    )
    return children.start(target, args, kwargs, options)


def _length(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**53:
        raise InvalidArgument(
            f"{field} must be whole milliseconds, at least 0, not {value!r:.80}", field=field
        )
    return value


async def start_child(
    function: Callable[..., Any] | str, /, *args: Any, **options: Any
) -> ChildHandle[Any]:
    """As `execute_child`, with the same options: `handle = await start_child(…)`.

    The handle can signal and cancel it, and is awaited for its result when it suits.
    """
    return execute_child(function, *args, **options)


def earlier_children() -> dict[str, ChildHandle[Any]]:
    """The children that earlier runs of this workflow started and that were open when this run
    began, by their ids: to be awaited, signalled, cancelled. Their results are plain data.
    """
    return dict(runtime("earlier_children").children.earlier)
