"""A rolling restart, step by step: what is stopped when, and what whoever asked is told."""

from __future__ import annotations

import msgspec
import pytest
import structlog

from supervisors.boots import Boots
from supervisors.child_spec import processes
from supervisors.children import Child, State
from supervisors.config import NodeConfig
from supervisors.control import ReloadRequest
from supervisors.reload import Reload
from supervisors.tree import node_tree


class Root:
    """What stands around a Reload: children that do what they are told at the test's word."""

    def __init__(self, workers: int = 2) -> None:
        self.config = NodeConfig(apps=("shop",), workers=workers, cwd="/srv")
        tree = node_tree(workers=workers, grace_ms=10)
        self.children = {spec.id: Child(spec) for spec in processes(tree)}
        for child in self.children.values():
            if not child.spec.on_demand:
                self.serves(child.spec.id)
        self.boots = Boots(self.config, "node.1", "d", "r", ())
        self.told: list[dict] = []
        self.stopped: list[str] = []
        self.started: list[str] = []
        self.reload = Reload(
            self.children,
            self,
            self.boots,
            structlog.get_logger(),
            lambda child: self.stopped.append(child.spec.id),
            lambda child: self.started.append(child.spec.id),
        )

    def answer_reload(self, request: ReloadRequest, step: dict) -> None:
        self.told.append(step)

    def serves(self, name: str) -> None:
        child = self.children[name]
        child.state, child.ready_at_ms = State.RUNNING, 1
        child.handle = type("Handle", (), {"pid": 7})()

    def ask(self, is_running: bool = True, **order) -> None:
        raw = msgspec.json.encode(order)
        self.reload.asked(ReloadRequest((b"me",), raw), is_running=is_running)

    def ends(self, name: str, *, was_ready: bool = True) -> bool:
        child = self.children[name]
        if not was_ready:
            child.ready_at_ms = None
        return self.reload.ended(child)

    def comes_back(self, name: str) -> None:
        self.serves(name)
        self.reload.ready(self.children[name])

    @property
    def events(self) -> list[str]:
        return [step["event"] for step in self.told]


def test_the_next_is_not_touched_before_the_one_before_serves() -> None:
    root = Root()
    root.ask(what="workers")
    assert root.stopped == ["worker-1"]
    assert root.ends("worker-1") is True
    assert root.stopped == ["worker-1"]
    root.comes_back("worker-1")
    assert root.stopped == ["worker-1", "worker-2"]
    assert root.ends("worker-2")
    root.comes_back("worker-2")
    assert root.events == ["stopping", "ready", "stopping", "ready", "done"]
    assert root.told[-1]["replaced"] == ["worker-1", "worker-2"]


def test_a_replacement_that_does_not_come_to_serve_leaves_the_others_as_they_are() -> None:
    root = Root()
    root.ask(what="workers", apps=("shop_v2",), build="v2")
    assert root.boots.application == (("shop_v2",), "v2")
    root.ends("worker-1")
    root.reload.said("worker-1", "no module shop_v2")
    assert root.ends("worker-1", was_ready=False) is False
    assert root.stopped == ["worker-1"]
    assert root.told[-1] == {
        "event": "failed",
        "message": "worker-1 can't begin: no module shop_v2; not touched: worker-2",
        "replaced": [],
    }
    # It is started again as what has served before.
    assert root.boots.application == (("shop",), "")
    root.ask(what="worker-2")
    assert root.stopped == ["worker-1", "worker-2"]


def test_what_waits_for_its_restart_is_started_at_once() -> None:
    root = Root()
    child = root.children["worker-1"]
    child.handle, child.ready_at_ms, child.state = None, None, State.WAITING
    root.ask(what="workers")
    assert (root.started, root.stopped) == (["worker-1"], [])
    root.comes_back("worker-1")
    assert root.stopped == ["worker-2"]


def test_one_actor_alone() -> None:
    root = Root()
    root.ask(what="scheduler")
    assert root.ends("dlq") is False
    assert root.ends("scheduler") is True
    root.comes_back("scheduler")
    assert root.told[-1] == {"event": "done", "replaced": ["scheduler"]}
    assert root.stopped == ["scheduler"]


def test_workers_on_demand_are_retired_with_the_others() -> None:
    root = Root(workers=1)
    root.children["quarantine-1"].state = State.RUNNING
    root.ask(what="workers")
    root.ends("worker-1")
    root.comes_back("worker-1")
    assert root.stopped == ["worker-1", "quarantine-1"]


@pytest.mark.parametrize(
    ("order", "is_running", "message"),
    [
        ({"what": "nobody"}, True, "there is no 'nobody' here; there are: history, lease_keeper"),
        ({"what": "workers"}, False, "the node is starting or stopping"),
        ({"which": 1}, True, "no order to reload"),
    ],
)
def test_what_can_not_be_done_is_refused_with_the_reason(order, is_running, message) -> None:
    root = Root()
    root.ask(is_running, **order)
    assert message in root.told[-1]["message"]
    assert not root.stopped


def test_one_at_a_time_and_none_while_the_node_stops() -> None:
    root = Root()
    root.ask(what="workers")
    root.ask(what="dlq")
    assert root.told[-1]["message"] == "worker-1 is being replaced at present: one at a time"
    root.reload.given_up("the node stops")
    assert root.told[-1] == {"event": "failed", "message": "the node stops", "replaced": []}
    assert root.ends("worker-1") is False


def test_looking_says_what_is_served() -> None:
    root = Root(workers=1)
    root.ask(what="look")
    (look,) = root.told
    assert look["apps"] == ("shop",)
    assert (look["cwd"], look["workers"]) == ("/srv", ["worker-1"])
