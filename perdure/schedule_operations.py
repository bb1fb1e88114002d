"""The operations about schedules as Python methods, beside those of perdure.operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from perdure import wire
from perdure import wire_schedules as ws
from perdure.answers import Answer, Page
from perdure.request_ids import new_request_id
from perdure.targets import target
from perdure.wire_checks import texts_of


class ScheduleOperations(ABC):
    """What can be asked about schedules. Every method raises a perdure.errors.PerdureError.

    A schedule starts a workflow whenever a cron expression or an interval says so: see
    docs/schedules.md. `overlap` is what becomes of a run that is due while an earlier one goes on:
    "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other" or "allow_all".
    """

    @abstractmethod
    def _call(self, args: wire.Args, wait_ms: int = 0) -> Any:
        """The `ok` of the answer, as plain data, or the error raised."""

    def create_schedule(
        self,
        schedule_id: str,
        workflow: str | Callable[..., Any],
        *args: Any,
        cron: str | Sequence[str] = (),
        every_ms: int | None = None,
        offset_ms: int = 0,
        time_zone: str = "UTC",
        start_ms: int | None = None,
        end_ms: int | None = None,
        jitter_ms: int = 0,
        overlap: ws.Policy = "skip",
        catch_up: int = 1,
        pause_on_failure: bool = False,
        timeout_ms: int = 0,
        note: str = "",
        paused: bool = False,
        task_queue: str = "default",
        request_id: str | None = None,
        replace: bool = False,
        **kwargs: Any,
    ) -> ScheduleHandle:
        """Start the workflow with these arguments whenever it is due.

        AlreadyExists if there is a schedule of this id (with `replace`: NotFound if there is none;
        what it says is then replaced, its runs and whether it is paused are kept). A workflow's
        argument that is named as one here has to go by position.
        """
        name, input = target(workflow, args, kwargs)
        kind = ws.UpdateSchedule if replace else ws.CreateSchedule
        self._call(
            kind(
                schedule_id,
                name,
                input,
                task_queue,
                cron if isinstance(cron, str) else texts_of("cron", cron) or (),
                every_ms,
                offset_ms,
                time_zone,
                start_ms,
                end_ms,
                jitter_ms,
                overlap,
                catch_up,
                pause_on_failure,
                timeout_ms,
                note,
                paused,
                request_id or new_request_id(),
            )
        )
        return ScheduleHandle(self, schedule_id)

    def schedule_handle(self, schedule_id: str) -> ScheduleHandle:
        """A handle of any schedule, whether it is there or not."""
        return ScheduleHandle(self, schedule_id)

    def describe_schedule(self, schedule_id: str, upcoming: int = 10) -> Answer:
        """The schedule as it stands, with `upcoming_ms`, when its next runs are due."""
        return Answer(self._call(ws.DescribeSchedule(schedule_id, upcoming)))

    def list_schedules(self, limit: int | None = None, page: str | None = None) -> Page:
        """Schedules, by id; `limit` at most 1 000."""
        ok = self._call(ws.ListSchedules(limit, page))
        return Page(ok["schedules"], ok["next_page"])

    def pause_schedule(
        self, schedule_id: str, reason: str = "", *, request_id: str | None = None
    ) -> None:
        """Start nothing until it is resumed."""
        self._call(ws.PauseSchedule(schedule_id, reason, request_id or new_request_id()))

    def resume_schedule(
        self, schedule_id: str, reason: str = "", *, request_id: str | None = None
    ) -> None:
        """Go on with the next run that is due; what was due meanwhile is not made up for."""
        self._call(ws.ResumeSchedule(schedule_id, reason, request_id or new_request_id()))

    def trigger_schedule(
        self,
        schedule_id: str,
        overlap: ws.Policy | None = None,
        *,
        request_id: str | None = None,
    ) -> None:
        """One run now; None treats an earlier one as the schedule says."""
        self._call(ws.TriggerSchedule(schedule_id, overlap, request_id or new_request_id()))

    def backfill_schedule(
        self,
        schedule_id: str,
        first_ms: int,
        last_ms: int,
        overlap: ws.Policy | None = None,
        *,
        request_id: str | None = None,
    ) -> None:
        """The runs that were due from `first_ms` to `last_ms`, at most 1 000 of them."""
        chosen = request_id or new_request_id()
        self._call(ws.BackfillSchedule(schedule_id, first_ms, last_ms, overlap, chosen))

    def delete_schedule(self, schedule_id: str, *, request_id: str | None = None) -> None:
        """The schedule ends; what it started goes on. Its id is free again."""
        self._call(ws.DeleteSchedule(schedule_id, request_id or new_request_id()))


class ScheduleHandle:
    """One schedule, by its id. Cheap: it holds no state."""

    __slots__ = ("_client", "schedule_id")

    def __init__(self, client: ScheduleOperations, schedule_id: str) -> None:
        self._client = client
        self.schedule_id = schedule_id

    def describe(self, upcoming: int = 10) -> Answer:
        """See Client.describe_schedule."""
        return self._client.describe_schedule(self.schedule_id, upcoming)

    def pause(self, reason: str = "") -> None:
        """See Client.pause_schedule."""
        self._client.pause_schedule(self.schedule_id, reason)

    def resume(self, reason: str = "") -> None:
        """See Client.resume_schedule."""
        self._client.resume_schedule(self.schedule_id, reason)

    def trigger(self, overlap: ws.Policy | None = None) -> None:
        """See Client.trigger_schedule."""
        self._client.trigger_schedule(self.schedule_id, overlap)

    def backfill(self, first_ms: int, last_ms: int, overlap: ws.Policy | None = None) -> None:
        """See Client.backfill_schedule."""
        self._client.backfill_schedule(self.schedule_id, first_ms, last_ms, overlap)

    def delete(self) -> None:
        """See Client.delete_schedule."""
        self._client.delete_schedule(self.schedule_id)

    def __repr__(self) -> str:
        return f"ScheduleHandle({self.schedule_id!r})"
