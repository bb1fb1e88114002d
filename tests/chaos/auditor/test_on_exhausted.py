"""What the auditor says of activities that fail their workflow when they run out of retries."""

from __future__ import annotations

import pytest

from chaos.auditor import Auditor
from chaos.auditor.memory import ReaderTables
from perdure.core import attempt_ends
from perdure.core import commands as c
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import Rig


def violations(rig: Rig) -> list[tuple[int, str]]:
    reader = rig.store.reader()
    auditor = Auditor()
    for row in reader.commits(0, 1_000):
        auditor.feed(row)
    found = auditor.finish(ReaderTables(reader)).violations
    return [(one.invariant, one.what) for one in found]


def exhausted(rig: Rig, on_exhausted: str) -> None:
    rig.schedule(retry=RetryPolicy(max_attempts=1), on_exhausted=on_exhausted)
    rig.ask(c.FailActivity(rig.token(rig.grant()), Failure("Busy")))


@pytest.mark.parametrize("on_exhausted", ["park", "fail"])
def test_the_end_that_its_options_ask_for_is_clean(on_exhausted) -> None:
    rig = Rig()
    exhausted(rig, on_exhausted)
    assert violations(rig) == []


def test_a_failure_where_it_should_be_parked_is_none(monkeypatch) -> None:
    rig = Rig()
    rig.schedule(retry=RetryPolicy(max_attempts=1))
    monkeypatch.setattr(
        attempt_ends,
        "_dead_lettered",
        lambda execution, activity, failure, facts, news: attempt_ends.closed(
            execution, activity, failure, facts
        )[0],
    )
    rig.ask(c.FailActivity(rig.token(rig.grant()), Failure("Busy")))
    assert (20, "Busy closed it, and is neither final nor a deadline") in violations(rig)
