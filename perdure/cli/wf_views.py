"""How `perdure wf` shows workflows to people."""

from __future__ import annotations

from typing import Any

from perdure.cli import output

# Fields of an event that the timeline has in columns of their own, or that are only for replay.
EVENT_COLUMNS = frozenset(
    {"event_id", "kind", "at_ms", "activity_id", "timer_id", "type", "options", "request_id"}
)


def took(found: dict[str, Any]) -> str:
    """How long a closed workflow ran."""
    if found.get("closed_ms") is None:
        return "-"
    return output.duration(found["closed_ms"] - found["started_ms"])


def pending(activities: list[dict[str, Any]], now_ms: int) -> Any:
    """The table of a workflow's open activities."""
    rows = []
    for each in activities:
        limit = each.get("max_attempts") or "-"
        due = each.get("due_ms")
        if each["state"] == "Leased":
            due_text = f"lease ends {output.when(each.get('lease_deadline_ms'), now_ms)}"
        else:
            due_text = output.when(due, now_ms) if due is None or due > now_ms else "now"
        rows.append(
            (
                each["activity_id"],
                each.get("type", "-"),
                output.coloured(each["state"]),
                f"{each['attempt']} of {limit}",
                due_text,
                each.get("worker_id") or "-",
                output.failure_line(each.get("last_failure")),
            )
        )
    columns = ("ACTIVITY", "TYPE", "STATE", "ATTEMPT", "DUE", "WORKER", "LAST FAILURE")
    return output.table(columns, rows)


def event_line(event: dict[str, Any]) -> str:
    """What an event says beside its kind and its place in the timeline."""
    parts = []
    for name, value in event.items():
        if name in EVENT_COLUMNS or value is None or name.endswith("_ms"):
            continue
        if name in ("failure", "last_failure"):
            if name == "failure":
                parts.append(output.failure_line(value))
        elif name in ("activity_type", "workflow_type", "worker_id"):
            parts.append(str(value))
        elif not (name in ("generation", "noop") and value in (1, False)):
            parts.append(f"{name}={output.short(value)}")
    return "  ".join(parts)
