"""State is the fold: for any commands, what is stored, held and projected agree, and the log obeys
the rules of leases, attempts and ends.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.auditor import Auditor
from chaos.auditor.memory import ReaderTables
from perdure.core import records as r
from perdure.core.dead_letters import DeadLetterFilter, DeadLetters
from perdure.core.records import decode_body
from perdure.core.schedule_state import SCHEDULE_RECORDS
from perdure.core.state import Execution
from perdure.core.task_queues import TaskQueues
from perdure.values import refer
from tests.core.fold_script import FREQUENT, OPS, WORKFLOWS, Script, begun
from tests.core.log_trails import check_log

_CALLS = st.tuples(st.sampled_from([*OPS, *FREQUENT]), st.integers(0, 63), st.integers(0, 31))


def slim(execution: Execution) -> Execution:
    """As a projection has it: details above 1 KiB by reference, and no commit numbers."""
    copy = msgspec.msgpack.decode(msgspec.msgpack.encode(execution), type=Execution)
    for held in copy.activities.values():
        held.details = None if held.details is None else refer(held.details)
    return copy


def ready(queues: TaskQueues, now_ms: int) -> tuple[object, ...]:
    """What is ready, in an order that does not rest on when one heard of it."""
    activities = [
        (
            -e.activity.options.priority,
            e.activity.due_ms,
            e.work.workflow_id,
            e.activity.activity_id,
        )
        for e in queues.ready_activities(None, now_ms)
    ]
    assert [one[0] for one in activities] == sorted(one[0] for one in activities)
    works = sorted(work.workflow_id for work in queues.ready_workflows(now_ms))
    return (sorted(activities), works, sorted(queues.deadlines()), queues.ready_count)


def check_state(script: Script) -> None:
    rig = script.rig
    now_ms = rig.now_ms
    for workflow_id in {*WORKFLOWS, *rig.store.executions}:
        assert rig.ledger.execution(workflow_id) == rig.writer.load(workflow_id)
    _, stored = rig.store.reader().open_state()
    loaded = TaskQueues()
    loaded.load(stored, now_ms)
    # Among those that were made before may be some whose cause has gone since.
    script.proposals += script.queues.due(now_ms)
    assert {repr(one) for one in loaded.due(now_ms)} <= {repr(one) for one in script.proposals}
    assert ready(loaded, now_ms) == ready(script.queues, now_ms)
    projected = {work.workflow_id: work.execution for work in script.queues.works.values()}
    again = {one.workflow_id: one for one in rig.store.reader().open_state()[1]}
    assert {k: slim(v) for k, v in projected.items()} == {k: slim(v) for k, v in again.items()}
    assert rig.ledger.ready == rig.writer.ready_count()
    letters = DeadLetters()
    letters.load(rig.store.reader().open_state()[1])
    everything = (DeadLetterFilter(), now_ms, 1_000)
    assert letters.list(*everything) == script.letters.list(*everything)


def audited(store: Any) -> list[Any]:
    """What the independent auditor finds wrong with tables, records, pauses and states. (Workflows
    do things here that no workflow would: it has more to say.)
    """
    auditor = Auditor()
    for row in store.reader().commits(0, 10_000):
        auditor.feed(row)
    found = auditor.finish(ReaderTables(store.reader())).violations
    return [one for one in found if one.invariant in (11, 13, 28, 36)]


@settings(max_examples=150, deadline=None)
@given(st.lists(_CALLS, min_size=10, max_size=60))
def test_what_is_stored_held_and_projected_agree_after_every_commit(calls):
    script = begun()
    for call in calls:
        script.run(*call)
        check_state(script)


@settings(max_examples=300, deadline=None)
@given(st.lists(_CALLS, min_size=20, max_size=150))
def test_the_log_obeys_the_rules_of_leases_attempts_and_ends(calls):
    script = begun()
    for call in calls:
        script.run(*call)
    check_log(script.rig.store.reader().commits(0, 10_000))


def test_long_random_scripts_reach_every_kind_of_record():
    seen: set[str] = set()
    for seed in range(30):
        draws = random.Random(seed)
        script = Script()
        script.run("start", 0, 0)
        script.run("start", 1, 0)
        for _ in range(400):
            op = draws.choice([*OPS, *FREQUENT, *FREQUENT])
            # Workflows end seldom: most of what is to be seen comes before.
            y = draws.randrange(32 if draws.random() < 0.1 else 31)
            script.run(op, draws.randrange(64), y)
            if draws.random() < 0.2:
                check_state(script)
        check_log(script.rig.store.reader().commits(0, 10_000))
        assert audited(script.rig.store) == []
        for row in script.rig.store.reader().commits(0, 10_000):
            for group in decode_body(row.body).groups:
                seen.update(type(record).__name__ for record in group.records)
    # Those of schedules are no workflow's: tests/core/test_decide_schedule.py.
    others = {kind.__name__ for kind in SCHEDULE_RECORDS}
    assert seen | others == {kind.__name__ for kind in r.AnyRecord.__args__}
