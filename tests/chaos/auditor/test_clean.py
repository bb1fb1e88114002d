"""Stores that an engine made, of many shapes, hold nothing to complain of."""

from __future__ import annotations

from chaos.auditor import Auditor, ReaderTables, audit, audit_data_dir
from perdure.store.protocol import Retention

BIG = "x" * 3_000


def clean(world, **options):
    report = audit_data_dir(world.data, [world.ledger], **options)
    assert report.violations == ()
    return report


def test_a_store_without_work_is_clean(world):
    report = audit_data_dir(world.data)
    assert (report.violations, report.commits, report.epochs) == ((), 1, 1)


def test_completed_workflows_are_clean_and_counted(world):
    world.start("a", "b", workflow_id="w1")
    world.start("c", workflow_id="w/2%#", size=3_000)
    world.engine.run_until_idle()
    report = clean(world, settled=True, pages=True)
    assert (report.workflows, report.open_workflows, report.activities) == (2, 0, 3)
    assert (report.attempts, report.effects, report.deliveries) == (3, 3, 3)
    assert report.events_compared == (1 + 2 * 2 + 1) + (1 + 2 + 1)


def test_retries_before_and_after_the_effect_are_clean(world):
    world.moods = {"a": ["before", "after"], "b": ["after", "after"]}
    world.start("a", "b", workflow_id="w1", pause_ms=200)
    world.engine.run_until_idle()
    report = clean(world, settled=True)
    assert (report.attempts, report.effects, report.deliveries) == (6, 2, 5)


def test_dead_letters_redriven_failed_and_completed_by_hand_are_clean(world):
    for number in range(4):
        world.moods[f"a{number}"] = ["before"] * (6 if number == 3 else 3)
        world.start(f"a{number}", "next", workflow_id=f"w{number}")
    world.engine.run_until_idle()
    report = clean(world, settled=True)
    assert report.dead_letters == 4
    client = world.engine.client
    client.redrive_dead_letter("w0", "a0", request_id="r0")
    client.fail_dead_letter("w1", "a1", request_id="r1")
    client.complete_dead_letter("w2", "a2", BIG, request_id="r2")
    client.redrive_dead_letter("w3", "a3", request_id="r3")
    world.engine.run_until_idle()
    assert clean(world, settled=True).dead_letters == 1
    client.redrive_dead_letter("w3", "a3", request_id="r4")
    world.engine.run_until_idle()
    assert clean(world, settled=True).open_workflows == 0


def test_failures_that_are_final_are_clean(world):
    world.moods = {"a": ["never"], "b": ["before", "never"]}
    world.start("a", "b", workflow_id="w1")
    world.engine.run_until_idle()
    assert clean(world, settled=True).open_workflows == 0


def test_leases_that_expire_beat_and_outlive_restarts_are_clean(world):
    engine = world.engine
    world.engine.client.start_workflow("waits", "hand", 3_600_000, workflow_id="w1")
    engine.run_workflow_tasks()
    first = engine.poll_activity_task("hand", "by-hand")
    engine.clock.advance_ms(3_000)
    engine.record_heartbeat(first.token, {"done": "x" * 2_000})
    engine.restart()
    clean(world)
    engine.clock.advance_ms(20_000)
    engine.run_workflow_tasks()
    engine.clock.advance_ms(1_000)
    second = engine.poll_activity_task("hand", "by-hand")
    assert second.attempt == 2
    clean(world)
    engine.complete_activity_task(second.token, BIG)
    engine.run_until_idle()
    assert clean(world, settled=True).epochs == 2


def test_a_cancelled_activity_and_a_cancelled_timer_are_clean(world):
    world.engine.client.start_workflow("waits", "nobody", 5_000, "absent", workflow_id="w1")
    world.engine.client.start_workflow("waits", "default", 5_000, workflow_id="w2")
    world.engine.run_until_idle()
    assert clean(world, settled=True).open_workflows == 0


def test_a_live_store_is_audited_while_its_writer_is_open(world):
    world.start("a", "b", workflow_id="w1", pause_ms=50)
    world.engine.run_workflow_tasks()
    for _ in range(4):
        clean(world)
        world.engine.run_activities()
        world.engine.run_workflow_tasks()


def test_an_engine_in_memory_is_audited_row_by_row(world):
    world.moods = {"a": ["before"] * 3}
    world.start("a", workflow_id="w1", size=2_000)
    world.start("b", workflow_id="w2", size=2_000)
    world.engine.run_until_idle()
    reader = world.store.reader()
    rows = reader.commits(0, 10_000)
    auditor = Auditor()
    for row in rows:
        auditor.feed(row)
        assert auditor.found.kept == []
    report = auditor.finish(ReaderTables(reader), settled=True)
    assert (report.violations, report.last_n) == ((), rows[-1].n)
    assert audit(rows, ReaderTables(reader)).violations == ()
    reader.close()


def test_a_pruned_log_is_audited_from_its_base_on_with_work_that_began_before_it(world):
    engine = world.engine
    for name in ("held", "both"):
        engine.client.start_workflow("waits", name, 90_000_000, workflow_id=name)
    engine.run_workflow_tasks()
    held = engine.poll_activity_task("held", "by-hand")
    engine.clock.advance_ms(3_000)
    engine.record_heartbeat(held.token, {"at": 1})
    engine._core._retention = Retention(None, 2_000)
    engine.restart()
    engine.clock.advance_ms(1_000)
    engine.run_workflow_tasks()
    world.start("a", workflow_id="w1", pause_ms=50)
    engine.run_workflow_tasks()
    engine.record_heartbeat(held.token, {"at": 2})
    both = engine.poll_activity_task("both", "by-hand")
    report = clean(world)
    assert report.base_n > 0
    assert "what was before is not known" in " ".join(report.not_checked)
    for task in (held, both):
        engine.complete_activity_task(task.token, "done")
    engine.run_until_idle()
    assert clean(world, settled=True).open_workflows == 0
