"""What a refusal changes in the batch that asked for it."""

from __future__ import annotations

from typing import Any

from perdure.core.commands import Refusal, SignalWorkflow
from perdure.core.draft import Draft
from perdure.core.facts import FollowOn
from perdure.core.records import SignalSent, WorkflowTaskCompleted, decode_event
from perdure.core.traits import stored_events

GONE = Refusal("NOT_FOUND", "there is none")


class Counting(list[Any]):
    """How many of its rows are looked at."""

    def __init__(self, rows: list[Any]) -> None:
        super().__init__(rows)
        self.looks = 0

    def __iter__(self) -> Any:
        for row in super().__iter__():
            self.looks += 1
            yield row

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def test_each_event_that_was_refused_says_so_without_a_look_at_all_others():
    count = 200
    records = [WorkflowTaskCompleted(1, count)]
    records += [SignalSent(at, 0, f"gone-{at}", "go", None) for at in range(2, 2 + count)]
    draft = Draft()
    draft.groups["w"] = group = Counting(records)
    draft.events = events = Counting(stored_events("w", records))
    refused = range(2, 2 + count, 2)
    for at in refused:
        follow_on = FollowOn(SignalWorkflow(f"gone-{at}", "go", None), asked_in=("w", at))
        ((workflow_id, grown),) = draft.refused(follow_on, GONE)
        assert (workflow_id, grown > 0) == ("w", True)
    assert max(group.looks, events.looks) < 5 * count
    told = [one.event_id for one in group if getattr(one, "code", "")]
    assert told == list(refused)
    assert [decode_event(one.body) for one in events] == list(group)[1:]
