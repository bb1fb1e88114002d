"""One exam for every store, last part: what is over its time goes, and what must stay stays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.core.chain import GENESIS, next_hash
from perdure.core.state import Status
from perdure.store.protocol import EpochLost, Retention, StoreError, WorkflowFilter
from tests.contract.conftest import (
    BOOT_MS,
    WALL_MS,
    Line,
    completed_event,
    execution,
    started_event,
    stored,
)

KEEP_MS = 1_000
LONG_MS = 1_000_000


def line(store, retention_ms: int | None = KEEP_MS, audit_ms: int | None = None) -> Line:
    found = Line(store)
    found.writer.retain(Retention(retention_ms, audit_ms))
    return found


def start(at: Line, *workflow_ids: str) -> None:
    fields: dict[str, Any] = {"request_id": "r", "last_event_id": 4, "digest": b"digest"}
    at.commit(
        started=[execution(it, **fields) for it in workflow_ids],
        events=[stored(started_event(), it) for it in workflow_ids],
    )


def close(at: Line, *workflow_ids: str) -> None:
    """They end at the line's instant."""
    ended = [
        msgspec.structs.replace(
            execution(it, request_id="r", last_event_id=4, digest=b"digest"),
            status=Status.COMPLETED,
            closed_ms=at.now_ms,
            task_reason="because",
        )
        for it in workflow_ids
    ]
    event = completed_event()
    at.commit(
        touched=ended,
        events=[stored(event, it, closes="a", request_id="redo") for it in workflow_ids],
    )


def listed(store, **where: Any) -> list[str]:
    found, _ = store.reader().list_workflows(WorkflowFilter(**where), 100, None)
    return [one.workflow_id for one in found]


def removed(store) -> list[str]:
    return listed(store, status=Status.REMOVED)


# --- workflows ---------------------------------------------------------------
def test_a_closed_workflow_is_removed_when_its_time_is_over_and_not_before(store):
    at = line(store)
    start(at, "w")
    close(at, "w")
    at.now_ms += KEEP_MS - 1
    assert at.writer.tidy(at.now_ms) is False
    assert listed(store) == ["w"]
    at.now_ms += 1
    assert at.writer.tidy(at.now_ms) is True
    assert at.writer.tidy(at.now_ms) is False
    assert listed(store) == []


def test_a_workflow_that_a_reset_has_opened_again_has_its_time_from_its_next_end_on(store):
    at = line(store)
    start(at, "w")
    close(at, "w")
    at.now_ms += KEEP_MS - 1
    opened = execution("w", request_id="r", last_event_id=5, digest=b"digest")
    at.commit(touched=[opened], resets=[("w", 1)])
    at.now_ms += KEEP_MS
    at.writer.tidy(at.now_ms)
    assert listed(store) == ["w"]
    ended = {"status": Status.COMPLETED, "closed_ms": at.now_ms}
    at.commit(touched=[msgspec.structs.replace(opened, **ended)])
    at.writer.tidy(at.now_ms + KEEP_MS - 1)
    assert listed(store) == ["w"]
    at.writer.tidy(at.now_ms + KEEP_MS)
    assert (listed(store), removed(store)) == ([], ["w"])


def test_what_stays_is_a_tombstone_with_request_id_and_digest(store):
    at = line(store)
    start(at, "w", "other")
    close(at, "w")
    assert at.writer.closing_event("w", "a") is not None
    at.writer.tidy(at.now_ms + KEEP_MS)
    reader = store.reader()
    expected = execution(
        "w",
        request_id="r",
        digest=b"digest",
        last_event_id=4,
        status=Status.REMOVED,
        closed_ms=at.now_ms,
    )
    assert reader.execution("w") == at.writer.load("w") == expected
    assert not expected.is_open
    assert reader.events("w", 0, 10, 10_000) == []
    assert (reader.event("w", 1), at.writer.event("w", 4)) == (None, None)
    assert at.writer.closing_event("w", "a") is None
    assert at.writer.requested_event("w", "redo") is None
    assert len(reader.events("other", 0, 10, 10_000)) == 1


def test_the_id_of_a_removed_workflow_stays_taken(store):
    at = line(store)
    start(at, "w")
    close(at, "w")
    at.writer.tidy(at.now_ms + KEEP_MS)
    with pytest.raises(StoreError, match="contradicts"):
        start(at, "w")


def test_open_workflows_are_never_removed(store):
    at = line(store)
    start(at, "w")
    assert at.writer.tidy(at.now_ms + 10 * KEEP_MS) is False
    assert [one.workflow_id for one in store.reader().open_state()[1]] == ["w"]


def test_a_commit_removes_twice_as_many_as_it_closes_the_oldest_first(store):
    at = line(store)
    ids = [f"w{number}" for number in range(7)]
    start(at, *ids)
    for workflow_id in ids[:5]:
        close(at, workflow_id)
        at.now_ms += 1
    at.now_ms += KEEP_MS
    close(at, "w5")
    assert removed(store) == ["w1", "w0"]
    at.commit()  # It closes none.
    assert removed(store) == ["w1", "w0"]
    close(at, "w6")
    assert removed(store) == ["w3", "w2", "w1", "w0"]


def test_a_store_at_rest_gets_there_as_well(store):
    at = line(store)
    ids = [f"w{number}" for number in range(250)]
    start(at, *ids)
    close(at, *ids)
    rounds = 0
    while at.writer.tidy(at.now_ms + KEEP_MS):
        rounds += 1
    assert len(removed(store)) == 100  # A page of the list.
    assert listed(store) == []
    assert rounds == 3, "a part at a time, so that nobody waits long"
    assert store.reader().newest() == at.n, "it is no commit of the log"


def test_what_closes_later_is_found_later(store):
    at = line(store)
    start(at, "first", "second")
    close(at, "first")
    at.now_ms += KEEP_MS // 2
    close(at, "second")
    assert at.writer.tidy(at.now_ms + KEEP_MS // 2) is True
    assert listed(store) == ["second"]
    assert at.writer.tidy(at.now_ms + KEEP_MS) is True
    assert listed(store) == []


def test_without_being_told_a_store_keeps_all(store):
    at = Line(store)
    start(at, "w")
    close(at, "w")
    assert at.writer.tidy(at.now_ms + 10**12) is False
    assert listed(store) == ["w"]


def test_what_was_removed_stays_removed_over_another_opening(store):
    at = line(store)
    start(at, "w", "v")
    close(at, "w", "v")
    at.now_ms += KEEP_MS
    close_none = at.writer.tidy(at.now_ms)
    assert close_none
    again = Line(store, "history.2", WALL_MS + 2 * KEEP_MS, boot_id="boot-2")
    again.writer.retain(Retention(KEEP_MS))
    assert again.writer.tidy(again.now_ms) is False
    assert again.writer.load("w").status is Status.REMOVED
    start(again, "new")
    assert listed(store) == ["new"]


def test_who_lost_its_epoch_removes_nothing(store):
    at = line(store)
    start(at, "w")
    close(at, "w")
    Line(store, "history.2")
    with pytest.raises(EpochLost):
        at.writer.tidy(at.now_ms + KEEP_MS)
    assert listed(store) == ["w"]


# --- the log -----------------------------------------------------------------
def test_old_commits_go_from_the_front_and_leave_their_hash(store):
    at = line(store, None, LONG_MS)
    for _ in range(5):
        at.commit()
    before = store.reader().commits(0, 100)
    assert store.reader().base() == (0, GENESIS)
    at.now_ms += LONG_MS // 2
    at.commit()
    at.now_ms += LONG_MS // 2
    at.commit()  # It adds one and takes two.
    reader = store.reader()
    assert reader.base() == (2, before[1].hash)
    rows = reader.commits(0, 100)
    assert [row.n for row in rows] == [3, 4, 5, 6, 7, 8]
    assert at.writer.tidy(at.now_ms) is True
    rows = store.reader().commits(0, 100)
    assert [row.n for row in rows] == [7, 8]
    n, link = store.reader().base()
    assert (n, link) == (6, before[5].hash)
    for row in rows:
        assert row.previous_hash == link
        link = next_hash(link, row.body)
        assert row.hash == link
    assert store.reader().commits(7, 5) == rows[1:]
    assert store.reader().commits(8, 5) == []


def test_the_newest_commit_is_kept_however_old(store):
    at = line(store, None, LONG_MS)
    at.commit()
    later = at.now_ms + 10 * LONG_MS
    assert at.writer.tidy(later) is True
    assert at.writer.tidy(later) is False
    assert [row.n for row in store.reader().commits(0, 10)] == [at.n]
    at.now_ms = later
    at.commit()
    assert store.reader().newest() == at.n


def test_a_pruned_store_opens_with_the_number_that_follows(store):
    at = line(store, None, LONG_MS)
    at.commit()
    at.writer.tidy(at.now_ms + LONG_MS)
    again = Line(store, "history.2")
    assert (again.opened.epoch, again.opened.n) == (2, at.n + 1)
    assert store.reader().commits(0, 10)[-1].previous_hash == at.hash


# --- a clock that leaps ----------------------------------------------------------
DAY_MS = 86_400_000
YEARS_MS = 3_650 * DAY_MS


def boot(store, at: Line, later_ms: int, boot_id: str, **keeps: Any) -> Line:
    """Another boot of the machine, whose wall clock says that so much has passed."""
    at.writer.close()
    found = Line(store, wall_ms=at.now_ms + later_ms, boot_id=boot_id)
    found.writer.retain(Retention(**keeps))
    return found


def test_a_boot_with_a_clock_that_is_years_ahead_removes_nothing(store):
    at = line(store, 7 * DAY_MS)
    start(at, "w")
    close(at, "w")
    at = boot(store, at, YEARS_MS, "another", retention_ms=7 * DAY_MS)
    assert at.writer.tidy(at.now_ms) is False
    at.now_ms += 6 * DAY_MS - 1
    assert at.writer.tidy(at.now_ms) is False
    at.now_ms += 1  # With the one day of the leap that counts.
    assert at.writer.tidy(at.now_ms) is True
    assert removed(store) == ["w"]


def test_the_leap_is_remembered_over_further_boots(store):
    at = line(store, 7 * DAY_MS)
    start(at, "w")
    close(at, "w")
    at = boot(store, at, YEARS_MS, "another", retention_ms=7 * DAY_MS)
    start(at, "v")
    close(at, "v")
    at = boot(store, at, 2 * YEARS_MS, "a third", retention_ms=7 * DAY_MS)
    at.now_ms += 5 * DAY_MS
    assert at.writer.tidy(at.now_ms) is True
    assert removed(store) == ["w"]
    at.now_ms += DAY_MS
    assert at.writer.tidy(at.now_ms) is True
    assert sorted(removed(store)) == ["v", "w"]


def test_a_day_between_two_boots_counts(store):
    at = line(store, DAY_MS)
    start(at, "w")
    close(at, "w")
    at = boot(store, at, DAY_MS, "another", retention_ms=DAY_MS)
    assert at.writer.tidy(at.now_ms) is True


def test_all_time_within_one_boot_counts(store):
    at = line(store, 7 * DAY_MS)
    start(at, "w")
    close(at, "w")
    at.writer.close()
    at = Line(store, boot_ms=BOOT_MS + 7 * DAY_MS)
    at.writer.retain(Retention(7 * DAY_MS))
    assert at.writer.tidy(at.now_ms) is True


def test_commits_of_before_a_leap_are_not_pruned_for_it(store):
    at = line(store, None, 3 * DAY_MS)
    start(at, "w")
    n = at.n
    at = boot(store, at, YEARS_MS, "another", audit_ms=3 * DAY_MS)
    assert at.writer.tidy(at.now_ms) is False
    at.now_ms += 2 * DAY_MS
    assert at.writer.tidy(at.now_ms) is True
    assert store.reader().base()[0] >= n
