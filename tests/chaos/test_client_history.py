from __future__ import annotations

import threading

import pytest

from chaos.auditor.findings import Findings
from chaos.auditor.histories import read
from chaos.client_history import Recorder, RecordingClient
from perdure import errors, values, wire
from perdure.operations import start_args

START = start_args("Type", (1,), {}, "w", "r", "queue")


@pytest.mark.parametrize(
    ("outcome", "heard"),
    [
        ({}, ("ok", None)),
        (errors.WorkflowFailed("it failed"), ("ok", "WORKFLOW_FAILED")),
        (errors.AlreadyExists("taken"), ("refused", "ALREADY_EXISTS")),
        (errors.FailedPrecondition("stale"), ("refused", "FAILED_PRECONDITION")),
        (errors.Unavailable("nobody"), ("unknown", "UNAVAILABLE")),
        (errors.ResourceExhausted("full"), ("unknown", "RESOURCE_EXHAUSTED")),
        (errors.Internal("bug"), ("unknown", "INTERNAL")),
    ],
)
def test_what_a_client_hears_is_ok_refused_or_unknown(outcome, heard):
    recorder = Recorder()
    recorder.end(recorder.begin("c", START, 5), outcome, 9, n=3)
    [one] = recorder.history().operations
    assert (one.outcome, one.code) == heard
    assert (one.client, one.op, one.t0_ms, one.t1_ms, one.n) == ("c", "StartWorkflow", 5, 9, 3)


def test_the_digest_is_the_one_that_a_store_keeps():
    recorder = Recorder()
    recorder.begin("c", START, 0)
    [one] = recorder.history().operations
    payload = wire.MSGPACK.payload(START.input, "input")
    assert one.digest == values.digest(payload, "Type", "queue").hex()
    assert (one.workflow_id, one.request_id) == ("w", "r")


def test_a_call_under_way_is_unknown_and_is_written_at_the_end(tmp_path):
    path = tmp_path / "h.jsonl"
    recorder = Recorder(path, all_clients=True)
    recorder.end(recorder.begin("c", wire.GetResult("w"), 1), {}, 2)
    recorder.begin("c", START, 3)
    assert [one.outcome for one in recorder.history().operations] == ["ok", "unknown"]
    assert [one.outcome for one in read(path, Findings()).operations] == ["ok"]
    recorder.close()
    recorder.close()
    history = read(path, Findings())
    assert [one.outcome for one in history.operations] == ["ok", "unknown"]
    assert history.all_clients


def test_threads_may_share_a_recorder(tmp_path):
    path = tmp_path / "h.jsonl"
    recorder = Recorder(path)

    def work(name):
        for _ in range(50):
            recorder.end(recorder.begin(name, START, 1), {}, 2)

    threads = [threading.Thread(target=work, args=(f"c{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    assert len(read(path, Findings()).operations) == 200


def test_a_recording_client_notes_what_it_was_not_answered(tmp_path):
    recorder, now = Recorder(), iter(range(10, 20))
    client = RecordingClient(
        recorder, "c", data_dir=tmp_path, timeout_ms=20, now_ms=lambda: next(now)
    )
    with client, pytest.raises(errors.Unavailable):
        client.start_workflow("Type", workflow_id="w")
    [one] = recorder.history().operations
    assert (one.outcome, one.t0_ms, one.t1_ms) == ("unknown", 10, 11)
