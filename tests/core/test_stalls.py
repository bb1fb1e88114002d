"""Time in which history stood still is not held against those whom it could not hear."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.ids import Session, seal
from perdure.core.lease_keeping import LeaseKeeping
from perdure.core.lease_table import HISTORY_SILENT_MS, LeaseTable
from perdure.core.links import LeaseTerms, Sync
from perdure.core.records import HeartbeatRecorded, LeaseGranted
from perdure.core.stalls import FREE_MS, Stalls
from tests.core.ledger_rig import Rig

NODE, LOCAL = "node.1", Session("node.1", 1)
STALE = "FAILED_PRECONDITION"


# --- how long it was ----------------------------------------------------------------
def turn(stalls: Stalls, woke_ms: int, work_ms: int, at_most_ms: int | None, waited_ms: int) -> int:
    stalls.waits(woke_ms, 0)
    stalls.wakes(woke_ms)
    stalls.waits(woke_ms + work_ms, at_most_ms)
    return stalls.wakes(woke_ms + work_ms + waited_ms)


@pytest.mark.parametrize(
    ("work_ms", "at_most_ms", "waited_ms", "grown_ms"),
    [
        (FREE_MS, 100, 0, 0),
        (FREE_MS + 1, 100, 0, 1),
        (30_000, 100, 100, 30_000 - FREE_MS),  # A sync that took half a minute.
        (0, 100, 100, 0),
        (0, 100, 100 + FREE_MS, 0),
        (0, 100, 5_100, 5_000 - FREE_MS),  # Stopped while it waited, or its machine slept.
        (200, 100, 200, 50),
        (0, None, 60_000, 0),  # Nothing was to be done.
        (FREE_MS + 7, None, 60_000, 7),
    ],
)
def test_a_stall_is_what_work_and_waiting_took_beyond_their_time(
    work_ms, at_most_ms, waited_ms, grown_ms
):
    stalls = Stalls(1_000)
    assert turn(stalls, 10_000, work_ms, at_most_ms, waited_ms) == grown_ms
    assert stalls.sum_ms == 1_000 + grown_ms


def test_who_never_says_when_its_work_ended_has_no_stalls():
    stalls = Stalls()
    assert [stalls.wakes(now_ms) for now_ms in (0, 10_000, 20_000)] == [0, 0, 0]


# --- what history does about it -----------------------------------------------------
@pytest.fixture
def rig():
    return Rig()


def stall(rig, ms):
    rig.now_ms += ms
    rig.ledger.stall_ms += ms


def expire(rig):
    return rig.ask(c.ExpireLease(rig.address()))


def test_a_lease_expires_later_by_what_history_stood_still_since_its_grant(rig):
    stall(rig, 9_000)  # Before its grant: it has had nothing to fear from that.
    rig.schedule(heartbeat_ms=1_000)
    rig.grant()
    stall(rig, 5_000)
    assert expire(rig) == c.Refusal(STALE, "too early", 15_000)
    rig.now_ms = 14_999
    assert isinstance(expire(rig), c.Refusal)
    rig.now_ms = 15_000
    assert isinstance(expire(rig), c.Done)
    assert rig.activity().last_failure.type == "HeartbeatTimeout"


def test_a_heartbeat_counts_from_when_it_was_judged_and_its_answer_bears_the_moved_deadline(rig):
    rig.schedule(heartbeat_ms=1_000, start_to_close_ms=60_000)
    rig.grant()
    stall(rig, 5_000)
    beat = c.RecordHeartbeat(rig.token(), 1, None, False)
    assert rig.ask(beat) == c.Deadline(6_000)
    [recorded] = rig.records()
    assert isinstance(recorded, HeartbeatRecorded)
    assert (recorded.deadline_ms, recorded.stall_ms) == (6_000, 5_000)
    stall(rig, 2_000)
    assert rig.ask(beat) == c.Deadline(8_000)
    assert expire(rig) == c.Refusal(STALE, "too early", 8_000)


def test_the_attempts_own_time_moves_too_and_stays_moved_over_a_heartbeat(rig):
    rig.schedule(heartbeat_ms=1_000, start_to_close_ms=4_000)
    rig.grant()
    stall(rig, 5_000)
    rig.ask(c.RecordHeartbeat(rig.token(), 1, None, False))
    assert rig.activity().lease.attempt_deadline_ms == 9_000
    rig.now_ms = 9_000
    assert rig.ask(c.CompleteActivity(rig.token(), None)) == c.Done()


def test_a_report_that_lay_there_while_history_stood_still_is_in_time(rig):
    rig.schedule(start_to_close_ms=4_000)
    rig.grant()
    stall(rig, 30_000)
    assert rig.ask(c.CompleteActivity(rig.token(), None)) == c.Done()


def test_the_callers_own_deadline_is_not_held_back(rig):
    rig.schedule(start_to_close_ms=4_000, schedule_to_close_ms=5_000)
    rig.grant()
    stall(rig, 30_000)
    assert expire(rig) == c.Done()
    assert "a" not in rig.execution().activities


def test_timers_are_not_held_back(rig):
    rig.ask(rig.start())
    rig.ask(rig.step(c.StartTimer(1, 1_000)))
    stall(rig, 1_000)
    assert rig.ask(c.FireTimer("w", 1)) == c.Done()


def test_each_commit_row_bears_the_sum_and_a_new_history_goes_on_from_it(rig):
    rig.schedule(heartbeat_ms=20_000)
    stall(rig, 700)
    rig.grant()
    [granted] = rig.records()
    assert isinstance(granted, LeaseGranted)
    assert granted.stall_ms == 700
    rig.open()
    rows = rig.store.reader().commits(0, 100)
    assert [row.stall_ms for row in rows[-2:]] == [700, 700]
    assert rig.opened.stall_ms == 700


# --- what the lease keeper does about it ------------------------------------------------
def test_the_lease_keeper_proposes_an_expiry_no_sooner_than_history_would_take_it(history):
    proposed = []
    table = LeaseTable(history.key, lambda *asked: proposed.append(asked[0]), lambda *_: None)
    history.listeners.append(lambda n, at, name, records: table.apply(name, at, records[0]))
    history.schedule(heartbeat_ms=1_000)
    address = history.grant()
    table.history_beats(3_000, 4_000)
    table.check(4_999)
    assert proposed == []
    table.check(5_000)
    assert proposed == [c.ExpireLease(address)]


def test_what_lingers_when_the_lease_keeper_itself_stood_still_lingers_no_more(history):
    proposed = []
    table = LeaseTable(
        history.key, lambda *asked: proposed.append(asked[0]), lambda *_: None, linger_ms=20
    )
    history.listeners.append(lambda n, at, name, records: table.apply(name, at, records[0]))
    history.schedule(heartbeat_ms=1_000)
    history.grant()
    table.check(2_000)
    table.disturbed(7_000)
    table.check(7_999)
    assert proposed == []
    table.check(8_000)
    table.check(8_020)
    assert len(proposed) == 1


@pytest.fixture
def told(history):
    """What a worker hears of leases that were moved: call it with how long ago history was heard
    last, and by how much its stalls have grown.
    """

    def ask(silent_ms: int, grown_ms: int = 0):
        said = []
        mind = LeaseKeeping(
            history.key,
            NODE,
            lambda *_: None,
            lambda _, one: said.append(one),
            lambda *_: 0,
        )
        mind.load(history.open_state(), history.now_ms)
        mind.table.history_beats(grown_ms, history.now_ms - silent_ms)
        address = history.address
        message = Sync("w", (), (), (), 1, 1, (seal(address, history.key),), (), 0, sent_ms=77)
        mind.sync(LOCAL, message, history.now_ms)
        mind.step(history.n, history.now_ms)
        assert all(isinstance(one, LeaseTerms) for one in said)
        return [(one.sent_ms, *one.leases[0][1:]) for one in said]

    history.schedule(heartbeat_ms=2_000, start_to_close_ms=10_000)
    history.address = history.grant(session=LOCAL)
    return ask


def test_a_worker_is_told_of_moved_leases_in_answer_to_its_sync_and_else_of_none(history, told):
    history.now_ms += 500
    assert told(0) == []
    assert told(HISTORY_SILENT_MS) == []
    assert told(0, grown_ms=3_000) == [(77, 4_500, 12_500)]


def test_while_history_is_silent_leases_last_on_as_far_as_nobody_will_end_them_before(
    history, told
):
    history.now_ms += 1_900
    assert told(HISTORY_SILENT_MS + 1_500) == [(77, 1_600, 8_100)]
    history.now_ms += 60_000
    assert told(HISTORY_SILENT_MS + 60_000) == [(77, 100, 100)]
    assert told(HISTORY_SILENT_MS + 90_000) == [(77, 2_000, 2_000)]
