"""First tasks that the scheduler leaves to history, while nothing waits for a worker."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.ids import Session
from perdure.core.lending import LENT_MAX
from perdure.core.links import Lend, Lent, Sessions, WorkflowTask
from perdure.core.seats import LATE_MS

ONE = Session("node.1", 1)


@pytest.fixture
def said(scheduler) -> list[Lend]:
    """What history is told; every worker can be reached by it."""
    found: list[Lend] = []
    scheduler.mind._lending._say = lambda seat, message: found.append(message) or True
    return found


def left(said: list[Lend]) -> int:
    return said[-1].up_to - said[-1].used


def lent(scheduler, history, used: int, up_to: int, *ids: str) -> None:
    scheduler.mind.lent(Lent(ONE, used, up_to, ids), history.n, history.now_ms)
    scheduler.step()


def test_half_of_the_free_slots_is_lent_and_no_more_than_so_many(scheduler, said):
    scheduler.hello(activity_slots=6)
    assert said == [Lend(ONE, "", ("default",), ("T",), 3)]
    scheduler.hello(Session("node.1", 2), activity_slots=500)
    assert left(said) == LENT_MAX


def test_one_slot_is_lent_whole_and_taken_back_for_whom_it_is_wanted(history, scheduler, said):
    scheduler.hello(activity_slots=1)
    assert left(said) == 1
    history.schedule()
    scheduler.step()
    assert left(said) == 0
    assert scheduler.asked == []  # History may be using it just now.
    lent(scheduler, history, 0, 0)
    assert [type(command) for command in scheduler.asked] == [c.GrantLease]


def test_what_history_sent_is_not_sent_by_the_scheduler(history, scheduler, said):
    scheduler.hello()
    history.start("a")
    lent(scheduler, history, 1, 5, "a")
    assert scheduler.tasks(WorkflowTask) == []
    seat = scheduler.mind.seats[ONE]
    assert (seat.permits, seat.lent, list(seat.given)) == (1, 4, ["a"])


def test_what_history_sent_and_got_lost_is_sent_again(history, scheduler, said):
    scheduler.hello()
    history.start("a")
    lent(scheduler, history, 1, 5, "a")
    history.now_ms += 200
    scheduler.sync(n=history.n)
    [task] = scheduler.tasks(WorkflowTask)
    assert (task.workflow_id, task.permits) == ("a", 1)


def test_what_was_given_out_meanwhile_stays_given_out(history, scheduler, said):
    scheduler.hello()
    history.start("a")
    scheduler.step()
    assert len(scheduler.tasks(WorkflowTask)) == 1
    lent(scheduler, history, 1, 5, "a")
    seat = scheduler.mind.seats[ONE]
    assert (seat.permits, list(seat.given)) == (1, ["a"])


def test_more_is_lent_when_most_of_it_is_used(history, scheduler, said):
    scheduler.hello(activity_slots=100, workflow_slots=100)
    said.clear()
    names = [f"w{number}" for number in range(LENT_MAX)]
    for name in names:
        history.start(name)
    lent(scheduler, history, LENT_MAX // 2, LENT_MAX, *names[: LENT_MAX // 2])
    scheduler.tasks(WorkflowTask)
    said.clear()
    for name in names:
        history.step(name, c.CompleteWorkflow(None))
    scheduler.step()
    assert said == []
    lent(scheduler, history, LENT_MAX, LENT_MAX)
    assert left(said) == LENT_MAX


def test_a_worker_that_is_late_or_takes_other_kinds_gives_back_first(history, scheduler, said):
    scheduler.hello()
    scheduler.sync(workflow_types=("T", "U"))
    assert left(said) == 0
    lent(scheduler, history, 0, 0)
    assert said[-1].workflow_types == ("T", "U") or set(said[-1].workflow_types) == {"T", "U"}
    scheduler.at(history.now_ms + LATE_MS + 1)
    assert left(said) == 0


def test_nothing_is_lent_of_a_worker_that_drains_or_that_has_gone(scheduler, said):
    scheduler.hello(draining=True)
    assert said == []
    scheduler.sync(draining=False)
    assert left(said) > 0
    scheduler.sets()
    assert said[-1] == Lend(ONE, "", (), (), 0)


def test_what_was_lost_on_the_way_is_said_again_with_each_sync(history, scheduler, said):
    scheduler.hello()
    before = said[-1]
    scheduler.sync()
    assert said[-1] == before
    history.schedule()
    scheduler.step()
    recall = said[-1]
    said.clear()
    scheduler.sync()
    assert said == [recall]


def test_a_worker_whose_end_is_heard_first_died_of_what_history_had_sent_it(
    history, scheduler, said
):
    scheduler.hello()
    history.start("a")
    scheduler.mind.sessions(Sessions("node.1", 1, ()))
    lent(scheduler, history, 1, 5, "a")
    [command] = scheduler.asked
    assert (type(command), command.workflow_id) == (c.TimeOutWorkflowTask, "a")
    assert command.reason == "worker_died"
    scheduler.hello(Session("node.1", 2))
    assert scheduler.tasks(WorkflowTask) == []  # Not before history has counted it.


def test_another_history_was_lent_nothing(history, scheduler, said):
    scheduler.hello()
    lent(scheduler, history, 3, 5)
    scheduler.mind.new_history()
    scheduler.step()
    assert (said[-1].up_to, said[-1].used) == (5, 0)


def test_an_answer_that_comes_late_changes_nothing(history, scheduler, said):
    scheduler.hello()
    lent(scheduler, history, 3, 5)
    lent(scheduler, history, 1, 5)
    assert scheduler.mind.seats[ONE].lent_used == 3
