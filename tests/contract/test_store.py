"""One exam for every store, first part: epochs, the log, and commits that are whole or absent."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.chain import GENESIS, next_hash
from perdure.core.limits import ASIDES_MAX
from perdure.core.records import CommitBody, decode_body
from perdure.store.protocol import AsideRow, Contradiction, EpochLost, StoreError
from tests.contract.conftest import (
    BOOT_MS,
    WALL_MS,
    Line,
    activity,
    closed,
    completed_event,
    execution,
    started_event,
    stored,
)


# --- epochs and their clock --------------------------------------------------
def test_opening_commits_an_epoch_that_names_its_incarnation(store):
    opened = Line(store, "history.abc").opened
    assert (opened.epoch, opened.n) == (1, 1)
    (row,) = store.reader().commits(0, 10)
    assert (row.n, row.epoch, row.hash) == (1, 1, opened.last_hash)
    assert decode_body(row.body) == CommitBody(1, 1, WALL_MS, (), opened="history.abc")


def test_a_reader_cannot_be_had_before_the_store_is_there(store):
    with pytest.raises(StoreError, match="no store"):
        store.reader()


def test_a_writer_commits_nothing_before_it_has_an_epoch(store):
    change = Line(store).change()
    with pytest.raises(StoreError, match="no epoch"):
        store.writer().commit(change)


def test_an_old_writer_loses_its_epoch_and_writes_nothing(store):
    old = Line(store)
    new = Line(store, "history.2")
    assert new.opened.epoch == 2
    # Even with a number and a link that would fit.
    change = old.change(
        n=new.n + 1, previous_hash=new.hash, hash=b"", started=[execution()], at_ms=new.now_ms
    )
    with pytest.raises(EpochLost):
        old.writer.commit(change)
    reader = store.reader()
    assert reader.newest() == new.n
    assert reader.execution("w") is None
    new.commit(started=[execution()])
    assert reader.execution("w") == execution()


def test_a_writer_that_has_failed_takes_nothing_more(store):
    line = Line(store)
    good = line.change()
    with pytest.raises(StoreError):
        line.writer.commit(line.change(n=line.n + 2))
    with pytest.raises(StoreError, match="has failed"):
        line.writer.commit(good)


def test_a_change_of_another_epoch_is_refused(store):
    line = Line(store)
    with pytest.raises(StoreError, match="names epoch 2"):
        line.writer.commit(line.change(epoch=2))
    assert store.reader().newest() == 1


def test_the_key_stays_the_same_over_reopening(store):
    first = Line(store).opened.key
    assert len(first) == 32
    assert Line(store).opened.key == first
    assert store.reader().key() == first


def test_the_clock_begins_at_the_wall_clock(store):
    opened = Line(store).opened
    assert opened.base_ms + BOOT_MS == WALL_MS


def test_within_one_boot_the_clock_carries_on_whatever_the_wall_clock_says(store):
    first = Line(store).opened
    for wall_ms in (WALL_MS - 3_600_000, WALL_MS + 3_600_000):
        again = Line(store, wall_ms=wall_ms, boot_ms=BOOT_MS + 700)
        assert again.opened.base_ms == first.base_ms
    assert store.reader().commits(2, 1)[0].at_ms == WALL_MS + 700


def test_after_another_boot_the_clock_does_not_go_back_with_the_wall_clock(store):
    line = Line(store)
    line.now_ms += 40_000
    line.commit()
    again = Line(store, wall_ms=WALL_MS - 3_600_000, boot_id="boot-2", boot_ms=10)
    assert again.now_ms == line.now_ms
    later = Line(store, wall_ms=WALL_MS + 3_600_000, boot_id="boot-3", boot_ms=10)
    assert later.now_ms == WALL_MS + 3_600_000


def test_a_boot_without_a_name_is_another_boot(store):
    Line(store, boot_id="")
    assert Line(store, boot_id="", boot_ms=7, wall_ms=WALL_MS + 9).now_ms == WALL_MS + 9


def test_a_boot_time_that_jumped_back_does_not_take_the_clock_back(store):
    Line(store)
    assert Line(store, boot_ms=1).now_ms == WALL_MS


# --- the log -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"n": 3}, "does not follow commit 1"),
        ({"n": 1}, "does not follow commit 1"),
        ({"previous_hash": GENESIS}, "does not link"),
        ({"hash": bytes(32)}, "not its body's"),
        ({"at_ms": WALL_MS - 1}, "before commit 1"),
    ],
)
def test_a_commit_that_does_not_follow_the_newest_is_refused(store, parts, message):
    line = Line(store)
    with pytest.raises(StoreError, match=message):
        line.writer.commit(line.change(started=[execution()], **parts))
    assert store.reader().newest() == 1
    assert store.reader().execution("w") is None


def test_the_log_is_dense_and_its_chain_holds_from_genesis_over_epochs(store):
    for name in ("history.1", "history.2"):
        line = Line(store, name)
        for _ in range(3):
            line.commit()
    rows = store.reader().commits(0, 100)
    assert [row.n for row in rows] == list(range(1, 9))
    link = GENESIS
    for row in rows:
        assert row.previous_hash == link
        link = next_hash(link, row.body)
        assert row.hash == link
    assert [row.epoch for row in rows] == [1] * 4 + [2] * 4


def test_commits_are_read_after_a_number_and_up_to_a_limit(store):
    line = Line(store)
    for _ in range(4):
        line.commit()
    reader = store.reader()
    assert [row.n for row in reader.commits(2, 2)] == [3, 4]
    assert reader.commits(5, 10) == []
    assert reader.newest() == 5


def test_whoever_wants_to_is_told_of_every_commit_once_it_is_durable(store):
    heard = []

    def tell(n: int, link: bytes) -> None:
        heard.append((n, link, store.reader().newest()))

    line = Line(store, tell=tell)
    opened = (1, line.hash, 1)
    line.commit()
    assert heard == [opened, (2, line.hash, 2)]


# --- atomicity ---------------------------------------------------------------
@pytest.mark.parametrize(
    "parts",
    [
        {"started": [execution("taken")]},
        {"started": [execution("new"), execution("new")]},
        {"events": [stored(started_event(), "taken")]},
        {"events": [stored(started_event(7), "taken"), stored(started_event(7), "taken")]},
        {"events": [stored(completed_event(9), "taken", closes="a")]},
        {"events": [stored(started_event(), "nobody")]},
        {"timers": [("taken", 1, WALL_MS)]},
        {"timers": [("taken", 2, WALL_MS), ("taken", 2, WALL_MS)]},
        {"activities": [("nobody", activity())]},
        {"touched": [execution("nobody")]},
        {"touched": [execution("ended", consumed=9)]},
    ],
)
def test_a_change_with_one_wrong_part_leaves_nothing(store, parts):
    line = Line(store)
    line.commit(
        started=[execution("taken"), execution("ended")],
        events=[stored(started_event(), "taken"), stored(completed_event(), "taken", closes="a")],
        timers=[("taken", 1, WALL_MS)],
    )
    line.commit(touched=[closed(execution("ended"))])
    good: dict[str, list[Any]] = {
        "started": [execution("good")],
        "touched": [execution("taken", consumed=5)],
        "events": [stored(started_event(), "good")],
        "activities": [("good", activity()), ("taken", activity())],
        "timers": [("good", 1, WALL_MS)],
        "timers_closed": [("taken", 1)],
    }
    change = line.change(**{name: rows + parts.get(name, []) for name, rows in good.items()})
    with pytest.raises(Contradiction):
        line.writer.commit(change)
    reader = store.reader()
    assert reader.newest() == 3
    assert reader.execution("good") is None
    assert reader.events("good", 0, 10, 1_000) == []
    assert reader.execution("taken") == execution("taken", timers={1: WALL_MS})
    assert len(reader.events("taken", 0, 10, 1_000)) == 2
    # Nothing happened, so the same writer goes on.
    line.commit(**good)
    assert reader.execution("good") == execution(
        "good", activities={"a": activity()}, timers={1: WALL_MS}
    )


# --- what was set aside --------------------------------------------------------
def aside(digest: bytes, at_ms: int = 5, error: str = "Bug: first") -> AsideRow:
    return AsideRow(digest, "GrantLease", "w", b"body", error, at_ms, at_ms)


def test_what_made_history_fail_is_kept_and_counted_when_it_comes_again(store):
    line = Line(store)
    assert store.reader().asides() == []
    line.writer.set_aside([aside(b"1"), aside(b"2")])
    line.writer.set_aside([aside(b"1", 9, "Bug: then")])
    assert store.reader().asides() == [
        aside(b"2"),
        AsideRow(b"1", "GrantLease", "w", b"body", "Bug: then", 5, 9, 2),
    ]
    line.commit()


def test_of_a_flood_of_what_makes_history_fail_the_first_are_kept(store):
    line = Line(store)
    line.writer.set_aside([aside(n.to_bytes(2, "big")) for n in range(ASIDES_MAX)])
    line.writer.set_aside([aside(b"new"), aside(bytes(2), 7)])
    kept = {row.digest: row.times for row in store.reader().asides()}
    assert (len(kept), b"new" in kept, kept[bytes(2)]) == (ASIDES_MAX, False, 2)


def test_who_lost_its_epoch_sets_nothing_aside(store):
    line = Line(store)
    Line(store, "history.2")
    with pytest.raises(StoreError):
        line.writer.set_aside([aside(b"1")])
    assert store.reader().asides() == []


# --- the end -----------------------------------------------------------------
def test_closing_twice_is_fine_and_nothing_goes_on_after_it(store):
    line = Line(store)
    change = line.change()
    reader = store.reader()
    for _ in range(2):
        line.writer.close()
        reader.close()
    with pytest.raises(StoreError):
        line.writer.commit(change)
    with pytest.raises(StoreError):
        reader.newest()
    assert store.reader().newest() == 1


def test_a_writer_has_one_epoch(store):
    line = Line(store)
    with pytest.raises(StoreError, match="another writer"):
        line.writer.open_epoch("history.2", WALL_MS, "boot-1", BOOT_MS)
