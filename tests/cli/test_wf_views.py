from __future__ import annotations

from perdure.cli import output, wf_views
from perdure.cli.dlq import is_redriven


def shown(table, capsys):
    output.show(table)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def pending(**changes):
    fields = {
        "activity_id": "a",
        "type": "charge",
        "state": "Scheduled",
        "attempt": 1,
        "max_attempts": 4,
        "due_ms": 0,
        "task_queue": "default",
    }
    return {**fields, **changes}


def test_the_queue_is_shown_where_one_is_not_the_default(capsys):
    assert "QUEUE" not in shown(wf_views.pending([pending()], 0), capsys)[0]
    head, first, second = shown(wf_views.pending([pending(), pending(task_queue="x")], 0), capsys)
    assert head.index("QUEUE") == first.index("default") == second.index("x") == 2


def test_a_list_has_a_column_for_what_is_stuck_where_one_is(capsys):
    one = {"workflow_id": "w", "type": "t", "status": "Running", "started_ms": 0, "stuck": None}
    assert "STUCK" not in shown(wf_views.workflows([one], 0), capsys)[0]
    found = [one, {**one, "workflow_id": "v", "stuck": "mismatch"}]
    head, first, second = shown(wf_views.workflows(found, 0), capsys)
    at = head.index("STUCK")
    assert (first[at], second[at]) == ("-", "mismatch")


def test_an_activity_that_waits_for_a_worker_says_so_below_the_table():
    found = pending(
        waiting_for="a worker that has activity 'x'",
        handed_back="unknown_type",
        heartbeat_details={"offset": 7},
        last_heartbeat_ms=1_000,
    )
    assert wf_views.pending_notes([pending(), found], 3_000) == [
        "",
        "a: waits for a worker that has activity 'x'",
        "a: was handed back unrun: unknown_type",
        'a: heartbeat details {"offset":7}',
        "a: last heartbeat 2.0 s ago",
    ]
    assert wf_views.pending_notes([pending()], 0) == []


def test_a_parked_workflow_task_says_why_and_when_it_is_tried_again():
    message = f"expected X, got {'Y' * 300}\nat flow.py:7"
    task = {
        "reason": "mismatch",
        "failures": 4,
        "due_ms": 9_000,
        "failure": {"type": "NonDeterminism", "message": message},
    }
    assert wf_views.task_lines(task, 1_000) == [
        "",
        "the workflow's code is parked: mismatch, 4 failures in a row, next try in 8.0 s",
        f"  NonDeterminism: expected X, got {'Y' * 300} at flow.py:7",
    ]
    task |= {"failures": 1, "due_ms": 500, "failure": None}
    assert wf_views.task_lines(task, 1_000)[1:] == [
        "the workflow's code failed: mismatch, 1 failure in a row, it is tried again now"
    ]


def test_a_workflow_whose_type_nobody_has_says_so_and_a_healthy_one_nothing():
    task = {"ready": True, "failures": 0, "due_ms": None, "reason": None, "failure": None}
    assert wf_views.task_lines(task | {"waiting_for": None}, 0) == []
    assert wf_views.task_lines(task | {"waiting_for": "a worker"}, 0) == [
        "",
        "the workflow waits for a worker",
    ]


def test_between_two_attempts_whose_numbers_do_not_rise_lies_a_redrive():
    numbers = [1, 2, 3, 1, 1, 2]
    before = [0, *numbers]
    cuts = [
        at
        for at, (one, two) in enumerate(zip(before, numbers, strict=False))
        if is_redriven(one, two)
    ]
    assert cuts == [3, 4]


def test_the_line_of_a_start_says_what_was_said_and_nothing_that_is_known_or_empty():
    terms = {"delay_ms": 300, "timeout_ms": None, "attributes": {}, "signals": []}
    event = {"event_id": 1, "kind": "WorkflowStarted", "at_ms": 0, "workflow_type": "checkout"}
    line = wf_views.event_line(
        {**event, "input": ["o-1"], "terms": terms, "workflow_id": "w", "run": 2}
    )
    assert line == 'checkout  input=["o-1"]  delay_ms=300'
    went_on = {"event_id": 9, "kind": "WorkflowContinuedAsNew", "at_ms": 0, "run": 3}
    assert wf_views.event_line(went_on) == "run=3"


def test_the_history_says_of_every_event_what_it_is_about():
    def of(kind: str, **fields: object) -> str:
        return wf_views.of_event({"event_id": 3, "kind": kind, "at_ms": 0, **fields})

    assert of("ActivityTaskScheduled", activity_id="charge") == "charge"
    assert of("TimerFired", timer_id=7) == "7"
    assert of("ChildWorkflowStarted", child_id="w/@1") == "w/@1"
    assert of("SignalReceived", name="go") == "go"
    assert of("UpdateReceived", update_id="u-1", name="add") == "u-1"
    assert of("UpdateEnded", request_id="u-1") == "u-1"
    assert of("MarkerRecorded", marker="patch", name="new-price") == "new-price"
    assert of("WorkflowCompleted", request_id="r") == ""
    event = {"event_id": 3, "kind": "UpdateReceived", "at_ms": 0, "update_id": "u", "name": "add"}
    assert wf_views.event_line(event) == 'name="add"'


def test_a_failure_is_shown_with_the_calls_that_led_to_it_and_its_causes():
    calls = "".join(f'  File "/srv/flow.py", line {at}, in f{at}\n' for at in range(9))
    cause = {"type": "ValueError", "message": "declined", "stack": '  File "/a.py", line 6, in pay'}
    failure = {"type": "ActivityFailed", "message": "no", "stack": calls, "cause": cause}
    assert wf_views.failure_lines(failure) == [
        "",
        "raised in",
        "  … 3 more",
        *(f"  /srv/flow.py:{at} in f{at}" for at in range(3, 9)),
        "caused by ValueError: declined, raised in",
        "  /a.py:6 in pay",
    ]
    assert wf_views.failure_lines({"type": "Terminated", "message": "x", "stack": None}) == []
