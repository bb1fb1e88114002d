"""One thing wrong in each log, leases included: found under its number, and nothing else with it.

Each is a copy of one whole store, edited with plain SQL; where the log is edited the hash chain is
made right again, so that only the intended rule is broken.
"""

from __future__ import annotations

import shutil

import msgspec

from chaos.auditor.names import TAGS


def n_of(damage, text):
    """The numbers of the commits whose only record is of this kind."""
    found = []
    for n, raw in damage.sql("SELECT n, body FROM commits ORDER BY n"):
        groups = msgspec.msgpack.decode(raw)[3]
        if len(groups) == 1 and [one[0] for one in groups[0][1]] == [TAGS[text]]:
            found.append(n)
    return found


def put(at, value):
    """A change that sets one field of the record."""
    return lambda record: [[*record[:at], value, *record[at + 1 :]]]


def plus(at, more):
    """A change that adds to one field of the record."""
    return lambda record: [[*record[:at], record[at] + more, *record[at + 1 :]]]


def test_the_patient_was_well_before(damage):
    report = damage.audit(pages=True)
    assert report.violations == ()
    assert report.not_checked == ()


# --- the log ------------------------------------------------------------------


def test_a_commit_is_missing_in_the_middle(damage):
    damage.sql("DELETE FROM commits WHERE n = ?", n_of(damage, "HeartbeatRecorded")[0])
    damage.breaks(1)


def test_two_commits_bear_numbers_too_high(damage):
    damage.sql("UPDATE commits SET n = n + 1000 WHERE n = (SELECT max(n) FROM commits)")
    damage.breaks(1)


def test_a_hash_is_another(damage):
    damage.sql("UPDATE commits SET hash = zeroblob(32) WHERE n = 40")
    damage.breaks(2)


def test_a_body_was_exchanged_for_one_that_reads_as_well(damage):
    n = n_of(damage, "HeartbeatRecorded")[0]
    raw = damage.sql("SELECT body FROM commits WHERE n = ?", n)[0][0]
    body = msgspec.msgpack.decode(raw)
    body[3][0][1][0][6] = None
    damage.sql("UPDATE commits SET body = ? WHERE n = ?", msgspec.msgpack.encode(body), n)
    damage.breaks(2)


def test_an_epoch_was_never_opened(damage):
    def change(body):
        return body[:4] if body[1] == 2 else body

    damage.edit_log(change)
    damage.breaks(3)


def test_the_old_writer_wrote_on_after_the_new_one_began(damage):
    last = damage.sql("SELECT max(n) FROM commits")[0][0]

    def change(body):
        body[1] = 1 if body[0] == last - 1 else body[1]
        return body

    damage.edit_log(change)
    damage.breaks(3)


def test_an_older_store_was_put_back_beside_its_witness(damage):
    shutil.copy(damage.patient.data / "witness", damage.data)
    last = damage.sql("SELECT max(n) FROM commits")[0][0]
    damage.sql("DELETE FROM commits WHERE n = ?", last)
    # The last commit was a heartbeat; the row goes back with it.
    row = damage.sql(
        "SELECT seq, body FROM activities JOIN executions USING (seq) WHERE workflow_id = 'w-held'"
    )
    body = msgspec.msgpack.decode(row[0][1])
    body[14][3] = body[14][2] + 5_000
    body[15], body[16], body[17] = None, 0, None
    damage.sql(
        "UPDATE activities SET body = ? WHERE seq = ?", msgspec.msgpack.encode(body), row[0][0]
    )
    damage.breaks(9)


def test_the_log_ends_before_its_newest_epoch(damage):
    damage.sql("INSERT INTO epochs VALUES (3, 'history.later', 'b', 0, 0, 0)")
    damage.breaks(9)


def test_a_record_is_of_another_instant_than_its_commit(damage):
    damage.edit("w-held", "ActivityTaskScheduled", plus(2, -1))
    damage.breaks(10)


def test_a_commit_cannot_be_read(damage):
    n = n_of(damage, "HeartbeatRecorded")[0]

    def change(body):
        body[3] = "?" if body[0] == n else body[3]
        return body

    damage.edit_log(change)
    damage.breaks(13)


def test_a_record_is_of_a_kind_that_nobody_knows(damage):
    damage.edit("w-held", "HeartbeatRecorded", put(0, 99))
    damage.breaks(13)


def test_a_record_has_a_text_where_a_number_belongs(damage):
    damage.edit("w-held", "HeartbeatRecorded", put(5, "soon"))
    damage.breaks(13)


def test_a_page_of_the_database_is_overwritten(damage):
    damage.db.execute("PRAGMA journal_mode = DELETE")
    root = damage.sql("SELECT rootpage FROM sqlite_schema WHERE name = 'timers'")[0][0]
    with (damage.data / "perdure.db").open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 64)
    damage.breaks(13)


def test_the_clock_went_back(damage):
    last = damage.sql("SELECT max(n) FROM commits")[0][0]

    def change(body):
        if body[0] == last:
            body[2] = body[3][0][1][0][1] = 5
            body[3][0][1][0][7] = 5_005
        return body

    damage.edit_log(change)
    damage.breaks(21)


# --- leases and attempts ------------------------------------------------------


def test_a_second_lease_is_granted_while_one_is_live(damage):
    damage.edit("w-held", "LeaseGranted", lambda one: [one, [*one[:4], one[4] + 1, *one[5:]]])
    damage.breaks(15)


def test_a_grant_was_skipped(damage):
    damage.edit("w-held", "LeaseGranted", plus(4, 5))
    damage.breaks(16)


def test_a_failure_is_reported_by_another_worker(damage):
    damage.edit("w-retried", "RetryScheduled", put(9, "somebody"))
    damage.breaks(16)


def test_the_token_of_an_earlier_attempt_completes_the_activity(damage):
    damage.edit("w-retried", "ActivityTaskCompleted", plus(5, -1))
    damage.breaks(17)


def test_a_token_that_was_never_granted_completes_the_activity(damage):
    damage.edit("w-retried", "ActivityTaskCompleted", plus(5, 7))
    damage.breaks(18)


def test_an_attempt_is_left_out(damage):
    damage.edit("w-held", "LeaseGranted", plus(5, 1))
    damage.breaks(19)


def test_an_attempt_that_was_charged_is_repeated(damage):
    damage.edit("w-retried", "LeaseGranted", plus(5, -1), nth=1)
    damage.breaks(19)


def test_what_was_handed_back_counts_as_the_restart_of_a_node(damage):
    damage.edit("w-beat", "LeaseReleased", put(7, 2))
    damage.breaks(19)


def test_it_is_tried_more_often_than_its_policy_allows(damage):
    def once(record):
        options = [*record[6]]
        options[0] = [*options[0][:3], 2, *options[0][4:]]
        return [[*record[:6], options]]

    damage.edit("w-retried", "ActivityTaskScheduled", once)
    damage.breaks(20)


def test_it_is_parked_before_its_last_attempt(damage):
    def more(record):
        options = [*record[6]]
        options[0] = [*options[0][:3], 9, *options[0][4:]]
        return [[*record[:6], options]]

    damage.edit("w-parked", "ActivityTaskScheduled", more)
    damage.breaks(20)


def test_what_is_not_retryable_is_tried_again(damage):
    damage.edit(
        "w-retried",
        "RetryScheduled",
        lambda one: [[*one[:6], {**one[6], "non_retryable": True}, *one[7:]]],
    )
    damage.breaks(20)


def test_what_is_retryable_fails_for_good(damage):
    damage.edit(
        "w-final",
        "ActivityTaskFailed",
        lambda one: [[*one[:7], {**one[7], "non_retryable": False}, *one[8:]]],
    )
    damage.breaks(20)


def test_a_lease_expires_early(damage):
    def change(body):
        for group in body[3]:
            for one in group[1]:
                if group[0] == "w-beat" and one[0] == TAGS["RetryScheduled"]:
                    body[2], one[1], one[8] = body[2] - 1, one[1] - 1, one[8] - 1
        return body

    damage.edit_log(change)
    damage.breaks(21)


def test_a_lease_expires_as_if_history_had_not_stood_still(damage):
    damage.sql("UPDATE commits SET stall_ms = 5 WHERE n > (SELECT max(n) FROM commits) - 25")
    report = damage.audit()
    assert report.invariants == {21}
    assert "HeartbeatTimeout 5 ms before the lease is over" in report.violations[0].what


def test_the_sum_of_stalls_falls(damage):
    damage.sql("UPDATE commits SET stall_ms = 5 WHERE n = 3")
    damage.breaks(21)


def test_a_lease_is_granted_for_too_short_a_time(damage):
    damage.edit("w-held", "LeaseGranted", plus(8, -1))
    damage.breaks(21)


def test_a_lease_ends_twice(damage):
    damage.edit("w-retried", "RetryScheduled", lambda one: [one, one])
    damage.breaks(22)


def test_a_heartbeat_goes_back(damage):
    damage.edit("w-beat", "HeartbeatRecorded", put(5, 1), nth=1)
    damage.breaks(23)


def test_the_details_that_the_next_attempt_gets_are_not_the_last(damage):
    row = damage.sql(
        "SELECT seq, body FROM activities JOIN executions USING (seq) WHERE workflow_id = 'w-held'"
    )[0]
    body = msgspec.msgpack.decode(row[1])
    body[15] = b"m\x01"
    damage.sql("UPDATE activities SET body = ? WHERE seq = ?", msgspec.msgpack.encode(body), row[0])
    damage.breaks(24)


def test_a_retry_waits_longer_than_its_backoff(damage):
    damage.edit(
        "w-retried", "RetryScheduled", lambda one: [[*one[:7], 101, one[1] + 101, *one[9:]]], nth=0
    )
    damage.breaks(25)


def test_a_retry_waits_less_than_the_failure_asked_for(damage):
    damage.edit(
        "w-retried", "RetryScheduled", lambda one: [[*one[:7], 9, one[1] + 9, *one[9:]]], nth=0
    )
    damage.breaks(25)


def test_a_retry_is_due_at_another_time_than_was_drawn(damage):
    damage.edit("w-retried", "RetryScheduled", plus(8, -1))
    damage.breaks(25)


def test_an_attempt_is_granted_before_it_is_due(damage):
    damage.edit(
        "w-retried", "RetryScheduled", lambda one: [[*one[:7], 100, one[1] + 100, *one[9:]]]
    )
    damage.breaks(26)


def test_a_timer_fires_early(damage):
    damage.edit("w-timer", "TimerStarted", plus(4, 1))
    damage.breaks(27)


def test_a_timer_fires_twice(damage):
    damage.edit("w-timer", "TimerFired", lambda one: [one, [one[0], one[1] + 1, *one[2:]]])
    damage.breaks(27)


def test_a_timer_is_cancelled_as_if_it_had_fired(damage):
    damage.edit("w-beat", "TimerCancelled", put(4, True))
    damage.breaks(27)
