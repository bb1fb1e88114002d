"""The simulator: what it runs, that it repeats, and that it sees."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import msgspec
import pytest

from chaos.sim import bank, command, draw, machine, run, shrink
from chaos.sim.bugs import Bug
from chaos.sim.plan import Fault, Flow, Knobs, Plan, Step, read, write

QUIET = Plan(
    seed=7,
    flows=tuple(
        Flow(id=f"w{n}", shape=shape, nap_ms=50, steps=(Step(id="a1", fails=1), Step(id="a2")))
        for n, shape in enumerate(("chain", "fan", "race"))
    ),
    knobs=Knobs(fault_ms=500),
)


def test_a_quiet_node_does_all_its_work():
    result = run.run_plan(QUIET)
    assert result.violations == ()
    assert result.operations["ok"] >= 6
    assert result.records > 20


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("world", "seeds", "processes"),
    [
        *(("small", f"{at}:{at + 500}", 1) for at in range(0, 2_000, 500)),
        ("fast", "0:100", 2),
        ("engine", "0:40", 1),
        ("engine", "40:80", 1),
    ],
)
def test_many_seeds_violate_nothing(world, seeds, processes):
    found = list(command.results(command.seeds_of(seeds), world=world, processes=processes))
    assert [(one.seed, one.violations[0]) for one in found if one.violations] == []
    assert [one.seed for one in found if not one.operations.get("ok")] == []


@pytest.mark.parametrize("world", ["engine", "fast"])
def test_a_seed_has_one_trace_and_another_seed_another(world):
    traces = [run.run_seed(seed, world=world).trace for seed in (3, 3, 4)]
    assert traces[0] == traces[1] != traces[2]


def test_a_plan_survives_its_file(tmp_path):
    plan = draw.plan_of(5)
    write(plan, tmp_path / "plan.json")
    assert read(tmp_path / "plan.json") == plan


TWIN = """
import json
from chaos.sim import run
print(json.dumps([run.run_seed(1).trace, run.run_seed(12, world="fast").trace]))
"""


@pytest.mark.process
def test_hash_seed_time_zone_locale_and_directory_change_nothing(tmp_path):
    def traces(**changes: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", TWIN],
            cwd=tmp_path,
            env={**os.environ, **changes},
            capture_output=True,
            check=True,
            timeout=50,
        )
        return json.loads(done.stdout)

    other = traces(PYTHONHASHSEED="12345", TZ="Asia/Kathmandu", LC_ALL="tr_TR.UTF-8")
    assert other == [run.run_seed(1).trace, run.run_seed(12, world="fast").trace]


@pytest.mark.parametrize("seed", [0, 6, 18])
def test_the_store_on_a_disk_does_what_the_one_in_memory_does(seed):
    plan = draw.plan_of(seed)
    memory, disk = (
        run.run_plan(shrink.replace(plan, knobs=shrink.replace(plan.knobs, store=store)))
        for store in ("memory", "sqlite")
    )
    assert disk.violations == ()
    assert disk.trace == memory.trace


def test_whoever_asks_for_the_real_time_in_a_simulation_is_stopped():
    import perdure.clock

    with machine.simulated({}, None), pytest.raises(machine.RealWorld, match="clock_gettime_ns"):
        perdure.clock.boottime_ms()
    assert perdure.clock.boottime_ms() > 0


def test_an_answer_before_the_sync_is_seen():
    faults = tuple(Fault("history", "commit", n, "unsynced_lost") for n in (2, 3, 4))
    plan = Plan(
        seed=1,
        flows=tuple(Flow(id=f"w{n}", start_ms=50 * n, steps=(Step(id="a1"),)) for n in range(4)),
        faults=faults,
        bug=Bug.ACK_BEFORE_SYNC,
        knobs=Knobs(fault_ms=2_000),
    )
    found = run.run_plan(plan).invariants
    assert found & {4, 5, 9}


def test_a_failing_plan_is_made_small_and_still_fails_in_the_same_way():
    failing = (
        plan
        for seed in range(100)
        if run.run_plan(
            plan := draw.plan_of(seed, world="fast", bug=Bug.LEASES_NOT_REBUILT)
        ).violations
    )
    plan = next(failing)
    invariant = run.run_plan(plan).violations[0].invariant
    looks = itertools.count()  # A clock: each look is one candidate.
    small = shrink.Shrinker(plan, time_box_s=60, clock=lambda: float(next(looks))).shrink().plan
    assert run.run_plan(small).violations[0].invariant == invariant
    assert len(msgspec.json.encode(small)) < len(msgspec.json.encode(plan))
    assert len(small.faults) <= 2


def test_a_plan_that_fails_is_drawn(capsys, tmp_path):
    seed = bank.search(Bug.LEASES_NOT_REBUILT, 50).seed
    assert seed is not None
    plan = draw.plan_of(seed, bug=Bug.LEASES_NOT_REBUILT)
    write(plan, tmp_path / "plan.json")
    assert command.main(["replay", str(tmp_path / "plan.json")]) == 1
    drawn = capsys.readouterr().out
    assert "keeper" in drawn
    assert "commit" in drawn
    assert "invariant 36" in drawn
