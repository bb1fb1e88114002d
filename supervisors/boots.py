"""What each child is told at its start: a fresh incarnation, where everything is, and its role's
options.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

import msgspec
from msgspec import msgpack

from perdure.core import links
from perdure.core.boot import Boot
from perdure.core.ids import Session
from supervisors.child_spec import ChildSpec, Kind
from supervisors.config import NodeConfig
from supervisors.relayed import doors

_OF_HISTORY = (
    "dlq_after_attempts",
    "seed",
    "retention_ms",
    "audit_ms",
    "recovery_grace_ms",
    "reserve_bytes",
)


class Boots:
    """Makes the Boot of every start of every child of one node start."""

    def __init__(
        self,
        config: NodeConfig,
        node: str,
        data_dir: str,
        run_dir: str,
        public: tuple[str, ...],
    ) -> None:
        self._config = config
        self._node = node
        self._data_dir = data_dir
        self._run_dir = run_dir
        self._public = public
        self.root_endpoint = f"ipc://{run_dir}/root"
        self._doors = doors(run_dir)
        self.grace_ms = config.grace_ms
        self.cwd = os.path.abspath(config.cwd)
        # What workers that are started from now on load, and what that is called.
        self.application: tuple[tuple[str, ...], str] = (config.apps, config.build)

    def make(self, spec: ChildSpec, session: Session | None) -> Boot:
        """The Boot of a new life of this child; `session` is a worker's."""
        fresh = secrets.token_hex(5)
        is_worker = spec.kind is Kind.WORKER
        inbox = "" if is_worker else f"ipc://{self._run_dir}/{spec.id[:2]}.{fresh}"
        return Boot(
            role=spec.id,
            incarnation=f"{spec.id}.{fresh}",
            node=self._node,
            data_dir=self._data_dir,
            run_dir=self._run_dir,
            root_endpoint=self._doors.root,
            inbox_endpoint=inbox,
            public_endpoints=self._public,
            workers_endpoint=self._doors.workers if is_worker else f"ipc://{self._run_dir}/workers",
            log_json=self._config.log_json,
            options=self._options(spec, session),
        )

    @staticmethod
    def pack(boot: Boot) -> bytes:
        """The Boot as it goes to the child."""
        return msgpack.encode(boot)

    def _options(self, spec: ChildSpec, session: Session | None) -> dict[str, Any]:
        config = self._config
        if spec.kind is Kind.WORKER and session is not None:
            return {
                "apps": self.application[0],
                "build": self.application[1],
                "cwd": self.cwd,
                "slots": 1 if spec.on_demand else config.slots,
                "queues": config.queues,
                "ordinal": session.ordinal,
                "grace_ms": config.grace_ms,
                "worker_id": f"{spec.id}@{self._node.rpartition('.')[2]}",
                "quarantine": spec.on_demand,
            }
        if spec.id == links.OUTBOX:
            return {"outboxes": config.outboxes, "cwd": os.path.abspath(config.cwd)}
        if spec.id == links.SCHEDULER:
            return {"quarantine_max": config.workers, "rules": msgspec.to_builtins(config.rules)}
        if spec.id in (links.LEASE_KEEPER, links.GATEWAY):
            return {"recovery_grace_ms": config.recovery_grace_ms}
        if spec.id == links.HISTORY:
            said = {name: getattr(config, name) for name in _OF_HISTORY}
            bounds = msgspec.structs.asdict(config.bounds)
            return {**said, "bounds": bounds, "rules": msgspec.to_builtins(config.rules)}
        return {}
