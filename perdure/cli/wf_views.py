"""How `perdure wf` shows workflows to people."""

from __future__ import annotations

from typing import Any

from perdure import failure_text
from perdure.cli import output

# Fields of an event that the timeline has in columns of their own, or that are only for replay.
EVENT_COLUMNS = frozenset({"event_id", "kind", "at_ms", "type", "options", "request_id"})
# What an event is about, in the column OF: the first of these that it has.
OF_COLUMNS = ("activity_id", "timer_id", "child_id", "update_id", "name")

DEFAULT_QUEUE = "default"
BAR_CHARS = 30
FRAMES_SHOWN_MAX = 6


def took(found: dict[str, Any]) -> str:
    """How long a closed workflow ran."""
    if found.get("closed_ms") is None:
        return "-"
    return output.duration(found["closed_ms"] - found["started_ms"])


def workflows(found: list[dict[str, Any]], now_ms: int) -> Any:
    """The table of `wf list`; runs where one is not the first, why it is stuck where one is."""
    has_runs = any(each.get("run", 1) > 1 for each in found)
    has_stuck = any(each.get("stuck") for each in found)
    rows = [
        (
            each["workflow_id"],
            *([each.get("run", 1)] if has_runs else []),
            each["type"],
            output.coloured(each["status"]),
            *([output.coloured(each.get("stuck") or "-")] if has_stuck else []),
            output.when(each.get("started_ms"), now_ms),
            took(each),
        )
        for each in found
    ]
    run = ("RUN",) if has_runs else ()
    stuck = ("STUCK",) if has_stuck else ()
    return output.table(("ID", *run, "TYPE", "STATUS", *stuck, "STARTED", "TOOK"), rows)


def show_workflow(found: dict[str, Any], now_ms: int) -> None:
    """`wf describe`."""
    attributes = found.get("search_attributes")
    parent = found.get("parent")
    facts = [
        ("id", found["workflow_id"]),
        ("run", found["run"] if found.get("run", 1) > 1 else "-"),
        ("type", found["type"]),
        ("status", output.coloured(found["status"])),
        ("stuck", found.get("stuck") or "-"),
        ("parent", parent["workflow_id"] if parent else "-"),
        ("started", output.when(found.get("started_ms"), now_ms)),
        ("closed", output.when(found.get("closed_ms"), now_ms)),
        ("times out", output.when(found.get("timeout_at_ms"), now_ms)),
        ("input", output.short(found.get("input"))),
        ("attributes", output.short(attributes) if attributes else "-"),
        ("result", output.short(found.get("result"))),
        ("failure", output.failure_line(found.get("failure"))),
        ("history", output.counted(found.get("history_length", 0), "event")),
    ]
    output.show(output.table(("", ""), [fact for fact in facts if fact[1] != "-"]))
    if found.get("failure"):
        show_failure(found["failure"])
    for line in [*wish_lines(found, now_ms), *task_lines(found.get("workflow_task") or {}, now_ms)]:
        output.say(line)
    activities = found.get("pending_activities") or []
    if activities:
        output.say()
        output.show(pending(activities, now_ms))
        for line in pending_notes(activities, now_ms):
            output.say(line)
    timers = found.get("pending_timers") or []
    if timers:
        rows = [
            (each.get("timer_id", "-"), output.when(each.get("due_ms"), now_ms)) for each in timers
        ]
        output.say()
        output.show(output.table(("TIMER", "DUE"), rows))
    children = found.get("children") or []
    if children:
        rows = [(each["workflow_id"], each["parent_close"]) for each in children]
        output.say()
        output.show(output.table(("CHILD", "WHEN THIS ENDS"), rows))


def show_failure(failure: dict[str, Any]) -> None:
    """Where it came from, and what caused it; nothing of one that has no stack."""
    lines = failure_lines(failure)
    for line in lines:
        output.say(line)
    if lines:
        output.say("(whole stacks: --json)")


def failure_lines(failure: dict[str, Any]) -> list[str]:
    """The calls that led to a failure in the user's own code, then those of its causes."""
    lines: list[str] = []
    for at, each in enumerate(failure_text.causes(failure)):
        calls = failure_text.frames(each.get("stack"))
        if at:
            raised = ", raised in" if calls else ""
            lines.append(f"caused by {output.failure_line(each)}{raised}")
        elif calls:
            lines.append("raised in")
        left_out = len(calls) - FRAMES_SHOWN_MAX
        if left_out > 0:
            lines.append(f"  … {left_out} more")
        lines += [f"  {output.one_line(str(call))}" for call in calls[-FRAMES_SHOWN_MAX:]]
    return ["", *lines] if lines else []


def wish_lines(found: dict[str, Any], now_ms: int) -> list[str]:
    """What people want of the workflow that it has not done yet."""
    lines = []
    if found.get("cancel_requested") and found["status"] == "Running":
        why = found.get("cancel_reason")
        lines.append("its cancellation is asked for" + (f": {output.one_line(why)}" if why else ""))
    if found.get("paused"):
        why = found.get("paused_reason")
        lines.append("it is paused" + (f": {output.one_line(why)}" if why else ""))
    for what in ("signals", "updates"):
        waiting = found.get(what) or []
        if waiting:
            lines.append(f"{what} that its code has not dealt with: {len(waiting)}")
    lines += signal_lines(found, now_ms)
    return ["", *lines] if lines else []


def signal_lines(found: dict[str, Any], now_ms: int) -> list[str]:
    """Signals that its code has nothing for, and those that were dropped."""
    lines = []
    untaken = found.get("untaken_signals") or []
    if untaken:
        listed = ", ".join(f"{each['name']} ({each['count']})" for each in untaken)
        known = ", ".join(found.get("takes_signals") or []) or "none"
        lines.append(f"signals that its code does not take: {listed}; it takes: {known}")
    for each in found.get("dropped_signals") or []:
        when, why = output.when(each["at_ms"], now_ms), output.one_line(each["reason"])
        lines.append(f"a signal {each['name']} was dropped {when}: {why}")
    return lines


def pending(activities: list[dict[str, Any]], now_ms: int) -> Any:
    """The table of a workflow's open activities; their queues where one is not the default."""
    from perdure.policy import RetryPolicy

    has_queues = any(each.get("task_queue", DEFAULT_QUEUE) != DEFAULT_QUEUE for each in activities)
    rows = []
    for each in activities:
        limit = each.get("max_attempts") or "-"
        if limit == RetryPolicy.UNLIMITED:
            limit = "∞"
        due = each.get("due_ms")
        if each["state"] == "Leased":
            due_text = f"lease ends {output.when(each.get('lease_deadline_ms'), now_ms)}"
        else:
            due_text = output.when(due, now_ms) if due is None or due > now_ms else "now"
        rows.append(
            (
                each["activity_id"],
                each.get("type", "-"),
                *([each.get("task_queue", "-")] if has_queues else []),
                output.coloured(each["state"]),
                f"{each['attempt']} of {limit}",
                due_text,
                each.get("worker_id") or "-",
                output.failure_line(each.get("last_failure")),
            )
        )
    queue = ("QUEUE",) if has_queues else ()
    columns = ("STATE", "ATTEMPT", "DUE", "WORKER", "LAST FAILURE")
    return output.table(("ACTIVITY", "TYPE", *queue, *columns), rows)


def pending_notes(activities: list[dict[str, Any]], now_ms: int) -> list[str]:
    """What the table has no room for, a line each: whom an activity waits for, why it was handed
    back, how far its heartbeats say that it is.
    """
    lines = []
    for each in activities:
        parts = []
        if each.get("waiting_for"):
            parts.append(f"waits for {each['waiting_for']}")
        if each.get("handed_back"):
            parts.append(f"was handed back unrun: {each['handed_back']}")
        if each.get("progress"):
            parts.append(bar(each["progress"]))
        elif each.get("heartbeat_details") is not None:
            parts.append(f"heartbeat details {output.short(each['heartbeat_details'])}")
        if each.get("last_heartbeat_ms") is not None:
            parts.append(f"last heartbeat {output.when(each['last_heartbeat_ms'], now_ms)}")
        lines += [output.one_line(f"{each['activity_id']}: {part}") for part in parts]
    return ["", *lines] if lines else []


def count(number: float) -> str:
    """A count with its thousands apart."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"


def bar(progress: dict[str, Any]) -> str:
    """How far an attempt has come: a bar where it is known of how much, and its note."""
    done, fraction = count(progress["done"]), progress["fraction"]
    if fraction is None:
        drawn = f"{done} done"
    else:
        full = int(fraction * BAR_CHARS)
        drawn = "#" * full + "-" * (BAR_CHARS - full)
        drawn = f"[{drawn}] {int(fraction * 100)} % {done} of {count(progress['total'])}"
    return f"{drawn} {progress['note']}".rstrip()


def task_lines(task: dict[str, Any], now_ms: int) -> list[str]:
    """What ails the workflow's own code: whom it waits for, how it failed, when it is tried again.

    The failure in full: it says what was expected, what came, and where.
    """
    lines = []
    if task.get("waiting_for"):
        lines.append(f"the workflow waits for {task['waiting_for']}")
    reason, failures, due_ms = task.get("reason"), task.get("failures") or 0, task.get("due_ms")
    if reason or failures:
        is_parked = due_ms is not None and due_ms > now_ms
        times = f"{failures} failure{'' if failures == 1 else 's'} in a row"
        again = f"next try {output.when(due_ms, now_ms)}" if is_parked else "it is tried again now"
        how = "is parked" if is_parked else "failed"
        lines.append(f"the workflow's code {how}: {reason or 'unknown'}, {times}, {again}")
        failure = task.get("failure")
        if failure:
            what = f"{failure['type']}: {failure.get('message') or ''}"
            lines.append(f"  {output.one_line(what)}")
    return ["", *lines] if lines else []


def of_event(event: dict[str, Any]) -> str:
    """The activity, timer, child, update, signal or marker that an event is about; or nothing."""
    if event["kind"] == "UpdateEnded":
        return str(event.get("request_id") or "")
    return next((str(event[name]) for name in OF_COLUMNS if event.get(name)), "")


def event_line(event: dict[str, Any]) -> str:
    """What an event says beside its kind and its place in the timeline."""
    parts = []
    is_start = event["kind"] == "WorkflowStarted"
    of = next((name for name in OF_COLUMNS if event.get(name)), "")
    for name, value in event.items():
        if name in EVENT_COLUMNS or name == of or value is None or name.endswith("_ms"):
            continue
        if name == "answered" or (name in ("refused", "code") and not value):
            continue  # Of a word to another workflow, that was taken.
        if is_start and name in ("workflow_id", "run"):  # Whose history it is, is known.
            continue
        if name == "terms":  # How it was started, as far as that was said.
            parts += [f"{term}={output.short(its)}" for term, its in value.items() if its]
            continue
        if name in ("failure", "last_failure"):
            if name == "failure":
                parts.append(output.failure_line(value))
        elif name in ("activity_type", "workflow_type", "worker_id"):
            parts.append(str(value))
        elif not (name in ("generation", "noop") and value in (1, False)):
            parts.append(f"{name}={output.short(value)}")
    return "  ".join(parts)
