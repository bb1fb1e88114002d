"""The receiver of the effects, outside of the node: applies a key once, keeps every delivery."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from chaos.auditor import Delivery, Ledger
from perdure.core.ids import idempotency_key

if TYPE_CHECKING:
    from chaos.sim.world import World


def _token_hash(token: str) -> str:
    """As perdure.effects keeps it."""
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()


COVERS = frozenset({"sync", "async"})


class Sink:
    """Honours the key, and nothing else: what arrives twice is applied once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.deliveries: list[Delivery] = []
        self.receipts: dict[str, str] = {}

    def apply(
        self,
        workflow_id: str,
        activity_id: str,
        token: str,
        attempt: int,
        *,
        fence: int | None = None,
        payload: bytes | None = None,
        size: int = 0,
        key: str = "",
    ) -> str:
        """The effect, once a key: the receipt of its first application, made `size` longer."""
        key = key or idempotency_key(workflow_id, activity_id)
        receipt = self.receipts.get(key)
        applied = receipt is None
        if receipt is None:
            receipt = self.receipts[key] = f"{key} by attempt {attempt}" + "." * size
        else:
            self._world.goal("an effect was delivered twice")
        hashed = None if payload is None else hashlib.blake2b(payload, digest_size=8).hexdigest()
        self.deliveries.append(Delivery(key, attempt, _token_hash(token), fence, hashed, applied))
        return receipt

    def ledger(self) -> Ledger:
        """All of it, for the auditor."""
        return Ledger(
            name="sink", deliveries=self.deliveries, covers=COVERS, receipts=dict(self.receipts)
        )
