from __future__ import annotations

import pytest

from supervisors.child_spec import (
    ChildSpec,
    InvalidTree,
    Kind,
    Restart,
    SupervisorSpec,
    check_tree,
    processes,
)
from supervisors.intensity import Intensity
from supervisors.tree import ACTORS, STOP_MAX_MS, WORKER_MARGIN_MS, node_tree


def child(name="a", start="m:f", **options):
    return ChildSpec(id=name, start=start, **options)


def test_the_tree_of_a_node_is_valid_and_starts_history_first_and_workers_last():
    tree = node_tree(workers=2, grace_ms=5_000)
    check_tree(tree)
    names = [spec.id for spec in processes(tree)]
    assert names[0] == "history"
    quarantine = ["quarantine-1", "quarantine-2"]  # There only while they are wanted.
    assert names[-5:] == ["gateway", "worker-1", "worker-2", *quarantine]
    assert set(names[1:-5]) == {"lease_keeper", "scheduler", "dlq"}
    assert [spec.id for spec in processes(tree) if spec.on_demand] == quarantine


def test_an_orderly_stop_fits_into_ten_seconds_and_the_workers_grace():
    grace_ms = 7_000
    worker = list(processes(node_tree(workers=1, grace_ms=grace_ms)))[-1]
    assert worker.shutdown_ms == grace_ms + WORKER_MARGIN_MS
    assert sum(actor.shutdown_ms for actor in ACTORS) + worker.shutdown_ms < STOP_MAX_MS + grace_ms


def test_a_user_s_database_may_end_its_drainer_again_and_again_and_not_the_node():
    tree = node_tree(workers=1, grace_ms=0, drains=True)
    check_tree(tree)
    intake = tree.children[-1]
    assert [spec.id for spec in intake.children] == ["outbox"]
    assert not intake.escalates
    assert "outbox" not in [spec.id for spec in processes(node_tree(workers=1, grace_ms=0))]


def test_a_user_s_code_that_keeps_a_worker_from_answering_does_not_kill_it():
    specs = {spec.id: spec for spec in processes(node_tree(workers=1, grace_ms=0))}
    assert specs["worker-1"].silence_ms is None
    assert specs["history"].silence_ms == 60_000
    assert specs["scheduler"].silence_ms == 5_000


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        (SupervisorSpec(id="n", children=(child("a"), child("a"))), "'a'"),
        (SupervisorSpec(id="n", children=(child("n"),)), "'n'"),
        (SupervisorSpec(id="n", children=(child(""),)), "empty id"),
        (SupervisorSpec(id="n", children=(child(start="module"),)), "module:function"),
        (SupervisorSpec(id="n", children=(child(shutdown_ms=-1),)), "shutdown_ms"),
        (SupervisorSpec(id="n", children=(child(silence_ms=0),)), "silence_ms"),
        (SupervisorSpec(id="n", children=(child(kind=Kind.SUPERVISOR),)), "no supervisor"),
        (SupervisorSpec(id="n", children=(child(restart="always"),)), "unknown restart"),
        (SupervisorSpec(id="n", children=(), strategy="some"), "unknown strategy"),
        (SupervisorSpec(id="n", children=(), intensity=Intensity(restarts_max=-1)), "intensity"),
        (SupervisorSpec(id="n", children=(), intensity=Intensity(period_ms=0)), "intensity"),
        (
            SupervisorSpec(id="n", children=(child(), SupervisorSpec(id="s", children=(child(),)))),
            "'a'",
        ),
    ],
)
def test_a_tree_that_breaks_a_rule_is_refused_before_anything_starts(tree, told):
    with pytest.raises(InvalidTree, match=told):
        check_tree(tree)


@pytest.mark.parametrize(
    ("restart", "exit_code", "wanted"),
    [
        (Restart.PERMANENT, 0, True),
        (Restart.PERMANENT, -9, True),
        (Restart.TRANSIENT, 0, False),
        (Restart.TRANSIENT, 1, True),
        (Restart.TRANSIENT, None, True),
        (Restart.TEMPORARY, 0, False),
        (Restart.TEMPORARY, 1, False),
    ],
)
def test_restart_says_whose_end_is_final(restart, exit_code, wanted):
    assert restart.wants(exit_code) is wanted
