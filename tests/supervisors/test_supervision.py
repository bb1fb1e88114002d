from __future__ import annotations

from supervisors.child_spec import ChildSpec, Restart, SupervisorSpec
from supervisors.strategy import Strategy
from supervisors.supervision import Done, Exit, GiveUp, Start, Stop, Supervision


def supervision(*names, restart=None, **options):
    children = tuple(
        ChildSpec(id=name, start="m:f", restart=(restart or {}).get(name, Restart.PERMANENT))
        for name in names
    )
    started = Supervision(SupervisorSpec(id="s", children=children, **options))
    assert started.start() == [Start(name) for name in names]
    return started


def crash(name, at_ms=0):
    return Exit(id=name, exit_code=1, ready_at_ms=None, at_ms=at_ms)


def late_death(name, at_ms=100_000, exit_code=-9):
    return Exit(id=name, exit_code=exit_code, ready_at_ms=at_ms - 1_001, at_ms=at_ms)


def again(name, delay_ms=0):
    return Start(name, delay_ms, is_restart=True)


def test_a_late_death_is_restarted_at_once_however_often_it_comes():
    s = supervision("a", "b")
    for n in range(50):
        assert s.exited(late_death("a", at_ms=100_000 + n)) == [again("a")]


def test_kills_of_ready_and_half_started_children_in_turn_are_never_too_many():
    s = supervision("a", "b")
    for n in range(50):
        at_ms = 100_000 + 20 * n
        ready_at_ms = None if n % 2 else at_ms - 5
        killed = Exit(id="a", exit_code=-9, ready_at_ms=ready_at_ms, at_ms=at_ms)
        assert s.exited(killed) == [again("a")]


def test_a_child_that_is_killed_before_it_is_ready_every_time_waits_up_to_a_second_and_is_kept():
    s = supervision("a", "b")
    delays = []
    for at_ms in range(10):
        (action,) = s.exited(Exit(id="a", exit_code=-9, ready_at_ms=None, at_ms=at_ms))
        delays.append(action.delay_ms)
    assert delays == [0, 0, 50, 100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert s.exited(late_death("a")) == [again("a")]


def test_kills_before_readiness_do_not_make_crashes_too_many():
    s = supervision("a", "b")
    for at_ms in range(20):
        s.exited(Exit(id="ab"[at_ms % 2], exit_code=-9, ready_at_ms=None, at_ms=at_ms))
    assert s.exited(crash("a", 20)) == [again("a", 5_000)]


def test_a_crash_loop_is_restarted_ever_slower_and_then_given_up_with_a_reason():
    s = supervision("a", "b")
    delays = []
    for at_ms in range(0, 500, 100):
        (action,) = s.exited(crash("a", at_ms))
        delays.append(action.delay_ms)
    assert delays == [0, 50, 100, 200, 400]
    (action,) = s.exited(crash("a", 500))
    assert isinstance(action, GiveUp)
    assert "the last was a" in action.reason
    assert "status 1" in action.reason


def test_a_life_that_lasted_ends_the_row_of_crashes():
    s = supervision("a")
    s.exited(crash("a", 0))
    assert s.exited(crash("a", 1)) == [again("a", 50)]
    assert s.exited(late_death("a", at_ms=3_000)) == [again("a")]
    assert s.exited(crash("a", 3_100)) == [again("a")]


def test_crashes_of_all_children_of_a_supervisor_count_together():
    s = supervision("a", "b")
    for at_ms in range(5):
        assert isinstance(s.exited(crash("ab"[at_ms % 2], at_ms))[0], Start)
    assert isinstance(s.exited(crash("b", 5))[0], GiveUp)


def test_a_supervisor_that_never_escalates_only_waits_longer():
    s = supervision("w", escalates=False)
    delays = [s.exited(crash("w", n))[0].delay_ms for n in range(30)]
    assert delays == sorted(delays)
    assert delays[-1] == 5_000


def test_transient_and_temporary_children_stay_down_when_their_end_is_final():
    s = supervision("t", "x", restart={"t": Restart.TRANSIENT, "x": Restart.TEMPORARY})
    assert s.exited(late_death("t", exit_code=0)) == []
    assert s.exited(late_death("x")) == []
    assert s.shutdown() == [Done()]


def test_one_for_all_stops_the_siblings_in_reverse_and_starts_all_in_order():
    s = supervision("a", "b", "c", strategy=Strategy.ONE_FOR_ALL)
    assert s.exited(late_death("b")) == [Stop("c")]
    assert s.exited(late_death("c")) == [Stop("a")]
    assert s.exited(late_death("a")) == [again("a"), again("b"), again("c")]


def test_rest_for_one_leaves_those_that_were_started_before():
    s = supervision("a", "b", "c", strategy=Strategy.REST_FOR_ONE)
    assert s.exited(late_death("b")) == [Stop("c")]
    assert s.exited(late_death("c")) == [again("b"), again("c")]


def test_a_sibling_that_dies_by_itself_meanwhile_is_not_waited_for():
    s = supervision("a", "b", "c", strategy=Strategy.ONE_FOR_ALL)
    assert s.exited(late_death("a")) == [Stop("c")]
    assert s.exited(late_death("b")) == []
    assert s.exited(late_death("c")) == [again("a"), again("b"), again("c")]


def test_a_temporary_sibling_is_stopped_with_the_others_and_not_started_again():
    s = supervision("a", "x", strategy=Strategy.ONE_FOR_ALL, restart={"x": Restart.TEMPORARY})
    assert s.exited(late_death("a")) == [Stop("x")]
    assert s.exited(late_death("x")) == [again("a")]


def test_a_shutdown_stops_one_after_the_other_in_reverse_and_restarts_nobody():
    s = supervision("a", "b", "c")
    assert s.shutdown() == [Stop("c")]
    assert s.exited(late_death("a")) == []
    assert s.exited(late_death("c")) == [Stop("b")]
    assert s.exited(late_death("b")) == [Done()]


def test_children_that_stop_together_are_all_asked_at_once():
    s = supervision("a", "b", stops_together=True)
    assert s.shutdown() == [Stop("b"), Stop("a")]
    assert s.exited(late_death("b")) == []
    assert s.exited(late_death("a")) == [Done()]


def test_a_second_shutdown_and_a_second_exit_change_nothing():
    s = supervision("a")
    assert s.shutdown() == [Stop("a")]
    assert s.shutdown() == []
    assert s.exited(late_death("a")) == [Done()]
    assert s.exited(late_death("a")) == []


def on_demand():
    children = (
        ChildSpec(id="a", start="m:f"),
        ChildSpec(id="q1", start="m:f", on_demand=True),
        ChildSpec(id="q2", start="m:f", on_demand=True),
    )
    s = Supervision(SupervisorSpec(id="s", children=children, stops_together=True))
    assert s.start() == [Start("a")]
    return s


def test_what_is_there_on_demand_starts_once_when_it_is_wanted_and_stops_once_when_it_is_not():
    s = on_demand()
    assert s.demand(frozenset({"q1", "a", "elsewhere"})) == [Start("q1")]
    assert s.demand(frozenset({"q1"})) == []
    assert s.demand(frozenset({"q2"})) == [Start("q2"), Stop("q1")]
    assert s.demand(frozenset({"q2"})) == []
    assert s.exited(late_death("q1", exit_code=0)) == []


def test_what_is_there_on_demand_is_restarted_while_it_is_wanted_and_only_then():
    s = on_demand()
    s.demand(frozenset({"q1"}))
    assert s.exited(late_death("q1")) == [again("q1")]
    s.demand(frozenset())
    assert s.exited(late_death("q1")) == []
    assert s.demand(frozenset({"q1"})) == [Start("q1")]


def test_one_that_was_told_to_stop_and_is_wanted_after_all_comes_back_when_it_has_ended():
    s = on_demand()
    s.demand(frozenset({"q1"}))
    assert s.demand(frozenset()) == [Stop("q1")]
    assert s.demand(frozenset({"q1"})) == []
    assert s.exited(late_death("q1", exit_code=0)) == [again("q1")]


def test_at_a_shutdown_nothing_is_started_on_demand_and_what_runs_is_stopped():
    s = on_demand()
    s.demand(frozenset({"q2"}))
    assert s.shutdown() == [Stop("q2"), Stop("a")]
    assert s.demand(frozenset({"q1", "q2"})) == []


def test_a_kill_because_it_did_not_become_ready_counts_as_a_crash():
    s = supervision("a")
    late = Exit(id="a", exit_code=-9, ready_at_ms=None, at_ms=1, was_late=True)
    for _ in range(5):
        [action] = s.exited(late)
        assert isinstance(action, Start)
    assert isinstance(s.exited(late)[0], GiveUp)


def test_an_end_that_was_asked_for_is_no_crash_however_soon_it_comes():
    s = supervision("a", "b")
    for at_ms in range(50):
        asked = Exit(id="a", exit_code=0, ready_at_ms=at_ms, at_ms=at_ms, was_asked=True)
        assert s.exited(asked) == [again("a")]
