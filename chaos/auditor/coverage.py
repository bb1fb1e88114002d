"""What of the 49 invariants of the specification data can show, and who looks at the rest."""

from __future__ import annotations

from typing import NamedTuple

LOG = "log"
TABLES = "tables"
LEDGER = "ledger"
HISTORY = "history"
SETTLED = "settled"  # Only of a run that was left alone until nothing moved.
NOWHERE = "not in data"

NO_LEDGER = "invariants 38 to 40 and 42: no ledger was given"
NO_HISTORY = "invariants 5, 7, 8 and 14: no client history was given"
_WANTS = {
    LEDGER: "with --ledger",
    HISTORY: "with --history",
    SETTLED: "of a run that has settled",
    NOWHERE: "not in data; looked at by",
}


class Coverage(NamedTuple):
    """One invariant: what shows it, and how, or what covers it instead."""

    name: str
    sources: tuple[str, ...]
    how: str


COVERAGE: dict[int, Coverage] = {
    1: Coverage("dense order", (LOG,), "commit numbers rise by one; body and row agree"),
    2: Coverage("chain", (LOG,), "each hash is computed anew from the one before and the body"),
    3: Coverage(
        "epochs fence writers",
        (LOG, TABLES),
        "epochs rise by one, each opened once, first, and alone; the epoch table agrees",
    ),
    4: Coverage("answer only after sync", (NOWHERE,), "drills powerloss and boundaries; simulator"),
    5: Coverage("an acknowledged submit is not lost", (HISTORY,), "each ok start is in the log"),
    6: Coverage(
        "submit is idempotent",
        (LOG, HISTORY),
        "one start a workflow; ok means the same request and arguments",
    ),
    7: Coverage("no phantom", (HISTORY,), "each start was asked for; needs all clients' histories"),
    8: Coverage("refused means never", (HISTORY,), "no record of a refused start or resolution"),
    9: Coverage(
        "recovery is a prefix",
        (HISTORY, TABLES),
        "no answer, and no epoch of the table, is of a commit beyond the log's end",
    ),
    10: Coverage(
        "batches are atomic", (LOG,), "a commit is one row, of one instant (results apart)"
    ),
    11: Coverage(
        "state is the fold",
        (LOG, TABLES),
        "the auditor's own fold against every row of every table, schedules and pauses too;"
        " projections: simulator",
    ),
    12: Coverage("no projection runs ahead", (NOWHERE,), "projections keep no state; simulator"),
    13: Coverage("the fold is total", (LOG, TABLES), "every record and row is read and known"),
    14: Coverage(
        "sessions go forward", (HISTORY,), "what was known before a request stands before it"
    ),
    15: Coverage("one live lease", (LOG,), "no grant while a lease is live"),
    16: Coverage("tokens are unique", (LOG,), "grants rise by one; reports name their worker"),
    17: Coverage("a stale token changes nothing", (LOG,), "each report bears the live grant"),
    18: Coverage("a forged token changes nothing", (LOG,), "each report bears a granted grant"),
    19: Coverage("attempts rise by one", (LOG,), "also over leases handed back uncharged"),
    20: Coverage("attempts are bounded", (LOG,), "parked, retried or failed as the policy says"),
    21: Coverage(
        "no early expiry",
        (LOG,),
        "deadlines computed anew, with the grace of a restart; what is left open or polled for"
        " does not end with a worker",
    ),
    22: Coverage(
        "every lease closes once", (LOG,), "never twice; at all, where the run has settled"
    ),
    23: Coverage("heartbeats are monotone", (LOG,), "their numbers rise"),
    24: Coverage(
        "details carry over", (LOG, TABLES), "what the next attempt gets, against the fold"
    ),
    25: Coverage("retry time", (LOG,), "the drawn delay against backoff, floor and what was asked"),
    26: Coverage("no early dispatch", (LOG,), "no grant before it is due"),
    27: Coverage("timers fire once", (LOG, TABLES), "known, once, not early; rows agree"),
    28: Coverage(
        "limits hold",
        (LOG,),
        "nothing that is paused is leased; rates, concurrency, breakers and budgets: simulator",
    ),
    29: Coverage("one terminal", (LOG,), "no second end of an activity"),
    30: Coverage(
        "a result is the live attempt's",
        (LOG, TABLES, LEDGER),
        "worker and start are the lease's; the stored result is the logged one",
    ),
    31: Coverage(
        "dead letter means waiting",
        (LOG, TABLES),
        "left only by an operator; the index is what the log gives",
    ),
    32: Coverage("redrive", (LOG,), "from a dead letter, next generation, one record a request"),
    33: Coverage("cancel wins or loses once", (LOG,), "nothing follows it; no-ops are marked"),
    34: Coverage(
        "order of the workflow",
        (LOG, TABLES),
        "events are dense, one end, nothing after; runs follow each other, children their parents",
    ),
    35: Coverage(
        "replay agrees",
        (LOG,),
        "commands are counted and come from a workflow task; code is replayed by perdure verify",
    ),
    36: Coverage("nobody falls through", (LOG, TABLES), "each open activity and timer has its row"),
    37: Coverage("liveness", (SETTLED,), "what is open waits for an operator; drills, simulator"),
    38: Coverage("each key applied once", (LEDGER,), "deliveries, effects and keys agree"),
    39: Coverage(
        "completed means applied", (LEDGER,), "for the types that a ledger covers; receipts"
    ),
    40: Coverage("applied means leased", (LEDGER,), "each delivery's token is a grant's"),
    41: Coverage("keys are distinct", (LOG,), "no activity id is used twice in a workflow"),
    42: Coverage("fenced sinks", (LEDGER,), "no effect under a fence below one seen"),
    43: Coverage("one writer", (LOG,), "seen as 3 and 1; the lock itself: tests/process"),
    44: Coverage("no orphans", (NOWHERE,), "tests/process; every drill at its end"),
    45: Coverage("restart intensity", (NOWHERE,), "tests/supervisors"),
    46: Coverage("bounded", (NOWHERE,), "tests/process; drill storm; soaks"),
    47: Coverage(
        "no anonymous change",
        (LOG,),
        "in part: who says that another started it was started by that one; a report's worker is"
        " its lease's; who asked: tests/process",
    ),
    48: Coverage("bad input is inert", (NOWHERE,), "tests/process of the raw wire"),
    49: Coverage("no leaks", (NOWHERE,), "tests/process, with canaries, of logs and refusals"),
}


def looked_at(sources: frozenset[str]) -> list[int]:
    """The numbers that a run with these sources looks at, if only in part."""
    return [number for number, one in COVERAGE.items() if not sources.isdisjoint(one.sources)]


def left_out(sources: frozenset[str]) -> dict[int, str]:
    """Why a run with these sources does not look at a number, and what would: for each of them."""
    looked = set(looked_at(sources))
    return {
        number: f"{_WANTS[one.sources[0]]}: {one.how}"
        for number, one in COVERAGE.items()
        if number not in looked
    }


def grouped(sources: frozenset[str]) -> list[str]:
    """The same for people, in a line for each reason: "38-40, 42: give --ledger"."""
    looked = set(looked_at(sources))
    by_source: dict[str, list[int]] = {}
    for number, one in COVERAGE.items():
        if number not in looked:
            by_source.setdefault(one.sources[0], []).append(number)
    texts = {
        LEDGER: "give --ledger",
        HISTORY: "give --history",
        SETTLED: "only at the end of a drill, when nothing moves any more",
        NOWHERE: "not in data; tests and drills look: docs/invariants.md",
    }
    return [f"{ranges(by_source[it])}: {text}" for it, text in texts.items() if it in by_source]


def ranges(numbers: list[int]) -> str:
    """Numbers for people: "1-3, 5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in parts)
