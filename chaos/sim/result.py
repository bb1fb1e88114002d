"""What comes of a run."""

from __future__ import annotations

import msgspec

from chaos.auditor import Violation


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run."""

    seed: int
    violations: tuple[Violation, ...]
    trace: str
    events: int
    simulated_ms: int
    commits: int
    records: int
    flows: int
    operations: dict[str, int]
    fired: dict[str, int]
    goals: dict[str, int]

    @property
    def invariants(self) -> set[int]:
        """The numbers of what was violated."""
        return {violation.invariant for violation in self.violations}
