"""What retention removed and what was pruned is told apart from what was lost."""

from __future__ import annotations

from chaos.auditor import ReaderTables, audit, audit_data_dir
from perdure.store.protocol import Retention
from perdure.testing import LocalEngine, ManualClock


def keep(engine: LocalEngine, retention_ms: int | None, audit_ms: int | None) -> None:
    engine._core._retention = Retention(retention_ms, audit_ms)
    engine.restart()


def test_a_store_with_tombstones_is_clean_and_their_effects_are_nobodys_loss(world):
    world.start("a", "b", workflow_id="w1")
    world.engine.run_until_idle()
    world.start("c", workflow_id="w2", pause_ms=60_000)
    keep(world.engine, 1_000, None)
    world.engine.clock.advance_ms(1_000)
    world.engine.run_until_idle(skip_time=False)
    report = audit_data_dir(world.data, [world.ledger], pages=True)
    assert report.violations == ()
    assert world.store.reader().execution("w1").status == "Removed"


def test_a_pruned_log_is_clean_from_its_base_on(world):
    world.start("a", workflow_id="w1")
    world.engine.run_until_idle()
    world.engine.clock.advance_ms(100_000)
    keep(world.engine, 50_000, 50_000)
    world.start("b", workflow_id="w2")
    world.engine.run_until_idle()
    report = audit_data_dir(world.data, [world.ledger], pages=True)
    assert report.violations == ()
    assert world.store.reader().base()[0] > 0


def test_a_workflow_that_goes_on_after_its_beginning_was_pruned_is_clean(world):
    world.start("a", "b", workflow_id="w1", pause_ms=100_000)
    world.engine.run_until_idle(skip_time=False)
    world.engine.clock.advance_ms(90_000)
    keep(world.engine, None, 50_000)
    world.start("c", workflow_id="w2")
    world.engine.run_until_idle()
    report = audit_data_dir(world.data, [world.ledger], pages=True)
    assert report.violations == ()
    assert world.store.reader().base()[0] > 0
    assert world.store.reader().execution("w1").status == "Completed"


def test_tombstones_in_memory_are_seen_as_well():
    from tests.spec.test_retention import KEEP_MS, echo

    engine = LocalEngine([echo], [], ManualClock(1_000), retention_ms=KEEP_MS)
    for workflow_id in ("w1", "w2"):
        engine.client.start_workflow("echo", "x", workflow_id=workflow_id)
        engine.run_until_idle()
        engine.clock.advance_ms(KEEP_MS)
    engine.client.list_workflows()
    reader = engine._core.reader
    tables = ReaderTables(reader)
    assert [row.workflow_id for row in tables.tombstones()] == ["w2", "w1"]
    assert audit(reader.commits(0, 1_000), tables).violations == ()
