"""What a running workflow function talks to."""

from __future__ import annotations

import asyncio
import random as _random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import msgspec

from perdure import activity
from perdure.errors import FailedPrecondition, InvalidArgument
from perdure.policy import timedelta_hint

if TYPE_CHECKING:
    from perdure.workflow.activities import ActivityHandle
    from perdure.workflow.children import ChildHandle, ChildOptions, Sent
    from perdure.workflow.definitions import Definition
    from perdure.workflow.messages import Update


Result = TypeVar("Result")


class ParentInfo(msgspec.Struct, frozen=True):
    """The workflow, and the run of it, that started this one as its child."""

    workflow_id: str
    run: int = 1


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """Who this workflow is, when history took its start, and how far its history has grown.

    `run` counts from 1; each continue_as_new is one more. `history_length` is the number of events
    up to the one that is being worked off, `history_bytes` about what they take. Long before the
    engine parks a workflow whose history is too long, `continue_as_new_suggested` is true. `parent`
    is None for what nobody's code started. `search_attributes` are what it is found by now.
    """

    workflow_id: str
    workflow_type: str
    task_queue: str
    started_ms: int
    run: int = 1
    history_length: int = 0
    history_bytes: int = 0
    continue_as_new_suggested: bool = False
    parent: ParentInfo | None = None
    search_attributes: dict[str, Any] = {}


class Runtime(Protocol):
    """What a workflow function runs on; perdure.worker.replay has it."""

    @property
    def info(self) -> Info:
        """Who the workflow is."""

    @property
    def now_ms(self) -> int:
        """The time of the event that is being worked off."""

    @property
    def is_silent(self) -> bool:
        """Whether what the code does now was done before, or is done only to look."""

    @property
    def random(self) -> _random.Random:
        """The generator of workflow.random()."""

    @property
    def random_ids(self) -> _random.Random:
        """The generator behind workflow.uuid4()."""

    def start_activity(
        self,
        target: activity.Definition | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        activity_id: str | None,
        options: activity.Options | None,
    ) -> ActivityHandle[Any]:
        """Schedule an activity."""

    def cancel_activity(self, handle: ActivityHandle[Any]) -> bool:
        """The workflow gives this activity up. True: its await raises now; False: at its end."""

    def condition(self, predicate: Callable[[], Any]) -> asyncio.Future[None]:
        """A future that is done as soon as `predicate()` is true."""

    def continue_as_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """End this run, and begin the next with these arguments."""

    @property
    def messages(self) -> Messages:
        """Signals, queries and updates."""

    @property
    def children(self) -> Children:
        """Child workflows."""

    @property
    def notes(self) -> Notes:
        """What is found out once and told to every replay."""


class Messages(Protocol):
    """What comes to a workflow from outside."""

    def handle_signal(self, name: str, function: Callable[..., Any]) -> None:
        """Signals of that name go to `function` from now on, those that wait first."""

    def handle_query(self, name: str, function: Callable[..., Any]) -> None:
        """Queries of that name are answered by `function`."""

    def handle_update(self, name: str, update: Update) -> None:
        """Updates of that name are done by `update`."""

    def box(self, name: str) -> asyncio.Queue[tuple[int, bytes | None]]:
        """Signals of that name, (place among all signals, payload), for `receive`."""

    def dropped(self, name: str, why: str) -> None:
        """A signal of that name could not be handed over."""

    def all_finished(self) -> bool:
        """Whether no handler, of a signal or of an update, is under way or about to begin."""


class Children(Protocol):
    """The workflows that a workflow starts, and others that it speaks to."""

    earlier: dict[str, ChildHandle[Any]]
    """Children of the runs before, that were open when this run began."""

    def start(
        self,
        target: Definition | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: ChildOptions,
    ) -> ChildHandle[Any]:
        """Start a child."""

    def cancel(self, handle: ChildHandle[Any]) -> bool:
        """Ask a child to end. True: its await raises now; False: when it has ended."""

    def signal(
        self, workflow_id: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sent:
        """Signal a workflow, by its id."""

    def cancel_external(self, workflow_id: str, reason: str) -> Sent:
        """Ask a workflow to end, by its id."""


class Notes(Protocol):
    """What only the first run of a line of code finds out."""

    def patched(self, patch_id: str) -> bool:
        """Whether the new code behind this id is to be run."""

    def side_effect(self, function: Callable[[], Any]) -> Any:
        """What `function()` gave when it was called for the first time."""

    def set_search_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Have the workflow found by these."""


def seconds(field: str, duration_ms: object) -> float:
    """A length in milliseconds as seconds; InvalidArgument naming `field` for what is none."""
    if isinstance(duration_ms, bool) or not isinstance(duration_ms, (int, float)):
        raise InvalidArgument(
            f"{field} must be a number of milliseconds, not {duration_ms!r:.80}"
            f"{timedelta_hint(duration_ms)}",
            field=field,
        )
    return duration_ms / 1000


async def within(delay: float, awaited: Awaitable[Result], too_late: str) -> Result:
    """What is awaited; TimeoutError saying `too_late` after `delay` seconds."""
    try:
        async with asyncio.timeout(delay) as time:
            return await awaited
    except TimeoutError as problem:
        if not time.expired():
            raise  # Of what was awaited itself.
        raise TimeoutError(too_late) from problem


def runtime(what: str) -> Runtime:
    """The runtime of the workflow that runs on this thread; FailedPrecondition names `what`."""
    found: Runtime | None = getattr(asyncio._get_running_loop(), "perdure_runtime", None)
    if found is not None:
        return found
    raise FailedPrecondition(f"workflow.{what}() can only be called inside a running workflow")
