"""One thing wrong in each store, beyond its leases: found under its number, and nothing else.

Each is a copy of one whole store, edited with plain SQL; where the log is edited the hash chain is
made right again, so that only the intended rule is broken.
"""

from __future__ import annotations

import msgspec

from chaos.auditor.names import TAGS


def put(at, value):
    """A change that sets one field of the record."""
    return lambda record: [[*record[:at], value, *record[at + 1 :]]]


def plus(at, more):
    """A change that adds to one field of the record."""
    return lambda record: [[*record[:at], record[at] + more, *record[at + 1 :]]]


# --- activities and workflows ---------------------------------------------------


def test_an_activity_completes_twice(damage):
    damage.edit(
        "w-plain", "ActivityTaskCompleted", lambda one: [one, [one[0], one[1] + 2, *one[2:]]]
    )
    damage.breaks(29)


def test_a_result_is_not_that_of_the_lease_s_holder(damage):
    damage.edit("w-plain", "ActivityTaskCompleted", put(9, "somebody"))
    damage.breaks(30)


def test_a_result_is_older_than_its_lease(damage):
    damage.edit("w-timer", "ActivityTaskCompleted", lambda one: [[*one[:2], one[8] - 1, *one[3:]]])
    damage.breaks(10)


def test_a_result_is_newer_than_its_commit(damage):
    damage.edit("w-timer", "ActivityTaskCompleted", plus(2, 1))
    damage.breaks(10)


def test_a_stored_result_is_not_the_one_that_was_logged(damage):
    seq, event_id, raw = damage.sql(
        "SELECT seq, event_id, body FROM events JOIN executions USING (seq)"
        " WHERE workflow_id = 'w-plain' AND kind = 'ActivityTaskCompleted'"
    )[0]
    record = msgspec.msgpack.decode(raw)
    record[7] = record[7][:-1] + b"!"
    damage.sql(
        "UPDATE events SET body = ? WHERE (seq, event_id) = (?, ?)",
        *(msgspec.msgpack.encode(record), seq, event_id),
    )
    damage.breaks(30)


def test_a_dead_letter_is_leased_without_a_redrive(damage):
    damage.edit(
        "w-parked",
        "ActivityDeadLettered",
        lambda one: [
            one,
            [15, one[2], one[3], 1, one[5] + 1, 3, "w", None, one[2] + 600_000, one[2] + 600_000],
        ],
    )
    damage.breaks(31)


def test_a_dead_letter_is_not_among_the_dead_letters(damage):
    damage.sql("UPDATE activities SET state = 'Scheduled' WHERE state = 'DeadLettered'")
    damage.breaks(31)


def test_a_workflow_runs_on_because_of_its_dead_letter(damage):
    damage.edit(
        "w-parked",
        "ActivityDeadLettered",
        lambda one: [one, [TAGS["WorkflowTaskCompleted"], one[1], 1]],
    )
    damage.breaks(31)


def test_a_redrive_skips_a_generation(damage):
    damage.edit("w-redriven", "ActivityRedriven", plus(4, 1))
    damage.breaks(32)


def test_something_is_redriven_that_is_no_dead_letter(damage):
    damage.edit(
        "w-redriven",
        "ActivityRedriven",
        lambda one: [one, [one[0], one[1] + 1, *one[2:4], one[4] + 1, None]],
    )
    damage.breaks(32)


def test_a_cancel_wins_and_is_said_to_have_lost(damage):
    damage.edit("w-cancel", "ActivityTaskCancelled", put(4, True))
    damage.breaks(33)


def test_a_lease_is_granted_after_the_cancel(damage):
    damage.edit(
        "w-cancel",
        "ActivityTaskCancelled",
        lambda one: [
            one,
            [15, one[2], one[3], 1, 1, 1, "w", None, one[2] + 5_000, one[2] + 600_000],
        ],
    )
    damage.breaks(33)


def test_an_event_follows_the_end_of_the_workflow(damage):
    damage.edit(
        "w-plain",
        "WorkflowCompleted",
        lambda one: [one, [TAGS["TimerFired"], one[1] + 1, one[2], 1]],
    )
    damage.breaks(34)


def test_an_event_is_missing(damage):
    damage.edit("w-held", "ActivityTaskScheduled", plus(1, 1))
    damage.breaks(34)


def test_a_workflow_is_open_in_the_table_and_closed_in_the_log(damage):
    damage.sql(
        "UPDATE executions SET status = 'Running', closed_ms = NULL WHERE workflow_id = 'w-plain'"
    )
    damage.breaks(34)


def test_a_workflow_task_counts_a_command_that_left_no_event(damage):
    damage.edit("w-held", "WorkflowTaskCompleted", plus(2, 1))
    damage.breaks(35)


def test_an_activity_is_scheduled_by_no_workflow_task(damage):
    damage.edit(
        "w-held",
        "TimerStarted",
        lambda one: [one, [one[0], one[1] + 1, one[2], 7, one[2] + 5]],
    )
    damage.breaks(35)


def test_two_activities_share_an_id(damage):
    def change(body):
        for group in body[3]:
            for one in group[1] if group[0] == "w-plain" else ():
                one[:] = ["plain" if field == "plain-2" else field for field in one]
        return body

    damage.edit_log(change)
    damage.breaks(41)


# --- tables ---------------------------------------------------------------------


def test_a_cursor_is_not_what_the_log_gives(damage):
    damage.sql("UPDATE executions SET consumed = consumed - 1 WHERE workflow_id = 'w-held'")
    damage.breaks(11)


def test_an_event_is_not_in_the_table(damage):
    damage.sql(
        "DELETE FROM events WHERE event_id = 2"
        " AND seq = (SELECT seq FROM executions WHERE workflow_id = 'w-final')"
    )
    damage.breaks(11)


def test_a_workflow_is_in_the_tables_and_not_in_the_log(damage):
    damage.sql(
        "INSERT INTO executions SELECT 1000, 'w-new', workflow_type, task_queue, started_ms,"
        " request_id, digest, shard, status, closed_ms, last_event_id, last_wake_id, consumed,"
        " commands, task_failures, task_due_ms, task_failure, task_reason, more"
        " FROM executions WHERE workflow_id = 'w-plain'"
    )
    damage.breaks(11)


def test_an_activity_that_is_closed_has_its_row_still(damage):
    damage.sql(
        "INSERT INTO activities SELECT (SELECT seq FROM executions WHERE workflow_id = 'w-plain'),"
        " activity_id, state, activity_type, failure_type, attempt, body FROM activities LIMIT 1"
    )
    damage.breaks(11)


def test_an_activity_has_fallen_through(damage):
    damage.sql("DELETE FROM activities WHERE state = 'Leased'")
    damage.breaks(36)


def test_a_timer_has_fallen_through(damage):
    damage.sql("DELETE FROM timers")
    damage.breaks(36)


def test_a_lease_is_not_in_the_row_of_its_activity(damage):
    damage.sql("UPDATE activities SET state = 'Retrying' WHERE state = 'Leased'")
    damage.breaks(36)


# --- what was seen from outside ---------------------------------------------------


def test_an_effect_was_applied_twice(damage):
    damage.in_ledger(
        "INSERT INTO perdure_deliveries (key, attempt, token_hash, fence, payload_hash, applied,"
        " at_ms) SELECT key, attempt, token_hash, fence, payload_hash, 1, at_ms"
        " FROM perdure_deliveries WHERE key = 'w-plain/plain'"
    )
    damage.breaks(38)


def test_an_effect_was_asked_for_with_another_payload(damage):
    damage.in_ledger(
        "UPDATE perdure_deliveries SET payload_hash = 'ab' WHERE number ="
        " (SELECT max(number) FROM perdure_deliveries WHERE key = 'w-by-hand/by-hand')"
    )
    damage.breaks(38)


def test_the_receiver_has_forgotten_a_key(damage):
    damage.in_ledger("DELETE FROM perdure_effects WHERE key = 'w-plain/plain'")
    damage.breaks(38)


def test_an_effect_was_applied_under_a_token_that_was_never_granted(damage):
    damage.in_ledger(
        "UPDATE perdure_deliveries SET token_hash = hex(zeroblob(16)) WHERE key = 'w-plain/plain'"
    )
    damage.breaks(40)


def test_an_effect_was_applied_by_an_attempt_that_never_was(damage):
    damage.in_ledger("UPDATE perdure_deliveries SET attempt = 3 WHERE key = 'w-plain/plain'")
    damage.breaks(40)


def test_an_effect_is_of_a_workflow_that_nobody_knows(damage):
    damage.in_ledger("UPDATE perdure_deliveries SET key = 'w-x/a' WHERE key = 'w-plain/plain'")
    damage.in_ledger("UPDATE perdure_effects SET key = 'w-x/a' WHERE key = 'w-plain/plain'")
    damage.breaks(40)


def test_an_effect_was_applied_under_a_fence_that_was_over(damage):
    damage.in_ledger(
        "UPDATE perdure_deliveries SET fence = 9, applied = 0 WHERE number ="
        " (SELECT min(number) FROM perdure_deliveries WHERE key = 'w-by-hand/by-hand')"
    )
    damage.in_ledger(
        "UPDATE perdure_deliveries SET applied = 1 WHERE number ="
        " (SELECT max(number) FROM perdure_deliveries WHERE key = 'w-by-hand/by-hand')"
    )
    damage.breaks(42)


def test_rows_of_no_execution_are_told_in_one_line_however_many_they_are(damage):
    damage.sql(
        "CREATE TEMP TABLE strays AS SELECT events.* FROM events JOIN executions USING (seq)"
        " WHERE workflow_id = 'w-plain'"
    )
    [(count,)] = damage.sql("SELECT count(*) FROM strays")
    assert count > 2
    damage.sql("UPDATE strays SET seq = 99999")
    damage.sql("INSERT INTO events SELECT * FROM strays")
    [violation] = damage.audit().violations
    assert str(violation) == f"invariant 11, events: {count} rows belong to no execution"
