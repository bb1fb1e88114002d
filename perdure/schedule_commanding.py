"""From what a client asks about schedules to the command that history judges. Pure."""

from __future__ import annotations

from typing import Any

from perdure import wire
from perdure import wire_schedules as ws
from perdure.core import schedule_commands as commands
from perdure.core.schedule_state import Spec, schedule_group
from perdure.request_ids import new_request_id


def command_of(form: wire.Form, args: wire.Args) -> Any:
    """What history is asked for an operation that changes a schedule; None for one that looks.

    InvalidArgument naming the field where the input is no value.
    """
    group = schedule_group(getattr(args, "schedule_id", ""))
    request_id = getattr(args, "request_id", None) or new_request_id()
    match args:
        case ws.CreateSchedule() | ws.UpdateSchedule():
            return commands.PutSchedule(
                group,
                _spec(form, args),
                args.paused,
                "paused when it was made" if args.paused else "",
                request_id,
                isinstance(args, ws.UpdateSchedule),
            )
        case ws.PauseSchedule():
            return commands.PauseSchedule(group, True, args.reason, request_id)
        case ws.ResumeSchedule():
            return commands.PauseSchedule(group, False, args.reason, request_id)
        case ws.TriggerSchedule():
            return commands.TriggerSchedule(group, args.overlap or "", request_id)
        case ws.BackfillSchedule():
            return commands.BackfillSchedule(
                group, args.first_ms, args.last_ms, args.overlap or "", request_id
            )
        case ws.DeleteSchedule():
            return commands.DeleteSchedule(group, request_id)
        case _:
            return None


def _spec(form: wire.Form, args: ws.CreateSchedule | ws.UpdateSchedule) -> Spec:
    return Spec(
        args.type,
        args.task_queue,
        form.payload(args.input, "input"),
        args.crons,
        args.every_ms,
        args.offset_ms,
        args.time_zone,
        args.start_ms,
        args.end_ms,
        args.jitter_ms,
        args.overlap,
        args.catch_up,
        args.pause_on_failure,
        args.timeout_ms,
        args.note,
    )
