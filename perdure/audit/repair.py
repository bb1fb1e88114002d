"""A repaired chain, with the reason for each change and what no setting can repair.

Retry at one layer only; full jitter under a cap; inner calls that end before their caller gives up,
with a margin; deadlines that shrink inwards; of the 4xx only 408 and 429; Retry-After honoured.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.audit import words
from perdure.audit.chain import Chain, tidy
from perdure.audit.delays import delays
from perdure.audit.findings import (
    ATTEMPTS_ADVISED_MAX,
    BASE_ADVISED_MS,
    HOPELESS_4XX,
    WITH_RETRY_AFTER,
    keeper,
    statuses,
)
from perdure.audit.review import Review, audit

ATTEMPTS_ADVISED = 3
CAP_ADVISED_MS = 2_000.0
PER_TRY_GUESSED_MS = 10_000.0
# The share of a caller's per-try timeout that an inner call may use up: answers travel too.
MARGIN = 0.9


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of one layer (its index): what it was, what it should be, and why."""

    layer: int
    key: str
    before: Any
    after: Any
    reason: str


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """The chain before and after, both audited; `left` is what somebody has to do."""

    before: Review
    after: Review
    changes: tuple[Change, ...]
    left: tuple[str, ...]


def repair(chain: Chain, *, with_keys: bool = False) -> Repair:
    """The repair of `chain`. `with_keys`: as it can be once every write carries a key."""
    if chain.alternatives:
        return _side_by_side(chain, with_keys)
    plan = _Plan(chain, with_keys)
    plan.choose_the_retrying_layer()
    for index in range(len(chain.layers)):
        plan.repair_conditions(index)
        plan.repair_delays(index)
        plan.repair_times(index)
    after = replace(chain, layers=tuple(plan.layers))
    return Repair(
        before=audit(chain),
        after=audit(after),
        changes=tuple(plan.changes),
        left=tuple(_left(chain, after, plan.guessed)),
    )


def _side_by_side(chain: Chain, with_keys: bool) -> Repair:
    """Each layer repaired as a chain of its own."""
    alone = [
        repair(replace(chain, layers=(layer,), alternatives=False), with_keys=with_keys)
        for layer in chain.layers
    ]
    after = replace(chain, layers=tuple(each.after.chain.layers[0] for each in alone))
    changes = [
        replace(change, layer=index) for index, each in enumerate(alone) for change in each.changes
    ]
    left = dict.fromkeys(text for each in alone for text in each.left)
    return Repair(before=audit(chain), after=audit(after), changes=tuple(changes), left=tuple(left))


class _Plan:
    """The layers as they become, and what was changed on the way."""

    def __init__(self, chain: Chain, with_keys: bool) -> None:
        self.limit = chain.max_amplification
        self.layers = list(chain.layers)
        self.changes: list[Change] = []
        self.guessed: list[int] = []
        for index, layer in enumerate(chain.layers):
            if with_keys and not layer.is_safe:
                self.set(index, "idempotency_key", True, "a write is repeated only with a key")

    def set(self, index: int, key: str, value: Any, reason: str) -> None:
        layer = self.layers[index]
        before = getattr(layer, key)
        if before == value:
            return
        self.changes.append(
            Change(
                layer=index,
                key=key,
                before=tidy(msgspec.to_builtins(before)),
                after=tidy(msgspec.to_builtins(value)),
                reason=reason,
            )
        )
        origin = layer.origin
        if origin is not None:
            origin = origin | {key: "proposed"}
        assumed = tuple(name for name in layer.assumed if name != key)
        self.layers[index] = replace(layer, **{key: value}, origin=origin, assumed=assumed)

    def choose_the_retrying_layer(self) -> None:
        kept = keeper(Chain(name="", layers=tuple(self.layers)))
        for index, layer in enumerate(self.layers):
            if not layer.retries:
                continue
            if not layer.is_safe:
                reason = "a write without a key is not sent twice"
                self._retry_no_more(index, reason)
            elif index != kept:
                reason = f"only one layer retries: {self.layers[kept].name!r}"
                self._retry_no_more(index, reason)
            else:
                self._limit_attempts(index)

    def _retry_no_more(self, index: int, reason: str) -> None:
        self.set(index, "attempts", 1, reason)
        self.layers[index] = replace(self.layers[index], unbounded=False, notes=())

    def _limit_attempts(self, index: int) -> None:
        layer = self.layers[index]
        attempts = layer.attempts
        if layer.unbounded or attempts > ATTEMPTS_ADVISED_MAX:
            attempts = ATTEMPTS_ADVISED
        attempts = max(1, min(attempts, int(self.limit)))
        self.layers[index] = replace(layer, unbounded=False)
        self.set(index, "attempts", attempts, "more tries load an outage and seldom help")

    def repair_conditions(self, index: int) -> None:
        layer = self.layers[index]
        kept = tuple(item for item in layer.retry_on if not _is_hopeless(item))
        self.set(index, "retry_on", kept, "of the 4xx only 408 and 429 may pass")
        if layer.retries and statuses(layer) & WITH_RETRY_AFTER:
            self.set(index, "respect_retry_after", True, "the server knows when it can be asked")

    def repair_delays(self, index: int) -> None:
        layer = self.layers[index]
        if not layer.retries:
            return
        if layer.base_delay_ms == 0 and not layer.steps_ms:
            self.set(index, "base_delay_ms", BASE_ADVISED_MS, "no retry follows at once")
        if layer.jitter in ("none", "additive"):
            self.set(index, "jitter", "full", "clients that failed together come back apart")
        if layer.max_delay_ms is None:
            cap = max(CAP_ADVISED_MS, self.layers[index].base_delay_ms * 4)
            self.set(index, "max_delay_ms", cap, "no delay grows without a bound")
        elif layer.max_delay_ms == 0:
            self.set(
                index, "max_delay_ms", CAP_ADVISED_MS, "a cap of 0 makes every retry immediate"
            )

    def repair_times(self, index: int) -> None:
        """Per-try timeout and deadline, within what the caller waits for."""
        allowed = self._allowed_ms(index)
        layer = self.layers[index]
        waits = sum(delay.most for delay in delays(layer))
        per_try = layer.per_try_timeout_ms
        if per_try is None:
            self._guess_per_try(index, min(layer.deadline_ms or math.inf, allowed), waits)
            per_try = self.layers[index].per_try_timeout_ms or 1.0
        needed = layer.attempts * per_try + waits
        deadline = layer.deadline_ms
        if deadline is None and (layer.retries or allowed < math.inf):
            deadline = min(allowed, _upwards(needed * 1.1))
            reason = "nothing works longer than somebody waits; deadlines shrink inwards"
            self.set(index, "deadline_ms", _downwards(deadline), reason)
        elif deadline is not None and deadline > allowed:
            reason = "it ends before its caller gives up, with a margin for the way back"
            self.set(index, "deadline_ms", _downwards(allowed), reason)
        self._fit_tries(index, waits)

    def _allowed_ms(self, index: int) -> float:
        """What the whole call may last, from its caller's per-try timeout; infinity at the top."""
        caller = self.layers[index - 1] if index else None
        if caller is None or caller.per_try_timeout_ms is None:
            return math.inf
        return max(1.0, caller.per_try_timeout_ms * MARGIN)

    def _guess_per_try(self, index: int, allowed: float, waits: float) -> None:
        attempts = self.layers[index].attempts
        if allowed < math.inf:
            per_try = max(1.0, _downwards((allowed - waits) / attempts))
        else:
            per_try = PER_TRY_GUESSED_MS
        self.guessed.append(index)
        reason = "one try must end; a guess until its slowest normal answer is measured"
        self.set(index, "per_try_timeout_ms", per_try, reason)

    def _fit_tries(self, index: int, waits: float) -> None:
        """Every try gets its full time: fewer tries first if waits alone leave no room."""
        layer = self.layers[index]
        deadline, per_try = layer.deadline_ms, layer.per_try_timeout_ms
        if deadline is None or per_try is None or layer.attempts * per_try + waits <= deadline:
            return
        if waits > deadline / 2:
            cap = max(1.0, _downwards(deadline / (4 * (layer.attempts - 1))))
            self.set(index, "max_delay_ms", cap, "the waits must leave time for the tries")
            waits = sum(delay.most for delay in delays(self.layers[index]))
        fitting = max(1.0, _downwards((deadline - waits) / layer.attempts))
        self.set(
            index,
            "per_try_timeout_ms",
            min(per_try, fitting),
            f"{words.times(layer.attempts, 'full try', 'full tries')} must fit in the deadline",
        )


def _is_hopeless(item: int | str) -> bool:
    return item in HOPELESS_4XX or str(item).casefold() in ("4xx", "retriable-4xx")


def _downwards(value: float) -> float:
    """A round number not above `value`: 6466.7 becomes 6460."""
    if value < 100:
        return float(math.floor(value)) if value >= 1 else value
    return float(math.floor(value / 10) * 10)


def _upwards(value: float) -> float:
    return float(math.ceil(value / 100) * 100)


# --- what is left ------------------------------------------------------------


def _left(before: Chain, after: Chain, guessed: list[int]) -> list[str]:
    left = []
    retrying = [index for index, layer in enumerate(after.layers) if layer.retries]
    for index, layer in enumerate(after.layers):
        if not layer.is_safe:
            left.append(_key_text(before, after, retrying, index))
    for index in guessed:
        left.append(
            f"Measure how long {after.layers[index].callee} takes to answer: the per-try timeout "
            f"of {words.length(after.layers[index].per_try_timeout_ms)} is a guess."
        )
    if retrying and not any(each.retry_budget or each.circuit_breaker for each in after.layers):
        name = after.layers[retrying[0]].name
        left.append(
            f"Add a retry budget at {name!r} (retries at most 10 to 20 % of the requests) or a "
            "circuit breaker (open at half of at least 20 calls, for 30 s): in an outage these "
            f"{after.layers[retrying[0]].attempts} tries are made for every request."
        )
    left.append(
        "Pass what is left of the deadline down the chain (grpc-timeout, or a header), and stop "
        "when it is used up."
    )
    left.append(
        "Watch tries per request at every layer, calls cut by a timeout, and work done for callers "
        "that have gone; alert when retries pass 10 % of the requests."
    )
    return left


def _key_text(before: Chain, after: Chain, retrying: list[int], index: int) -> str:
    layer = after.layers[index]
    above = [after.layers[each].name for each in retrying if each < index]
    text = f"{layer.name!r} writes without an idempotency key, and no setting can repair that."
    if before.layers[index].retries:
        text += " It makes one try now; retry it again only when a key is there."
    if above:
        text += (
            f" It stays unsafe: the retries of {above[0]!r} reach it too, until a key made before "
            "the first of them is passed down to it."
        )
    return text + " The receiver must keep key and result for a day or more."


def as_json(found: Repair) -> dict[str, Any]:
    """The repair as JSON: the chain, each change, both audits, what is left."""
    from perdure.audit.chain import as_data
    from perdure.audit.review import as_json as review_json

    names = [layer.name for layer in found.before.chain.layers]
    return {
        "chain": as_data(found.after.chain),
        "changes": [
            {
                "layer": names[each.layer],
                "key": each.key,
                "before": each.before,
                "after": each.after,
                "reason": each.reason,
            }
            for each in found.changes
        ],
        "before": review_json(found.before),
        "after": review_json(found.after),
        "left": list(found.left),
    }
