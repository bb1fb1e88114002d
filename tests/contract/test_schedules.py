"""What every store promises of schedules."""

from __future__ import annotations

import pytest

from perdure.core.schedule_state import Recent, Schedule, Spec
from tests.contract.conftest import Line


def schedule(schedule_id: str = "nightly", **fields) -> Schedule:
    return Schedule(
        schedule_id, Spec("Report", "default", b"m\x90", ("0 3 * * *",)), 5, 6, 7, **fields
    )


def test_a_schedule_comes_back_as_it_was_put_and_is_replaced_by_the_next(store):
    line = Line(store)
    whole = schedule(
        paused=True,
        reason="why",
        running={"w": 9},
        buffered=[1, 2],
        recent=[Recent(1, 2, "started", "time", "w")],
        requests=["r"],
        changed_n=2,
    )
    line.commit(schedules=[whole])
    reader = store.reader()
    assert reader.schedule("nightly") == whole
    assert line.writer.schedule("nightly") == whole
    line.commit(schedules=[schedule()])
    assert reader.schedule("nightly") == schedule()
    assert reader.schedule("other") is None


def test_schedules_are_listed_by_id_in_pages_without_deleted_ones(store):
    line = Line(store)
    line.commit(schedules=[schedule(each) for each in ("d", "a", "c", "b")])
    line.commit(schedules=[schedule("b", deleted=True)])
    reader = store.reader()
    assert [one.schedule_id for one in reader.schedules("", 2)] == ["a", "c"]
    assert [one.schedule_id for one in reader.schedules("a", 2)] == ["c", "d"]
    assert [one.schedule_id for one in reader.schedules("", -1)] == ["a", "c", "d"]
    assert reader.schedule("b").deleted, "a repeated request would not be recognised"


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_put_is_no_longer_the_callers(store, times):
    line = Line(store)
    one = schedule()
    for _ in range(times):
        line.commit(schedules=[one])
    one.paused = True
    assert not store.reader().schedule("nightly").paused
