from __future__ import annotations

from supervisors.child_spec import ChildSpec, SupervisorSpec
from supervisors.children import Child, State, describe

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
