"""What a power loss may leave is worked out to the sector, and the store bears all of it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from chaos.drill_kit import Arena, Options
from chaos.drills import powerloss
from chaos.drills.powerloss_check import Checker, is_refused
from chaos.drills.powerloss_run import record
from chaos.drills.powerloss_states import State, applied, lied, moments, sectors, states
from chaos.faults.recording_vfs import (
    DATABASE,
    JOURNAL,
    LOG,
    WITNESS,
    Begun,
    Delete,
    Durable,
    Sync,
    Truncate,
    Witnessed,
    Write,
)
from perdure.store import sqlite_schema

WORKFLOWS = 2


def left_by(ops, most=10_000):
    """Every content of DATABASE and LOG that the operations may leave, by moment."""
    return [
        {
            (state.files.get(DATABASE), state.files.get(LOG))
            for state in states(moment, most, random.Random(0))
        }
        for moment in moments(ops)
    ]


# --- the states ----------------------------------------------------------------
def test_what_was_synced_is_there_and_of_the_rest_every_subset():
    ops = [Write(LOG, 0, b"a"), Sync(LOG), Write(LOG, 1, b"b"), Write(LOG, 2, b"c")]
    first, synced, second, third = left_by(ops)
    assert first == {(None, b"a")}
    assert synced == {(None, b"a")}
    assert second == {(None, b"ab")}
    assert third == {(None, b"a\0c"), (None, b"abc")}


def test_a_sync_of_one_file_says_nothing_of_another():
    ops = [Write(DATABASE, 0, b"d"), Write(LOG, 0, b"l"), Sync(LOG)]
    assert left_by(ops)[-1] == {(None, b"l"), (b"d", b"l")}


def test_the_last_write_is_torn_at_sectors_and_those_before_it_are_not():
    before, last = b"b" * 1_024, b"l" * 1_024
    found = left_by([Write(LOG, 0, before), Write(LOG, 0, last)])[-1]
    halves = {(one, other) for one in (b"b", b"l") for other in (b"b", b"l")} - {(b"b", b"b")}
    assert {(None, one * 512 + other * 512) for one, other in halves} <= found
    # Without the first write, what the torn one did not write is empty, or past the end.
    assert (None, bytes(512) + b"l" * 512) in found
    assert (None, b"l" * 512) in found
    assert len(found) == 5


def test_sectors_are_those_of_the_disk_wherever_the_write_begins():
    parts = list(sectors(Write(LOG, 500, b"x" * 600)))
    assert [(part.offset, len(part.data)) for part in parts] == [(500, 12), (512, 512), (1_024, 76)]
    whole = {LOG: b"-" * 1_200}
    assert applied(whole, parts) == applied(whole, [Write(LOG, 500, b"x" * 600)])


def test_a_truncation_is_pending_like_a_write():
    ops = [Write(LOG, 0, b"abc"), Sync(LOG), Truncate(LOG, 1), Write(LOG, 1, b"X")]
    assert left_by(ops)[-1] == {(None, b"aX"), (None, b"aXc")}


def test_a_journal_is_gone_when_its_directory_was_synced_and_perhaps_before():
    begin = [Write(JOURNAL, 0, b"j"), Sync(JOURNAL)]

    def journals(*ops):
        last = list(moments([*begin, *ops]))[-1]
        return {state.files.get(JOURNAL) for state in states(last, 100, random.Random(0))}

    assert journals(Delete(JOURNAL, synced=True)) == {None}
    assert journals(Delete(JOURNAL, synced=False), Write(LOG, 0, b"l")) == {b"j", None}
    assert journals(Delete(JOURNAL, synced=False), Write(LOG, 0, b"l"), Sync(LOG)) == {None}


def test_what_may_be_acknowledged_counts_from_when_the_store_says_that_it_is_durable():
    ops = [Begun(1, b"h"), Write(LOG, 0, b"1"), Sync(LOG), Durable(1, b"h"), Write(LOG, 1, b"2")]
    assert [moment.floor for moment in moments(ops)] == [0, 0, 1, 1]


def test_each_half_of_the_witness_is_as_it_was_at_some_moment():
    old, new = b"o" * 1_024, b"n" * 1_024
    ops = [Witnessed(old), Witnessed(new), *(Write(LOG, n, b"x") for n in range(6))]
    found = {
        (state.files[WITNESS][:1], state.files[WITNESS][-1:])
        for moment in moments(ops)
        if moment.at > 0
        for state in states(moment, 100, random.Random(0))
    }
    assert found == {(one, other) for one in (b"o", b"n") for other in (b"o", b"n")}


@pytest.mark.parametrize("most", [1, 5, 40, 500])
def test_where_there_are_too_many_as_many_as_asked_for_are_sampled_none_twice(most):
    ops = [Write(LOG, n * 512, bytes([n + 1]) * 512) for n in range(20)]
    last = list(moments(ops))[-1]
    assert last.possible == 2**19
    found = [state.files[LOG] for state in states(last, most, random.Random(1))]
    assert len(found) == len(set(found)) == most
    assert all(data[19 * 512] == 20 for data in found), "the last write is in each of them"


# --- the run -------------------------------------------------------------------
@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return record(tmp_path_factory.mktemp("recorded"), 1, WORKFLOWS)


def test_the_recorded_run_has_checkpoints_new_beginnings_of_the_log_and_restarts(run):
    synced = {op.file for op in run.ops if isinstance(op, Sync)}
    assert {DATABASE, LOG} <= synced
    begun_anew = [
        op for op in run.ops if isinstance(op, Write) and (op.file, op.offset) == (LOG, 0)
    ]
    assert len(begun_anew) > 3
    assert any(isinstance(op, Truncate) for op in run.ops)
    assert sum(isinstance(op, Durable) for op in run.ops) == run.newest == len(run.hashes)
    # An epoch is no commit that was begun by the engine; one for each start.
    assert run.newest - sum(isinstance(op, Begun) for op in run.ops) == 1 + WORKFLOWS // 2


# --- opening -------------------------------------------------------------------
def test_the_store_bears_every_loss_of_power(run, tmp_path):
    checker = Checker(tmp_path, run)
    found = [
        text
        for moment in list(moments(run.ops))[::17]
        for state in states(moment, 2, random.Random(moment.at))
        for text in checker.check(state)
    ]
    assert found == []
    assert checker.contents > 10


def lies(run):
    first = {}
    for moment in moments(run.ops):
        first.setdefault(moment.floor, moment)
    floors = sorted(first)[1:]
    return [lied(first[one], first[other]) for one, other in pairwise(floors)]


def test_a_disk_that_forgets_what_it_has_synced_is_found_out_by_the_witness(run, tmp_path):
    assert all(is_refused(state, tmp_path) for state in lies(run)[::7])


def test_without_the_witness_the_check_itself_sees_that_a_commit_is_lost(run, tmp_path):
    state = lies(run)[20]
    files = {name: data for name, data in state.files.items() if name != WITNESS}
    [text] = Checker(tmp_path, run).check(State(state.at, state.floor, files))
    assert "acknowledged commits are lost" in text


def test_a_damaged_page_is_seen(run, tmp_path):
    last = list(moments(run.ops))[-1]
    files = dict(last.durable)
    data = bytearray(files[DATABASE])
    data[5 * 4_096 : 6 * 4_096] = bytes(4_096)
    files = {DATABASE: bytes(data)}
    [text] = Checker(tmp_path, run).check(State(last.at, 0, files))
    assert "malformed" in text or "damaged" in text


def test_a_store_that_does_not_sync_its_commits_is_found_out(tmp_path, monkeypatch):
    lazy = tuple(
        (name, "OFF", 0) if name == "synchronous" else (name, value, expected)
        for name, value, expected in sqlite_schema.WRITER_PRAGMAS
    )
    monkeypatch.setattr(sqlite_schema, "WRITER_PRAGMAS", lazy)
    (tmp_path / "run").mkdir()
    (tmp_path / "state").mkdir()
    run = record(tmp_path / "run", 1, 1)
    monkeypatch.undo()
    checker = Checker(tmp_path / "state", run)
    every = [it for it in moments(run.ops) if it.floor > 2]
    found = []
    for moment in every[::5]:
        for state in states(moment, 1, random.Random(0)):
            found += checker.check(state)
    assert any("lost" in text for text in found), found


def test_a_drill_without_time_is_inconclusive(tmp_path):
    arena = Arena(Options(limit_s=0), tmp_path, name="powerloss", live=False)
    assert not powerloss.run(arena)
    assert arena.violations == []
