"""One exam for every store: what is found by its parent and its search attributes, at all times."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.core.ids import execution_id
from perdure.core.more import More
from perdure.core.start import Parent
from perdure.core.state import Status
from perdure.store.protocol import Retention, WorkflowFilter
from tests.contract.conftest import Line, closed, execution


def one(workflow_id: str, parent: str = "", **attributes: Any):
    of = Parent(parent, workflow_id) if parent else None
    return execution(workflow_id, more=More(parent=of, attributes=attributes))


def found(store, *, parent: str | None = None, limit: int = 100, **attributes: Any) -> list[str]:
    where = WorkflowFilter(attributes=tuple(attributes.items()), parent=parent)
    return [it.workflow_id for it in store.reader().list_workflows(where, limit, None)[0]]


def test_attributes_that_change_are_found_as_they_are_by_then(store):
    line = Line(store)
    line.commit(started=[one("w", customer="c-7", paid=False), execution("plain")])
    assert found(store, customer="c-7") == found(store, paid=False) == ["w"]
    line.commit(touched=[one("w", customer="c-8")])
    assert found(store, customer="c-8") == ["w"]
    assert found(store, customer="c-7") == found(store, paid=False) == []
    line.commit(touched=[msgspec.structs.replace(execution("plain"), more=More())])
    line.commit(touched=[one("plain", customer="c-8")])
    assert found(store, customer="c-8") == ["plain", "w"]
    line.commit(touched=[closed(one("w", customer="c-9"))])
    assert (found(store, customer="c-8"), found(store, customer="c-9")) == (["plain"], ["w"])


LONG = "x" * 300
VALUES = {
    "one": (1, [1, 1.0], [True, "1", 2]),
    "true": (True, [True], [1, False, "True"]),
    "zero": (-0.0, [0, 0.0], [False, ""]),
    "text": ("n1.0", ["n1.0"], [1, "n1"]),
    "empty": ("", [""], [0, False]),
    "much": (2**53, [2**53, float(2**53)], [2**53 - 1]),
    "long": (LONG, [LONG], [LONG + "y", LONG[:-1], LONG[:100]]),
}


@pytest.mark.parametrize(("value", "equal", "other"), VALUES.values(), ids=VALUES)
def test_a_value_is_found_by_what_equals_it_and_by_nothing_else(store, value, equal, other):
    Line(store).commit(started=[one("w", it=value)])
    assert [found(store, it=wanted) for wanted in equal] == [["w"]] * len(equal)
    assert [found(store, it=wanted) for wanted in other] == [[]] * len(other)


def test_all_that_is_asked_for_must_fit_and_pages_go_on(store):
    line = Line(store)
    for number in range(6):
        run = execution_id("p", 1 + number % 2)
        line.commit(started=[one(f"w{number}", run, customer="c", odd=bool(number % 2))])
    assert found(store, parent="p") == ["w5", "w4", "w3", "w2", "w1", "w0"]
    assert found(store, parent="p", customer="c", odd=True) == ["w5", "w3", "w1"]
    assert found(store, parent="q", customer="c") == found(store, odd=1) == []
    seen, page = [], None
    while True:
        where = WorkflowFilter(attributes=(("customer", "c"),), status="Running")
        some, page = store.reader().list_workflows(where, 4, page)
        seen += [it.workflow_id for it in some]
        if page is None:
            break
    assert seen == ["w5", "w4", "w3", "w2", "w1", "w0"]


def test_what_retention_has_removed_is_found_by_nothing(store):
    line = Line(store)
    line.writer.retain(Retention(1_000, None))
    line.commit(started=[one("w", "p", customer="c")])
    line.commit(touched=[closed(one("w", "p", customer="c"), Status.FAILED)])
    assert found(store, customer="c") == ["w"]
    line.now_ms += 10_000
    line.commit(started=[one("later", "p", customer="c")])
    while line.writer.tidy(line.now_ms):
        pass
    assert found(store, customer="c") == found(store, parent="p") == ["later"]
