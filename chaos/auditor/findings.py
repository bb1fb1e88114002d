"""What an audit says: violations by the number of their invariant, and counts."""

from __future__ import annotations

from collections import Counter

import msgspec

KEPT_PER_INVARIANT = 50
TEXT_CHARS_MAX = 400


class Violation(msgspec.Struct, frozen=True):
    """One thing that must never be: the invariant's number, where it shows, and what is there."""

    invariant: int
    where: str
    what: str

    def __str__(self) -> str:
        return f"invariant {self.invariant}, {self.where}: {self.what}"


class Operations(msgspec.Struct, frozen=True):
    """What clients heard, as their histories say it."""

    ok: int = 0
    refused: int = 0
    unknown: int = 0


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one store. `violations` holds at most 50 for each invariant; `found` has all.

    `base_n` is the commit after which the log begins (0: it is whole). `not_checked` says in words
    what this run could not look at; `took_ms` is 0 where nobody measured it.
    """

    violations: tuple[Violation, ...]
    found: dict[int, int]
    commits: int
    records: int
    epochs: int
    base_n: int
    last_n: int
    workflows: int
    open_workflows: int
    activities: int
    attempts: int
    dead_letters: int
    events_compared: int
    deliveries: int
    effects: int
    operations: Operations
    not_checked: tuple[str, ...]
    took_ms: int = 0

    @property
    def is_clean(self) -> bool:
        """True where nothing was found."""
        return not self.violations

    @property
    def invariants(self) -> set[int]:
        """The numbers of all that is violated."""
        return set(self.found)


class Findings:
    """Collects violations while an audit runs."""

    def __init__(self) -> None:
        self.kept: list[Violation] = []
        self.count: Counter[int] = Counter()
        self.notes: dict[str, None] = {}

    def add(self, invariant: int, where: str, what: str) -> None:
        """Note a violation; beyond the first 50 of an invariant it is only counted."""
        self.count[invariant] += 1
        if self.count[invariant] <= KEPT_PER_INVARIANT:
            self.kept.append(Violation(invariant, where, _short(" ".join(what.split()))))

    def note(self, text: str) -> None:
        """Say what was not checked, once."""
        self.notes[text] = None


def _short(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"
