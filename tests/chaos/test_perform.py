"""What a drill that goes wrong comes to; without a node."""

from __future__ import annotations

import pytest

from chaos.auditor import Auditor
from chaos.auditor.findings import Findings
from chaos.drill_kit import Drill, Options, perform
from chaos.harness import NodeTrouble
from perdure.errors import Unavailable


def drill(run):
    return Drill(name="test", does="tests", inconclusive="it did nothing", run=run)


def report(run, **options):
    return perform(drill(run), Options(**options), live=False).report


def test_a_drill_whose_fault_bit_and_that_saw_nothing_wrong_proves_something():
    assert report(lambda arena: True).verdict == "proved"
    assert report(lambda arena: False).verdict == "inconclusive"


def test_what_a_drill_says_is_wrong_is_in_its_report():
    found = report(lambda arena: arena.violate("the sky fell"))
    assert (found.verdict, found.violations) == ("violated", ("the sky fell",))


@pytest.mark.parametrize("error", [NodeTrouble("no node"), Unavailable("no answer")])
def test_a_node_that_does_not_come_up_or_answer_is_a_violation(error):
    def run(arena):
        raise error

    found = report(run)
    assert found.verdict == "violated"
    assert "no " in found.violations[0]


def test_faults_figures_and_events_are_in_the_report_and_its_picture():
    def run(arena):
        arena.fault("EIO", "history")
        arena.fault("EIO", "history")
        arena.fault("SIGKILL", "worker-1")
        arena.fault("SIGKILL", "node")
        arena.figures["syncs"] = 4
        arena.say("it hurt")
        return True

    found = perform(drill(run), Options(), live=False)
    assert found.report.faults_fired == {"EIO": 2, "SIGKILL": 2}
    assert (found.report.kills, found.report.server_restarts) == (1, 1)
    assert found.report.figures == {"syncs": 4}
    assert next(event.text for event in found.timeline.events) == "it hurt"
    assert len(found.timeline.faults) == 4


def test_the_scratch_directory_goes_and_is_kept_where_something_was_violated(tmp_path):
    seen = []

    def run(arena):
        seen.append(arena.directory)
        (arena.directory / "node").mkdir()
        (arena.directory / "node" / "node.log").write_text("evidence")
        if len(seen) == 2:
            arena.violate("the sky fell")
        return True

    for name in ("well", "badly"):
        perform(drill(run), Options(), live=False, keep=tmp_path / name)
    assert not any(directory.exists() for directory in seen)
    assert not (tmp_path / "well").exists()
    assert (tmp_path / "badly" / "node" / "node.log").read_text() == "evidence"


def test_what_the_auditor_alone_finds_is_a_violation_and_its_evidence_is_kept(tmp_path):
    def run(arena):
        found = Findings()
        found.add(15, "w/a", "two leases live")
        arena.audits.append(Auditor(found=found).finish())
        (arena.directory / "node.log").write_text("evidence")
        return True

    found = perform(drill(run), Options(), live=False, keep=tmp_path / "kept").report
    assert found.violations == ("invariant 15 at w/a: two leases live",)
    assert found.audit.violations == 1
    assert (tmp_path / "kept" / "node.log").exists()


def test_an_interrupt_goes_on_and_nothing_is_left():
    seen = []

    def run(arena):
        seen.append(arena.directory)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report(run)
    assert not seen[0].exists()


def test_chance_is_the_same_for_the_same_seed_and_name_only():
    drawn = []

    def run(arena):
        drawn.append([arena.dice(name).random() for name in ("a", "a", "b")])
        return True

    for seed in (1, 1, 2):
        report(run, seed=seed)
    (first, again, third), other = drawn[0], drawn[2]
    assert first == again != third
    assert drawn[0] == drawn[1]
    assert other[0] != first


def test_a_drill_without_plain_lines_says_its_seed_first(capsys):
    report(lambda arena: True, seed=7, workflows=3)
    assert capsys.readouterr().err.splitlines()[0] == "drill test, seed 7: 3 workflows"
