"""Post: an application that says a little of all that is said between actors.

Each workflow sends letters that fail by chance, one parcel whose attempts say how far they are, and
one letter that comes back as a dead letter, to be redriven. Every effect goes to the ledger of
FlakyDemo. Leases are short: what got lost on the way ends soon.
"""

from __future__ import annotations

import asyncio
import time

from perdure import activity, workflow
from perdure.demo import Ledger, chance
from perdure.policy import RetryPolicy

LEASE_MS = 4_000
HEARTBEAT_MS = 2_500
LETTERS = 4
PARTS = 4
PAUSE_MS = 150
WORK_MS = 40
EFFECTS = LETTERS + 2
RETURNED_ATTEMPTS = 2
RETURNED = "returned"

_ledgers: dict[str, Ledger] = {}
# Whatever happens to messages, nothing but `returned` is to be parked.
_RETRY = RetryPolicy(initial_ms=50, backoff=2.0, max_interval_ms=500, max_attempts=1_000)
_RETRY_RETURNED = RetryPolicy(initial_ms=20, backoff=1.0, max_attempts=RETURNED_ATTEMPTS)


def _ledger(path: str) -> Ledger:
    found = _ledgers.get(path)
    if found is None:
        found = _ledgers.setdefault(path, Ledger(path))
    return found


class _Attempt:
    """This attempt, and what the ledger is told of it."""

    def __init__(self, ledger: str) -> None:
        self._book = _ledger(ledger)
        self._key, self._token = activity.idempotency_key(), activity.task_token()
        self._attempt = activity.attempt()
        self._run = self._book.began(self._key, self._attempt, self._token)

    def luck(self, seed: int) -> float:
        return chance(seed, self._key, self._attempt)

    def fails(self, why: str) -> activity.Error:
        self._book.ended(self._run, f"failed {why}")
        return activity.Error("Lost", f"attempt {self._attempt} failed {why}")

    def applies(self) -> str:
        receipt = self._book.apply(self._key, self._attempt, self._token)
        self._book.applied(self._run)
        return receipt

    def returns(self, receipt: str) -> str:
        self._book.ended(self._run, "returned")
        return receipt


@activity.define(retry=_RETRY, start_to_close_ms=LEASE_MS)
def letter(seed: int, ledger: str) -> str:
    """Fails before or after its effect, one attempt in three."""
    attempt = _Attempt(ledger)
    luck = attempt.luck(seed)
    time.sleep(WORK_MS / 1_000)
    if luck < 0.15:
        raise attempt.fails("before its effect")
    receipt = attempt.applies()
    if luck < 0.3:
        raise attempt.fails("after its effect")
    return attempt.returns(receipt)


@activity.define(retry=_RETRY, start_to_close_ms=3 * LEASE_MS, heartbeat_ms=HEARTBEAT_MS)
def parcel(seed: int, ledger: str) -> str:
    """Goes on where an earlier attempt was, by its heartbeats; fails in between."""
    attempt = _Attempt(ledger)
    done = activity.heartbeat_details(int) or 0
    luck = attempt.luck(seed)
    for part in range(done + 1, PARTS + 1):
        time.sleep(WORK_MS / 1_000)
        activity.record_heartbeat(part)
        if luck < 0.3 and part == PARTS - 1:
            raise attempt.fails("before its effect")
    return attempt.returns(attempt.applies())


@activity.define(retry=_RETRY_RETURNED, start_to_close_ms=LEASE_MS)
def returned(ledger: str) -> str:
    """Fails until an operator gives it another chance."""
    attempt = _Attempt(ledger)
    if activity.info().generation == 1:
        raise attempt.fails("before its effect")
    return attempt.returns(attempt.applies())


@workflow.define(name="Post")
async def post(seed: int, ledger: str) -> list[str]:
    """The receipts of all effects."""
    receipts = []
    sent = workflow.start_activity(parcel, seed, ledger, activity_id="parcel")
    for number in range(1, LETTERS + 1):
        receipt = await workflow.execute_activity(
            letter, seed, ledger, activity_id=f"letter-{number}"
        )
        receipts.append(receipt)
        await asyncio.sleep(PAUSE_MS / 1_000)
    receipts.append(await sent)
    receipts.append(await workflow.execute_activity(returned, ledger, activity_id=RETURNED))
    return receipts
