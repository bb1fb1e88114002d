"""A node whose every link is hurt by a relay comes to the same end, and does not know of it."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos.faults.link_faults import ROUTES, Plan, Rates
from chaos.faults.relay_process import RelayProcess
from chaos.harness import NodeProcess
from perdure.client import Client
from tests.process.conftest import until

pytestmark = pytest.mark.process
RATES = Rates(drop=0.05, double=0.2, delay=0.1, reorder=0.1, swallow=0.05)


def hurt(relay: RelayProcess) -> Counter[str]:
    """How many messages were not left alone, by what was done to them."""
    found: Counter[str] = Counter()
    for name, count in relay.fired().items():
        found[name.split()[1]] += count
    del found["passed"]
    return found


def test_work_ends_as_it_should_over_links_that_drop_double_delay_and_reorder():
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pr-")))
        relay = stack.enter_context(RelayProcess(directory / "r", seed=1))
        node = stack.enter_context(
            NodeProcess(
                directory,
                apps=("perdure.demo",),
                workers=2,
                slots=8,
                environment=relay.environment,
            )
        )
        node.start()
        client = stack.enter_context(Client(relay.endpoint, timeout_ms=20_000))
        relay.plan(Plan(dict.fromkeys(ROUTES, RATES)))
        ledger = directory / "effects.db"
        handles = [
            client.start_workflow(
                "FlakyDemo",
                workflow_id=f"w{number}",
                activities=6,
                work_ms=10,
                fail_rate=0.3,
                ledger=str(ledger),
            )
            for number in range(4)
        ]
        until(lambda: hurt(relay).total() >= 30, "thirty messages that are hurt")
        relay.heal()
        receipts = [receipt for handle in handles for receipt in handle.result(timeout_ms=40_000)]
        rows = list(sqlite3.connect(ledger).execute("SELECT receipt FROM demo_effects"))
        kinds, routes = hurt(relay), {name.split()[0] for name in relay.fired()}
    assert sorted(receipts) == sorted(receipt for (receipt,) in rows)
    assert len(set(receipts)) == 24
    assert len(kinds) >= 3
    assert routes <= set(ROUTES)
