"""Every finding there is: its code, severity, and what it means, in the order of reports."""

from __future__ import annotations

from typing import Final

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"
INFO: Final = "info"
SEVERITIES: Final = (HIGH, MEDIUM, LOW, INFO)

GUIDE: Final = "docs/policy/README.md"

# The order within a severity; RETRY_UNSAFE and AMPLIFICATION lead.
TWELVE: Final[dict[str, tuple[str, str]]] = {
    "RETRY_UNSAFE": (HIGH, "Retries a call that is not idempotent and carries no key"),
    "AMPLIFICATION": (HIGH, "One call at the top can become too many at the innermost dependency"),
    "INNER_OUTLIVES_CALLER": (HIGH, "Works on after its caller has given up"),
    "HOT_LOOP": (HIGH, "Retries without waiting"),
    "NO_PER_TRY_TIMEOUT": (HIGH, "One try may hang for ever"),
    "NO_JITTER": (MEDIUM, "Clients that failed together retry together"),
    "NO_CAP": (MEDIUM, "Nothing bounds the growing delay"),
    "RETRY_ON_4XX": (MEDIUM, "Retries what will fail the same way again"),
    "NO_DEADLINE": (MEDIUM, "Nothing bounds the whole call"),
    "IGNORES_RETRY_AFTER": (MEDIUM, "Retries before the server asked it to"),
    "DEADLINE_TOO_SHORT": (MEDIUM, "The deadline ends before one try may"),
    "TOO_MANY_ATTEMPTS": (LOW, "More tries than help"),
}

FURTHER: Final[dict[str, tuple[str, str]]] = {
    "UNBOUNDED_RETRY": (HIGH, "Retries without an end"),
    "PER_TRY_IGNORED": (HIGH, "The per-try timeout never fires"),
    "NEVER_RETRIES_TIMEOUT": (HIGH, "A try that hangs uses up the whole deadline"),
    "TRIES_DO_NOT_FIT": (HIGH, "Attempts that the deadline leaves no time for"),
    "HIDDEN_LAYER": (HIGH, "A library or mesh retries by default, below another policy"),
    "JITTER_LOST_AT_CAP": (HIGH, "At the cap all clients wait equally long"),
    "HEDGE_UNSAFE": (HIGH, "Hedges a call that is not idempotent"),
    "LEASE_TOO_SHORT": (HIGH, "The attempt is given away while its client still retries"),
    "RETRY_TOWER": (HIGH, "Retries of the engine, the client and the mesh multiply"),
    "KEY_NOT_STABLE": (HIGH, "The idempotency key changes from try to try"),
    "CAPPED_BY_CLIENT": (MEDIUM, "The client allows fewer attempts than configured"),
    "FIRST_RETRY_IMMEDIATE": (MEDIUM, "The first retry does not wait"),
    "RETRY_AFTER_TOO_LONG": (MEDIUM, "Retry-After is obeyed without a sensible limit"),
    "RETRY_AFTER_TRUNCATED": (MEDIUM, "Retry-After is cut short"),
    "RETRY_AFTER_DISCARDED": (MEDIUM, "A long Retry-After is thrown away"),
    "NO_BUDGET": (MEDIUM, "No budget or breaker bounds the retries of an outage"),
    "BUDGET_PER_OBJECT": (MEDIUM, "The retry quota belongs to one client object"),
    "CONCURRENT_RETRY_LIMIT": (MEDIUM, "Concurrent retries are refused above a small number"),
    "BREAKER_CANNOT_TRIP": (MEDIUM, "There is too little traffic for the breaker ever to open"),
    "BREAKER_COUNTS_CLIENT_ERRORS": (MEDIUM, "The breaker counts the caller's own mistakes"),
    "DLQ_BEFORE_OUTAGE_ENDS": (MEDIUM, "All retries are over before a long outage is"),
    "NOT_STATICALLY_KNOWN": (MEDIUM, "A setting can't be read from the source"),
    "DEADLINE_OVERSHOOTS": (MEDIUM, "The deadline is looked at before the wait, not after it"),
    "LAST_TRY_CUT": (LOW, "The last try can't use its full time"),
    "DELAY_EXCEEDS_CAP": (LOW, "Jitter lifts the delay above its cap"),
    "SHARED_THROTTLE": (LOW, "Unrelated methods share one retry throttle"),
    "STREAM_NOT_RETRYABLE": (LOW, "A stream is retried only up to its first message"),
    "ATTEMPTS_ARE_RETRIES": (INFO, "The setting counts retries: one more try is made"),
    "ASSUMED": (INFO, "A value nobody has set"),
}

CODES: Final = TWELVE | FURTHER
_RANK: Final = {code: index for index, code in enumerate(CODES)}


def severity(code: str) -> str:
    """How bad a finding is; medium for a code that only a newer version knows."""
    return CODES[code][0] if code in CODES else MEDIUM


def rank(code: str) -> tuple[int, int]:
    """The place of a finding among others: severity first."""
    return SEVERITIES.index(severity(code)), _RANK.get(code, len(_RANK))
