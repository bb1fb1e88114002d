"""Samples about signals, queries, updates, children and runs: each does what its docstring says."""

from __future__ import annotations

import pytest

from perdure.errors import UpdateFailed, UpdateRejected

DAY_MS = 86_400_000


def test_a_subscription_is_charged_for_years_in_runs_of_one_year(stage):
    on = stage("subscription")
    handle = on.start("subscription", on.module.Customer("ann", 100))
    on.until(7 * DAY_MS + 13 * 30 * DAY_MS)
    assert handle.query("state") == {"periods": 14, "paid": 1400, "cents": 100}
    assert handle.describe().run == 2
    handle.signal("set_price", 200)
    assert on.result() == {"periods": 24, "paid": 1400 + 10 * 200, "cents": 200}


def test_a_subscription_that_ends_within_the_trial_costs_nothing(stage):
    on = stage("subscription")
    handle = on.start("subscription", on.module.Customer("ann", 100))
    handle.signal("end")
    assert on.result()["paid"] == 0


def test_a_cluster_gives_each_node_once_and_ends_with_no_handler_cut_off(stage):
    on = stage("cluster")
    handle = on.start("cluster")
    handle.signal("start", ["n1", "n2", "n3", "n4-bad"])
    on.run()
    again = on.client.update_workflow
    assert again("w", "assign_nodes", "j1", 2, request_id="1") == ["n1", "n2"]
    assert again("w", "assign_nodes", "j2", 2, request_id="2") == ["n3", "n4-bad"]
    handle.signal("shut_down")
    on.run()
    assert again("w", "assign_nodes", "j1", 2, request_id="1") == ["n1", "n2"]
    assert again("w", "assign_nodes", "j2", 2, request_id="2") == ["n3", "n4-bad"]
    assert on.result() == 0


def test_a_cluster_keeps_its_nodes_over_its_runs_and_refuses_what_can_not_be(stage):
    on = stage("cluster")
    handle = on.start("cluster")
    handle.signal("start", ["n1", "n2", "n3-bad"])
    on.run()
    assert handle.update("assign_nodes", "j1", 3, request_id="1") == ["n1", "n2", "n3-bad"]
    on.until(10 * 60_000)
    assert handle.describe().run > 2
    assert handle.query("nodes") == {"n1": "j1", "n2": "j1"}
    assert on.client.update_workflow("w", "assign_nodes", "j1", 3) == ["n1", "n2"]
    with pytest.raises(UpdateFailed, match="1 nodes are wanted, 0 are free"):
        handle.update("assign_nodes", "j2", 1)
    with pytest.raises(UpdateRejected, match="count must be"):
        handle.update("assign_nodes", "j2", 0)
    handle.signal("shut_down")
    assert on.result() == 0


def test_an_alarm_can_be_put_forward_and_back(stage):
    on = stage("timer")
    handle = on.start("alarm", 10_000)
    handle.signal("move", 60_000)
    on.until(20_000)
    assert handle.query("wakes_at_ms") == 60_000
    handle.signal("move", 30_000)
    assert on.result() == 30_000


def test_a_lock_is_held_by_one_at_a_time_in_the_order_of_asking(stage):
    on = stage("mutex")
    on.start("mutex", 10_000, workflow_id="lock")
    for name, work_ms in (("a", 3_000), ("b", 60_000), ("c", 1_000)):
        on.start("user", "lock", work_ms, workflow_id=name)
    on.until(100_000)
    held = [on.client.result(name) for name in ("a", "b", "c")]
    assert held == [
        {"since_ms": 0, "until_ms": 3_000},
        {"since_ms": 3_000, "until_ms": 63_000},
        {"since_ms": 13_000, "until_ms": 14_000},  # b has had its time.
    ]


def test_a_batch_slides_over_its_runs(stage):
    on = stage("window")
    handle = on.start("batch", 20, 4, 6)
    assert handle.query("progress") == {"done": 2, "under_way": 4}
    assert on.result() == 20
    assert handle.describe().run == 4
    done = on.client.list_workflows(type="one_record", status="Completed")
    assert len(done.workflows) == 20


def test_a_widget_is_sold_or_is_in_stock_again(stage):
    on = stage("widgets")
    handles = [on.start("checkout", "widget", workflow_id=name) for name in "abc"]
    assert on.client.result("c") == "sold out"
    assert handles[0].query("payment_link") != handles[1].query("payment_link")
    handles[0].signal("payment", "paid")
    assert on.result("a") == "paid"
    assert on.result("b") == "cancelled"
    assert on.module.stock == {"widget": 1}
    assert on.module.orders == {"a": "arrives in 3", "b": "cancelled", "c": "sold out"}
    assert on.result("a/dispatch") is None
    assert on.module.orders["a"] == "delivered"


def test_a_counter_takes_calls_one_after_the_other_over_its_runs(stage):
    on = stage("counter")
    handle = on.start("counter", calls_max=3)
    assert handle.update("add", 2) == {"old": 0, "new": 2}
    with pytest.raises(UpdateRejected, match="never below 0"):
        handle.update("add", -3)
    answers = [handle.update("add", 1)["new"] for _ in range(7)]
    assert answers == [3, 4, 5, 6, 7, 8, 9]
    assert (handle.query("get"), on.client.describe_workflow("w").run) == (9, 3)


def test_an_order_knows_which_of_its_suppliers_deliver(stage):
    on = stage("orders")
    on.start("order", {"bolt": 2, "nut": 0, "gear": 40})
    assert on.result() == {"comes": ["bolt in 2 days"], "failed": ["nut"], "late": ["gear"]}
    assert on.client.describe_workflow("w/gear").status == "Cancelled"
    assert on.client.describe_workflow("w/news").status == "Running"
