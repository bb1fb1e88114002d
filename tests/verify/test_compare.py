"""What is wrong with a run, and which of several runs is shown, by the plain data of runs."""

from __future__ import annotations

from perdure.verifying.compare import LINES_MAX, Found, Kind, hint, pairs, schedule, troubles
from perdure.verifying.world import Applied, Killed, Outcome, Step, StepKind, Who

CHARGE = Who("charge", "charge", 1)
CRASH = Step(StepKind.CRASH, Who(), "the worker dies")


def run_of(*effects, status="Completed", dead=(), is_parked=False, steps=None, why=""):
    """A run that applied these effects (name, key), one after the other."""
    applied = tuple(Applied(name, key, CHARGE) for name, key in effects)
    told = [Step(StepKind.EFFECT, CHARGE, f"applies {one.name}", one) for one in applied]
    return Outcome(
        status, why, applied, tuple(told if steps is None else steps), [], dead, is_parked
    )


def said(baseline, run):
    return [(one.kind, one.effect, one.is_clear) for one in troubles(baseline, run)]


def test_the_same_pairs_again_in_any_order_are_nothing():
    baseline = run_of(("a", "1"), ("b", "2"))
    assert said(baseline, run_of(("b", "2"), ("a", "1"), ("a", "1"))) == []


def test_a_new_pair_is_doubled_and_an_absent_one_lost():
    baseline = run_of(("a", "1"), ("b", "2"))
    assert said(baseline, run_of(("a", "1"), ("a", "9"), ("b", "2"))) == [(Kind.DOUBLED, "a", True)]
    assert said(baseline, run_of(("a", "1"))) == [(Kind.LOST, "b", True)]


def test_one_under_another_key_could_be_doubled_and_is_not_lost():
    found = troubles(run_of(("a", "1")), run_of(("a", "9")))
    assert [(one.kind, one.is_clear) for one in found] == [(Kind.DOUBLED, False)]
    assert "could be doubled" in found[0].says


def test_fewer_under_other_keys_are_lost():
    baseline = run_of(("a", "1"), ("a", "2"))
    assert said(baseline, run_of(("a", "9"))) == [(Kind.LOST, "a", False)]


def test_without_a_key_only_the_number_counts():
    assert len(pairs(run_of(("a", None), ("a", None), ("a", "1"), ("b", None)).applied)) == 4
    twice = run_of(("a", None), ("a", None))
    assert said(run_of(("a", None)), twice) == [(Kind.DOUBLED, "a", True)]
    assert said(twice, run_of(("a", None))) == [(Kind.LOST, "a", True)]


def test_the_same_effect_is_told_once_however_often_it_is_doubled():
    assert len(troubles(run_of(("a", "1")), run_of(("a", "1"), ("a", "2"), ("a", "3")))) == 1


def test_of_a_run_that_waits_for_an_operator_only_what_is_doubled_counts():
    dead = (("charge", "charge"),)
    parked = {"status": "Running", "dead": dead, "is_parked": True}
    assert said(run_of(("a", "1")), run_of(**parked)) == []
    assert said(run_of(("a", "1")), run_of(("a", "2"), **parked)) == [(Kind.DOUBLED, "a", False)]


def test_another_ending_counts_where_the_effects_are_the_same():
    baseline = run_of(("a", "1"))
    assert said(baseline, run_of(("a", "1"), status="Failed")) == [(Kind.ENDING, "", True)]
    assert said(baseline, run_of(("a", "1"), status="Running")) == [(Kind.STUCK, "", True)]
    assert said(baseline, run_of(status="Running")) == [(Kind.LOST, "a", True)]


def test_shown_is_what_has_the_fewest_crashes_then_what_is_clear_then_the_shortest():
    def found(crashes, key, before=0):
        baseline = run_of(("a", "1"))
        run = run_of(*([("a", "1")] if key == "clear" else []), ("a", "2"))
        more = tuple(Step(StepKind.BEGINS, CHARGE, f"begins {n}") for n in range(before))
        run = Outcome(run.status, "", run.applied, (*more, *run.steps), [])
        return Found(troubles(baseline, run)[0], run, crashes, Killed.NODE)

    two, unclear, long, short = (
        found(2, "clear"),
        found(1, "another"),
        found(1, "clear", before=3),
        found(1, "clear"),
    )
    for order in ([two, unclear, long, short], [short, long, unclear, two]):
        joined = order[0]
        for one in order[1:]:
            joined = joined.joined(one)
        assert joined.run is short.run
        assert joined.schedules == 4


def test_a_doubled_effect_is_told_up_to_it_and_a_lost_one_to_the_end():
    baseline, after = run_of(("a", "1")), Step(StepKind.ENDS, CHARGE, "reports")
    run = run_of(("a", "1"), ("a", "2"))
    run = Outcome("Completed", "", run.applied, (run.steps[0], CRASH, run.steps[1], after), [])
    [trouble] = troubles(baseline, run)
    assert schedule(trouble, run) == ("1. applies a", "2. the worker dies", "3. applies a")
    lost = run_of(steps=[CRASH, after])
    [trouble] = troubles(baseline, lost)
    assert schedule(trouble, lost)[-1] == "3. the workflow ends Completed without a"


def test_a_long_schedule_is_told_by_its_ends():
    steps = [Step(StepKind.BEGINS, CHARGE, f"begins {n}") for n in range(40)]
    lost = run_of(steps=steps)
    told = schedule(troubles(run_of(("a", "1")), lost)[0], lost)
    assert len(told) == LINES_MAX
    assert told[0] == "1. begins 0"
    assert told[9] == "10. (and so on, 26 steps)"
    assert told[-2:] == ("40. begins 39", "41. the workflow ends Completed without a")


def test_what_an_operator_does_is_told_also_in_the_middle_of_a_long_schedule():
    steps = [Step(StepKind.BEGINS, CHARGE, f"begins {n}") for n in range(40)]
    steps[20] = Step(StepKind.OPERATOR, CHARGE, "an operator redrives it")
    lost = run_of(steps=steps)
    told = schedule(troubles(run_of(("a", "1")), lost)[0], lost)
    assert told[9:12] == (
        "10. (and so on, 11 steps)",
        "21. an operator redrives it",
        "22. (and so on, 14 steps)",
    )


def test_where_the_activity_has_another_id_after_a_crash_the_hint_is_about_that():
    baseline, other = run_of(("a", "1")), Who("charge-2", "charge", 1)
    applied = Applied("a", "2", other)
    step = Step(StepKind.EFFECT, other, "applies a", applied)
    run = Outcome("Completed", "", (applied,), (step,), [])
    [trouble] = troubles(baseline, run)
    assert "2 instead of 1" in trouble.says
    assert "another id after a crash" in hint(trouble, run, frozenset({Killed.WORKER}))
    [same] = troubles(baseline, run_of(("a", "2")))
    assert "key is made anew" in hint(same, run, frozenset({Killed.NODE}))
