from __future__ import annotations

import queue

import pytest

from supervisors.child_spec import ChildSpec, SupervisorSpec
from supervisors.supervision import Exit
from supervisors.supervisor import (
    Begin,
    Exited,
    GaveUp,
    Shutdown,
    StartProcess,
    StopProcess,
    Supervisor,
    SupervisorStopped,
)

TREE = SupervisorSpec(
    id="node",
    children=(
        SupervisorSpec(id="core", children=(ChildSpec(id="a", start="m:f"),)),
        SupervisorSpec(id="workers", children=(ChildSpec(id="w", start="m:f"),)),
    ),
)


class Root:
    """What the supervisors ask for, in order."""

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue = queue.SimpleQueue()
        self.top = Supervisor.start(TREE, self.asked.put)
        self.top.tell(Begin())
        starts = [self.next(), self.next()]
        self.supervisors = {start.id: start.supervisor for start in starts}
        assert all(isinstance(start, StartProcess) for start in starts)

    def next(self):
        return self.asked.get(timeout=30)

    def died(self, name, at_ms=0):
        exit_ = Exit(id=name, exit_code=1, ready_at_ms=None, at_ms=at_ms)
        self.supervisors[name].tell(Exited(exit_))


@pytest.fixture
def root():
    root = Root()
    yield root
    for ref in (*root.supervisors.values(), root.top):
        if ref.is_alive():
            ref.stop()


def test_a_stop_goes_from_right_to_left_and_ends_with_the_top(root):
    root.top.tell(Shutdown())
    assert root.next() == StopProcess("w")
    root.died("w")
    assert root.next() == StopProcess("a")
    root.died("a")
    assert root.next() == SupervisorStopped("node")


def test_a_supervisor_that_gives_up_is_heard_at_the_top_with_its_reason(root):
    for at_ms in range(5):
        root.died("a", at_ms)
        assert root.next().id == "a"
    root.died("a", 5)
    told = root.next()
    assert isinstance(told, GaveUp)
    assert told.id == "node"
    assert "core: 6 crashes" in told.reason


def test_a_supervisor_that_raises_ends_the_node_and_not_itself_in_silence(root, caplog):
    root.supervisors["a"].tell("no message of ours")
    told = root.next()
    assert told.id == "core"
    assert "crashed" in told.reason
    assert "Unhandled exception" in caplog.text
