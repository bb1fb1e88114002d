"""What a child process is told at its start, and how incarnations are named."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.core.limits import GRACE_MS


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a child of the root needs to begin. `options` are the role's own."""

    role: str  # history, scheduler, lease_keeper, dlq, gateway, or worker-1, worker-2, ...
    incarnation: str  # "<role>.<hex>", never reused.
    node: str  # "node.<hex>": this start of the node.
    data_dir: str
    run_dir: str
    root_endpoint: str
    inbox_endpoint: str  # Where a core actor binds its inbox; empty for workers.
    public_endpoints: tuple[str, ...] = ()
    workers_endpoint: str = ""
    log_json: bool = True
    options: dict[str, Any] = {}

    @property
    def recovery_grace_ms(self) -> int:
        """What leases of before the present epoch get at the most."""
        grace_ms: int = self.options.get("recovery_grace_ms", GRACE_MS)
        return grace_ms
