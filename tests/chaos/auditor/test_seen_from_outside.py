"""What clients were told and what receivers did, held against a whole store."""

from __future__ import annotations

import msgspec
import pytest

from chaos.auditor import Delivery, History, Ledger, audit_data_dir
from chaos.auditor.findings import Findings
from chaos.auditor.histories import Header, Operation, line_of, read
from chaos.auditor.sqlite import NoStore
from perdure.store import backup


def start(workflow_id, *, at_ms=1_000, request_id="r", **fields):
    """A start that a client was told is done."""
    known = {"client": "c2", "op": "StartWorkflow", "outcome": "ok", "digest": None}
    return Operation(
        **known
        | {"workflow_id": workflow_id, "request_id": request_id, "t0_ms": at_ms, "t1_ms": at_ms}
        | fields
    )


def told(patient, *operations, drop=None):
    """The patient's history with these in addition, and without the starts of `drop`."""
    kept = [
        one
        for one in patient.history.operations
        if one.workflow_id != drop or one.op != "StartWorkflow"
    ]
    return History(name="h", operations=[*kept, *operations], all_clients=True)


def found(patient, history):
    return audit_data_dir(patient.data, [patient.ledger], [history]).invariants


def test_operations_are_counted_by_outcome(patient):
    history = told(patient, start("w-x", outcome="unknown"))
    report = audit_data_dir(patient.data, [], [history])
    operations = report.operations
    assert (operations.refused, operations.unknown) == (1, 1)
    assert operations.ok == len(history.operations) - 2
    assert report.violations == ()


def test_an_acknowledged_start_that_is_not_there_breaks_5(patient):
    assert found(patient, told(patient, start("w-lost"))) == {5}


def test_an_acknowledged_start_that_another_request_made_breaks_6(patient):
    assert found(patient, told(patient, start("w-plain", request_id="another"))) == {6}


def test_one_request_that_was_accepted_with_other_arguments_breaks_6(patient):
    again = start("w-plain", request_id="request-w-plain", digest="00" * 16)
    assert found(patient, told(patient, again)) == {6}


def test_the_same_start_again_breaks_nothing(patient):
    again = start("w-plain", request_id="request-w-plain")
    assert found(patient, told(patient, again)) == set()


def test_a_workflow_that_nobody_asked_for_breaks_7(patient):
    assert found(patient, told(patient, drop="w-plain")) == {7}


def test_histories_of_some_clients_say_nothing_about_phantoms(patient):
    history = told(patient, drop="w-plain")
    history.all_clients = False
    report = audit_data_dir(patient.data, [], [history])
    assert report.violations == ()
    assert any("invariant 7" in note for note in report.not_checked)


def test_a_refused_start_that_was_done_breaks_8(patient):
    refused = start("w-plain", request_id="request-w-plain", outcome="refused", code="NOT_FOUND")
    assert found(patient, told(patient, refused, drop="w-plain")) == {7, 8}


def test_a_refused_start_that_another_client_was_granted_breaks_nothing(patient):
    refused = start("w-plain", request_id="r-mine", outcome="refused", code="ALREADY_EXISTS")
    assert found(patient, told(patient, refused)) == set()


def test_an_unknown_start_may_be_there_or_not(patient):
    there = start("w-plain", request_id="request-w-plain", outcome="unknown")
    absent = start("w-nowhere", outcome="unknown")
    assert found(patient, told(patient, there, absent)) == set()


def test_a_redrive_that_was_acknowledged_and_left_no_record_breaks_9(patient):
    redrive = start("w-parked", op="RedriveDeadLetter", activity_id="parked")
    assert found(patient, told(patient, redrive)) == {9}


def test_a_redrive_that_was_refused_and_done_breaks_8(patient):
    fields = {"op": "RedriveDeadLetter", "activity_id": "redriven", "request_id": "r-redrive"}
    refused = start("w-redriven", outcome="refused", code="NOT_FOUND", **fields)
    history = told(patient, refused)
    history.operations = [
        one
        for one in history.operations
        if one.op != "RedriveDeadLetter" or one.outcome == "refused"
    ]
    assert found(patient, history) == {8}


def test_a_result_that_the_log_does_not_have_breaks_9(patient):
    result = start("w-held", op="GetResult", request_id=None)
    assert found(patient, told(patient, result)) == {9}


def test_a_commit_that_was_told_of_and_is_not_there_breaks_9(patient):
    result = start("w-plain", op="GetResult", request_id=None, n=100_000)
    assert found(patient, told(patient, result)) == {9}


def test_a_client_that_hears_of_an_older_commit_later_breaks_14(patient):
    heard = [
        start("w-plain", op="GetResult", request_id=None, n=n, at_ms=at_ms)
        for n, at_ms in ((90, 1_000), (80, 2_000))
    ]
    assert found(patient, told(patient, *heard)) == {14}


def test_a_start_before_one_that_was_acknowledged_earlier_breaks_14(patient):
    history = told(patient)
    last = max(one.t1_ms for one in history.operations)
    history.operations = [
        msgspec.structs.replace(one, t0_ms=last + 5, t1_ms=last + 6)
        if (one.op, one.workflow_id) == ("StartWorkflow", "w-retried")
        else one
        for one in history.operations
    ]
    assert found(patient, history) == {14}


# --- ledgers ------------------------------------------------------------------
def ledger(**fields):
    row = Delivery("w-plain/plain", 1, None, None, None, True)
    return Ledger(**{"name": "l", "deliveries": [row]} | fields)


def test_a_completed_activity_without_its_effect_breaks_39(patient):
    report = audit_data_dir(patient.data, [ledger(covers=frozenset({"step"}))])
    assert report.invariants == {39}
    # All others of the type that completed are without one.
    assert report.found[39] == len({one.where for one in report.violations}) > 5


def test_a_ledger_that_covers_nothing_says_nothing_about_what_is_absent(patient):
    assert audit_data_dir(patient.data, [ledger()]).violations == ()


def test_a_receipt_that_is_not_the_result_breaks_39(patient):
    bare = ledger(
        deliveries=[Delivery("w-timer/slow", 1, None, None, None, True)],
        covers=frozenset({"step"}),
        receipts={"w-timer/slow": "another"},
    )
    report = audit_data_dir(patient.data, [bare])
    assert any("returned 'slow by 1'" in one.what for one in report.violations)


def test_an_attempt_that_was_not_seen_to_return_breaks_30(patient):
    bare = ledger(
        covers=frozenset({"step"}),
        deliveries=[Delivery("w-timer/slow", 1, None, None, None, True)],
        receipts={"w-timer/slow": "slow by 1"},
        returned=set(),
    )
    assert 30 in audit_data_dir(patient.data, [bare]).invariants


def test_deliveries_that_came_after_the_log_was_read_may_be_under_newer_leases(patient):
    newer = Delivery("w-new/a", 1, None, None, None, True)
    assert audit_data_dir(patient.data, [ledger(deliveries=[newer])]).invariants == {40}
    assert audit_data_dir(patient.data, [ledger(deliveries=[newer], leased=0)]).violations == ()


def test_tokens_of_before_a_restore_are_not_known_and_later_ones_are(damage):
    damage.in_ledger("UPDATE perdure_deliveries SET at_ms = 1")
    damage.in_ledger("UPDATE perdure_deliveries SET at_ms = ? WHERE key = 'w-plain/plain'", 2**50)
    backup.rekey(damage.db, b"k" * 32)
    report = damage.audit()
    assert {(one.invariant, one.where) for one in report.violations} == {(40, "w-plain/plain")}
    assert "leases of effects from before the store was restored" in report.not_checked


def test_commands_that_were_set_aside_are_spoken_of(damage):
    damage.sql("CREATE TABLE asides (digest BLOB)")
    damage.sql("INSERT INTO asides VALUES (zeroblob(16))")
    assert "1 commands were set aside: see perdure aside" in damage.audit().not_checked


def test_a_run_that_settled_with_open_leases_breaks_22_and_37(patient):
    report = audit_data_dir(patient.data, settled=True)
    assert report.invariants == {22, 37}
    assert {one.where.partition("/")[0] for one in report.violations} == {"w-held"}


# --- files ----------------------------------------------------------------------
def test_a_history_file_is_read_as_it_was_written(tmp_path):
    one = start("w", n=3)
    path = tmp_path / "h.jsonl"
    path.write_bytes(line_of(Header(all_clients=True)) + line_of(one))
    history = read(path, Findings())
    assert (history.operations, history.all_clients) == ([one], True)


def test_a_last_line_that_is_cut_off_is_left_out_and_said(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_bytes(line_of(Header()) + line_of(start("w")) + line_of(start("v"))[:-9])
    notes = Findings()
    assert [one.workflow_id for one in read(path, notes).operations] == ["w"]
    assert list(notes.notes) == ["h.jsonl: its last line is cut off"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}x",
        b'{"format": "another", "version": 1}\n',
        line_of(Header(version=2)),
        line_of(Header()) + b"what\n" + line_of(start("w")),
    ],
)
def test_what_is_no_history_is_refused(tmp_path, raw):
    path = tmp_path / "h.jsonl"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"h\.jsonl"):
        read(path, Findings())


def test_where_there_is_no_store_or_ledger_that_is_said(tmp_path, patient):
    with pytest.raises(NoStore, match="no store"):
        audit_data_dir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.db"):
        audit_data_dir(patient.data, [tmp_path / "nothing.db"])
