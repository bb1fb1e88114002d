"""`perdure schedule`: workflows that start whenever a cron expression or an interval says so."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output, unserved
from perdure.cli.filters import pages
from perdure.cli.options import (
    TIMEOUT_S_DEFAULT,
    AsJson,
    Endpoint,
    Timeout,
    ask,
    connected,
    instant_ms,
    json_option,
)

if TYPE_CHECKING:
    from perdure import wire
    from perdure.times import Times

app = typer.Typer(
    help="Schedules: workflows that start by a cron expression or every so often.",
    epilog="\b\nExample:\n"
    "  perdure schedule create nightly Report --cron '0 3 * * *' --tz Europe/Berlin",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="The schedule's id.")]
Cron = Annotated[
    list[str] | None,
    typer.Option("--cron", metavar="EXPRESSION", help="Five fields, or @daily. Repeatable."),
]
Every = Annotated[
    int | None, typer.Option("--every-ms", min=1, metavar="MS", help="An interval, from 1000 on.")
]
Offset = Annotated[
    int,
    typer.Option("--offset-ms", min=0, metavar="MS", help="Shifts an interval, counted from 1970."),
]
Zone = Annotated[
    str,
    typer.Option("--tz", metavar="ZONE", help="Whose clock --cron speaks of, like Europe/Berlin."),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Not before this: 2026-12-24T18:00 or with +01:00."
    ),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Not after this.")]
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="When a run is due while one goes on: skip, buffer-one, buffer-all, cancel-other, "
        "terminate-other or allow-all.",
    ),
]
Input = Annotated[str | None, typer.Option("--input", metavar="JSON", help="The workflow's input.")]
CatchUp = Annotated[
    int, typer.Option(min=0, max=1_000, metavar="N", help="How many missed runs are made up for.")
]
Jitter = Annotated[
    int, typer.Option(min=0, metavar="MS", help="Each run begins up to so much later.")
]
RunTimeout = Annotated[
    int, typer.Option(min=0, metavar="MS", help="Each run fails after so long; 0: never.")
]
OnFailure = Annotated[bool, typer.Option("--pause-on-failure", help="Pause when a run fails.")]
Queue = Annotated[str, typer.Option(metavar="NAME", help="The task queue of the runs.")]
Note = Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")]
Paused = Annotated[bool, typer.Option("--paused", help="Make it, and start nothing yet.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="Change the schedule of this id, all that it says.")
]


@app.command(
    epilog="\b\nExamples:\n"
    "  perdure schedule create nightly Report --cron '0 3 * * *' --tz Europe/Berlin\n"
    "  perdure schedule create poll Import --every-ms 900000 --overlap buffer-one"
)
def create(
    schedule_id: ScheduleId,
    workflow_type: Annotated[str, typer.Argument(metavar="TYPE", help="The workflow's type.")],
    cron: Cron = None,
    every_ms: Every = None,
    offset_ms: Offset = 0,
    tz: Zone = "UTC",
    from_: From = None,
    until: Until = None,
    input_: Input = None,
    overlap: Policy = None,
    catch_up: CatchUp = 1,
    jitter_ms: Jitter = 0,
    timeout_ms: RunTimeout = 0,
    pause_on_failure: OnFailure = False,
    queue: Queue = "default",
    note: Note = "",
    paused: Paused = False,
    replace: Replace = False,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Make a schedule, and show when its next runs are due."""
    from perdure import wire_schedules
    from perdure.request_ids import new_request_id

    with output.reported():
        kind = wire_schedules.UpdateSchedule if replace else wire_schedules.CreateSchedule
        args = kind(
            schedule_id,
            workflow_type,
            _payload(input_),
            queue,
            tuple(cron or ()),
            every_ms,
            offset_ms,
            tz,
            instant_ms(from_, tz, "--from"),
            instant_ms(until, tz, "--until"),
            jitter_ms,
            _policy(overlap) or "skip",  # type: ignore[arg-type]
            catch_up,
            pause_on_failure,
            timeout_ms,
            note,
            paused,
            new_request_id(),
        )
    with connected(endpoint, timeout) as client:
        ask(client, args)
        found = output.plain(client.describe_schedule(schedule_id, 3))
        warning = unserved.workflow(client, "each of its runs", workflow_type, queue)
    _made(found, "changed" if replace else "made", warning, as_json)


def _made(found: dict[str, Any], word: str, warning: str | None, as_json: bool) -> None:
    if as_json:
        output.emit({**found, "warning": warning})
    else:
        output.say(f"{word}: {found['schedule_id']}")
        _show_upcoming(found)
    output.warn(warning)


def _payload(text: str | None) -> Any:
    from perdure import values, wire

    if text is None:
        return wire.ABSENT
    return wire.raw_payload(values.encode(json_option(text, "--input")))


def _policy(text: str | None) -> str | None:
    if text is None:
        return None
    from perdure.core.schedule_state import Overlap

    name = text.replace("-", "_")
    known = [one.value for one in Overlap]
    if name not in known:
        allowed = ", ".join(one.replace("_", "-") for one in known)
        raise typer.BadParameter(f"--overlap: {text!r} is none of {allowed}")
    return name


@app.command("list", epilog="\b\nExample:\n  perdure schedule list")
def list_(
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many, by id.")] = 100,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List the schedules, by id."""
    from perdure import wire_schedules

    def page(size: int, after: str | None) -> wire.Args:
        return wire_schedules.ListSchedules(size, after)

    with connected(endpoint, timeout) as client:
        found, more = pages(client, page, "schedules", limit)
    if as_json:
        output.emit(found)
        return
    now_ms = _now_ms()
    rows = [
        (
            each["schedule_id"],
            each["type"],
            _when_due(each),
            "paused" if each["paused"] else output.when(each["next_ms"], now_ms),
            each["running"],
            each["started"],
            each["skipped"],
            each["missed"],
            each["note"] or each["reason"],
        )
        for each in found
    ]
    columns = (
        "SCHEDULE",
        "TYPE",
        "WHEN",
        "NEXT",
        "RUNNING",
        "STARTED",
        "SKIPPED",
        "MISSED",
        "NOTE",
    )
    output.show(output.table(columns, rows, right=("RUNNING", "STARTED", "SKIPPED", "MISSED")))
    if more:
        output.note(f"there are more than {limit}: see --limit")


def _when_due(each: dict[str, Any]) -> str:
    """What the schedule says of its times, on one line."""
    parts = list(each["cron"])
    if parts and each["time_zone"] != "UTC":
        parts[-1] += f" ({each['time_zone']})"
    if each["every_ms"] is not None:
        text = f"every {output.duration(each['every_ms'])}"
        if each["offset_ms"]:
            text += f" and {output.duration(each['offset_ms'])}"
        parts.append(text)
    return "; ".join(parts)


@app.command(epilog="\b\nExample:\n  perdure schedule show nightly")
def show(
    schedule_id: ScheduleId,
    count: Annotated[
        int, typer.Option(min=0, max=100, metavar="N", help="So many of the next runs.")
    ] = 10,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show what a schedule says, did, and will do."""
    with connected(endpoint, timeout) as client:
        found = output.plain(client.describe_schedule(schedule_id, count))
    if as_json:
        output.emit(found)
        return
    now_ms = _now_ms()
    reason = f": {found['reason']}" if found["reason"] else ""
    facts = [
        ("schedule", schedule_id),
        ("type", found["type"]),
        ("when", _when_due(found)),
        ("paused", f"yes{reason}" if found["paused"] else "no"),
        ("overlap", found["overlap"].replace("_", "-")),
        ("catch-up", f"{found['catch_up']} of what was missed"),
        ("input", output.short(found["input"])),
        ("note", found["note"] or "-"),
        ("made", output.when(found["created_ms"], now_ms)),
        ("last event", output.when(found["changed_ms"], now_ms)),
        ("started", found["started"]),
        ("skipped", found["skipped"]),
        ("missed", found["missed"]),
        ("waiting", len(found["buffered_ms"]) or "-"),
    ]
    output.show(output.table(("", ""), [fact for fact in facts if fact[1] != "-"]))
    if found["recent"]:
        output.say()
        rows = [
            (
                _local(one["due_ms"], found["time_zone"]),
                one["why"],
                one["outcome"],
                output.coloured(one["status"] or "-"),
                one["workflow_id"] or "-",
            )
            for one in found["recent"]
        ]
        output.show(output.table(("DUE", "WHY", "OUTCOME", "STATUS", "WORKFLOW"), rows))
    _show_upcoming(found)


def _show_upcoming(found: dict[str, Any]) -> None:
    if not found["upcoming_ms"]:
        return
    output.say()
    output.say("next runs" + (" (paused)" if found["paused"] else ""))
    for at_ms in found["upcoming_ms"]:
        output.say(f"  {_local(at_ms, found['time_zone'])}")


def _local(at_ms: int, time_zone: str) -> str:
    from perdure.times import zone

    at = datetime.datetime.fromtimestamp(at_ms / 1000, zone(time_zone))
    return f"{at:%a %Y-%m-%d %H:%M:%S %Z}"


@app.command(
    epilog="\b\nExample:\n  perdure schedule preview --cron '30 2 * * *' --tz Europe/Berlin "
    "--from 2027-03-26"
)
def preview(
    cron: Cron = None,
    every_ms: Every = None,
    offset_ms: Offset = 0,
    tz: Zone = "UTC",
    from_: From = None,
    until: Until = None,
    count: Annotated[int, typer.Option(min=1, max=1_000, metavar="N", help="So many runs.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show when it would be due; needs no node."""
    from perdure.times import Times

    with output.reported():
        times: Times = Times(
            tuple(cron or ()),
            every_ms,
            offset_ms,
            tz,
            instant_ms(from_, tz, "--from"),
            instant_ms(until, tz, "--until"),
        )
    found: list[int] = []
    at_ms: int | None = _now_ms() if from_ is None else 0
    while at_ms is not None and len(found) < count:
        at_ms = times.after(at_ms)
        if at_ms is not None:
            found.append(at_ms)
    if as_json:
        output.emit(found)
        return
    for each in found:
        output.say(_local(each, tz))


@app.command(epilog="\b\nExample:\n  perdure schedule pause nightly --reason 'the report is wrong'")
def pause(
    schedule_id: ScheduleId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for whoever looks.")] = "",
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Start nothing of it until it is resumed."""
    with connected(endpoint, timeout) as client:
        client.pause_schedule(schedule_id, reason)
    _done("paused", schedule_id, as_json)


@app.command(epilog="\b\nExample:\n  perdure schedule resume nightly")
def resume(
    schedule_id: ScheduleId,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Go on with the next run that is due."""
    with connected(endpoint, timeout) as client:
        client.resume_schedule(schedule_id)
    _done("resumed", schedule_id, as_json)


@app.command(epilog="\b\nExample:\n  perdure schedule trigger nightly")
def trigger(
    schedule_id: ScheduleId,
    overlap: Policy = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Run it once now, beside what is due."""
    policy: Any = _policy(overlap)
    with connected(endpoint, timeout) as client:
        client.trigger_schedule(schedule_id, policy)
    _done("triggered", schedule_id, as_json)


@app.command(
    epilog="\b\nExample:\n  perdure schedule backfill nightly --from 2026-11-01 --until 2026-11-08"
)
def backfill(
    schedule_id: ScheduleId,
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="The span's beginning.")],
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Its end, included.")],
    overlap: Policy = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Run what was due in a span of the past.

    At most 1 000 runs, all due at once: with the overlap policy skip at most one begins. Times
    without a zone are of the schedule's.
    """
    policy: Any = _policy(overlap)
    with connected(endpoint, timeout) as client:
        found = client.describe_schedule(schedule_id, 0)
        zone = found.time_zone
        first_ms = instant_ms(from_, zone, "--from") or 0
        last_ms = instant_ms(until, zone, "--until") or 0
        client.backfill_schedule(schedule_id, first_ms, last_ms, policy)
    _done("backfilled", schedule_id, as_json)
    if (policy or found.overlap) == "skip":
        output.note(
            "overlap skip: what would begin while another run goes on is left out, so of several "
            "at most one begins; --overlap buffer-all runs each, one after the other"
        )


@app.command(epilog="\b\nExample:\n  perdure schedule delete nightly")
def delete(
    schedule_id: ScheduleId,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """End a schedule; what it started goes on."""
    with connected(endpoint, timeout) as client:
        client.delete_schedule(schedule_id)
    _done("deleted", schedule_id, as_json)


def _done(word: str, schedule_id: str, as_json: bool) -> None:
    if as_json:
        output.emit({"schedule_id": schedule_id, "done": word})
    else:
        output.say(f"{word}: {schedule_id}")


def _now_ms() -> int:
    from perdure.clock import wall_ms

    return wall_ms()
