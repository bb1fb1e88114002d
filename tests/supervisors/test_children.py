from __future__ import annotations

from supervisors.child_spec import ChildSpec, SupervisorSpec
from supervisors.children import SILENT_MS, Child, State, describe
from supervisors.liveness import Liveness

SPEC = ChildSpec(id="gateway", start="m:f")
TREE = SupervisorSpec(id="node", children=(SPEC,))


def test_workers_from_elsewhere_stand_below_remote_without_a_pid_until_their_gateway_ends():
    gateway = Child(SPEC)

    def below():
        children = {"gateway": gateway}
        return describe(TREE, children, state=State.RUNNING, started_wall_ms=0)["children"]

    assert [each["name"] for each in below()] == ["gateway"]
    gateway.remote_workers = ("box-1", "box-2")
    remote = below()[-1]
    assert (remote["name"], remote["pid"], remote["kind"]) == ("remote", None, "supervisor")
    assert [
        (each["name"], each["kind"], each["pid"], each["state"]) for each in remote["children"]
    ] == [("box-1", "worker", None, "running"), ("box-2", "worker", None, "running")]
    assert set(remote["children"][0]) == set(below()[0])
    gateway.reset()
    assert [each["name"] for each in below()] == ["gateway"]


def test_who_does_not_answer_is_shown_as_silent_until_it_does():
    history = Child(SPEC, state=State.RUNNING)
    history.liveness = Liveness(limit_ms=60_000, now_ms=0)

    def shown():
        tree = describe(TREE, {"gateway": history}, state=State.RUNNING, started_wall_ms=0)
        return tree["children"][0]["state"]

    for now_ms in range(1_000, SILENT_MS, 1_000):
        history.liveness.look(now_ms=now_ms, in_disk_sleep=False)
        assert shown() == "running"
    history.liveness.look(now_ms=SILENT_MS, in_disk_sleep=False)
    assert shown() == "silent"
    history.liveness.heard()
    assert shown() == "running"
