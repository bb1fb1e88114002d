"""What is done to one dead letter, or to all that match: with a count, a canary and a rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from perdure.cli import bulk, output
from perdure.cli.filters import pages
from perdure.cli.options import ask, connected

if TYPE_CHECKING:
    from perdure import wire
    from perdure.client import Client

OneWorkflow = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="The workflow's id.", show_default=False)
]
OneActivity = Annotated[
    str | None,
    typer.Argument(metavar="[ACTIVITY]", help="The activity's id.", show_default=False),
]
ActivityType = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only of this activity type.")
]
FailureType = Annotated[
    str | None,
    typer.Option("--failure-type", metavar="TYPE", help="Only those that died of this."),
]
OlderThan = Annotated[
    int | None,
    typer.Option("--older-than-ms", min=0, metavar="MS", help="Only those dead for longer."),
]
Canary = Annotated[
    bool, typer.Option("--canary", help="One first; the others once its activity has completed.")
]
CanaryTimeout = Annotated[
    int, typer.Option("--canary-timeout-ms", min=1, metavar="MS", help="How long that may take.")
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who does it; it is kept.")]

WAIT_MS = 5_000
# How an activity that was sent round again may end, for better or worse.
ENDS = (
    "ActivityTaskCompleted",
    "ActivityTaskFailed",
    "ActivityTaskCancelled",
    "ActivityDeadLettered",
    "WorkflowFailed",
    "WorkflowCancelled",
    "WorkflowTerminated",
)


class Where(NamedTuple):
    """What a list of dead letters is narrowed to."""

    workflow_id: str | None
    activity_type: str | None
    failure_type: str | None
    older_than_ms: int | None

    def page(self, size: int, after: str | None) -> wire.Args:
        """The operation that asks for one page."""
        from perdure import wire

        return wire.ListDeadLetters(
            self.workflow_id,
            None,
            self.activity_type,
            self.failure_type,
            self.older_than_ms,
            size,
            after,
        )


class How(NamedTuple):
    """What is done: `args(workflow_id, activity_id, request_id)` is the operation."""

    verb: str
    word: str
    args: Callable[[str, str, str], wire.Args]
    dry_run: bool
    yes: bool
    rate: float | None
    as_json: bool
    canary: bool = False
    canary_timeout_ms: int = 0


def resolve(
    where: Where,
    activity_id: str | None,
    all_: bool,
    how: How,
    endpoint: str | None,
    timeout: float,
) -> None:
    """One dead letter by its ids, or all that match."""
    from perdure.request_ids import new_request_id

    is_one = where.workflow_id is not None and activity_id is not None
    narrowed = (where.activity_type, where.failure_type, where.older_than_ms)
    if is_one == all_ or (not all_ and any(it is not None for it in narrowed)):
        raise typer.BadParameter(
            f"name one dead letter (perdure wf dlq {how.verb} ID ACTIVITY), or --all with filters,"
            " not both"
        )
    with connected(endpoint, timeout) as client:
        if where.workflow_id is not None and activity_id is not None:
            if how.dry_run:
                raise typer.BadParameter("--dry-run counts, and goes with --all")
            ask(client, how.args(where.workflow_id, activity_id, new_request_id()))
            _settled(how.word, where.workflow_id, activity_id, how.as_json)
            return
        found, _ = pages(client, where.page, "dead_letters", None)
        if how.dry_run:
            if how.as_json:
                output.emit({"matched": len(found), "by_failure": groups(found)})
            else:
                output.say(bulk.matching(len(found), "dead letter"))
            return
        bulk.confirmed(f"{how.verb} dead letters:", len(found), yes=how.yes)
        items = [
            bulk.Item(
                f"{it['activity_id']} of {it['workflow_id']}",
                how.args(it["workflow_id"], it["activity_id"], new_request_id()),
            )
            for it in found
        ]
        if how.canary and found:
            _try_canary(client, found[0], items.pop(0), how)
        bulk.run(
            client, items, rate=how.rate, verb=how.verb, done_word=how.word, as_json=how.as_json
        )


def _try_canary(client: Client, letter: dict[str, Any], item: bulk.Item, how: How) -> None:
    """Comes back when its activity has completed; ends the command otherwise."""
    import time

    workflow_id, activity_id = letter["workflow_id"], letter["activity_id"]
    after = client.read_events("now").next
    ask(client, item.args)
    output.note(f"canary: {item.name}")
    until = time.monotonic() + how.canary_timeout_ms / 1_000
    while (left_ms := int((until - time.monotonic()) * 1_000)) > 0:
        page = client.read_events(
            after, kinds=ENDS, workflow_id=workflow_id, wait_ms=min(WAIT_MS, left_ms)
        )
        after = page.next
        for event in page.events:
            if event.get("activity_id") not in (None, activity_id):
                continue
            if event.kind == "ActivityTaskCompleted":
                output.note("canary: it has completed")
                return
            why = output.failure_line(event.get("failure"))
            text = f"the canary, {item.name}, ended as {event.kind} ({why}); nothing else was done"
            raise output.fail(text, output.FAILED)
    text = (
        f"the canary, {item.name}, has not ended within {how.canary_timeout_ms} ms; nothing else"
        " was done"
    )
    raise output.fail(text, output.FAILED)


# --- by failure ------------------------------------------------------------------
def groups(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Dead letters counted by the type of their last failure, most first."""
    by_type: dict[str, list[dict[str, Any]]] = {}
    for letter in found:
        by_type.setdefault((letter.get("last_failure") or {}).get("type", "-"), []).append(letter)
    made = []
    for failure_type, letters in by_type.items():
        example = letters[-1]
        made.append(
            {
                "failure_type": failure_type,
                "count": len(letters),
                "activity_types": dict(
                    Counter(it["activity_type"] for it in letters).most_common()
                ),
                "oldest_ms": min(it["dead_ms"] or 0 for it in letters),
                "newest_ms": max(it["dead_ms"] or 0 for it in letters),
                "example": {
                    "workflow_id": example["workflow_id"],
                    "activity_id": example["activity_id"],
                    "message": (example.get("last_failure") or {}).get("message", ""),
                },
            }
        )
    return sorted(made, key=lambda it: -it["count"])


def show_groups(found: list[dict[str, Any]], *, as_json: bool) -> None:
    """`wf dlq list --by-failure`."""
    from perdure.clock import wall_ms

    made = groups(found)
    if as_json:
        output.emit(made)
        return
    now_ms = wall_ms()
    rows = [
        (
            each["failure_type"],
            each["count"],
            ", ".join(f"{name} {count}" for name, count in each["activity_types"].items()),
            output.when(each["oldest_ms"], now_ms),
            f"{each['example']['activity_id']} of {each['example']['workflow_id']}",
            output.short(output.one_line(each["example"]["message"])),
        )
        for each in made
    ]
    columns = ("FAILURE", "COUNT", "ACTIVITY TYPES", "OLDEST DIED", "EXAMPLE", "MESSAGE")
    output.show(output.table(columns, rows, right=("COUNT",)))


def _settled(word: str, workflow_id: str, activity_id: str, as_json: bool) -> None:
    if as_json:
        output.emit({"workflow_id": workflow_id, "activity_id": activity_id, "done": word})
    else:
        output.say(f"{word}: {activity_id} of {workflow_id}")
