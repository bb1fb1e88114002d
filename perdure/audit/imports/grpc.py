"""gRPC service config: tries above five are cut, jitter is 20 % either way, one throttle for all.

Source: gRPC proposal A6 (client retries) as amended, and grpc-go's implementation.
"""

from __future__ import annotations

from typing import Any

from perdure.audit.chain import Layer
from perdure.audit.imports.draft import Draft
from perdure.audit.imports.text import Path, Text
from perdure.errors import InvalidArgument

ATTEMPTS_IN_EFFECT_MAX = 5
JITTER_SPREAD = 0.2
SAFE_CODES = frozenset({"UNAVAILABLE"})
CODES = tuple(
    """
    OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS
    PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED
    INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED
    """.split()  # noqa: SIM905
)


def layers(texts: list[Text]) -> list[Layer]:
    """A layer for every method config. InvalidArgument for what gRPC would refuse."""
    found = []
    for text in texts:
        configs = text.get(("methodConfig",))
        if not isinstance(configs, list) or not configs:
            raise InvalidArgument(f"{text.file}: no methodConfig in it")
        for index in range(len(configs)):
            found.append(_method(text, ("methodConfig", index)))
    return found


def _method(text: Text, path: Path) -> Layer:
    draft = Draft("grpc", f"grpc client -> {_names(text.get((*path, 'name')))}", text.file)
    timeout = text.duration_ms((*path, "timeout"))
    if timeout:
        draft.given("deadline_ms", timeout, text.line((*path, "timeout")), "timeout")
    else:
        draft.default("deadline_ms", None, "library default: none")
    draft.default("per_try_timeout_ms", None, "the service config has none")
    retry, hedging = (*path, "retryPolicy"), (*path, "hedgingPolicy")
    if text.get(retry) is not None and text.get(hedging) is not None:
        raise InvalidArgument(
            f"{text.where(path)}: retryPolicy and hedgingPolicy exclude each other"
        )
    if text.get(retry) is not None:
        _retry(draft, text, retry)
        _throttling(draft, text)
    elif text.get(hedging) is not None:
        _hedging(draft, text, hedging)
        _throttling(draft, text)
    else:
        draft.default("attempts", 1, "no retryPolicy: no configured retries")
        draft.default("per_try_timeout_ms", draft.value("deadline_ms"), "the call's timeout")
    return draft.layer()


def _names(names: Any) -> str:
    shown = []
    for name in names if isinstance(names, list) else []:
        if isinstance(name, dict):
            parts = [str(name[key]) for key in ("service", "method") if name.get(key)]
            shown.append("/".join(parts) or "every method")
    return ", ".join(shown) or "every method"


def _required(text: Text, path: Path, value: Any) -> Any:
    if value is None or value == 0:
        raise InvalidArgument(f"{text.where(path)}: is required, and must be greater than 0")
    return value


def _attempts(draft: Draft, text: Text, policy: Path) -> None:
    path = (*policy, "maxAttempts")
    attempts = text.whole(path)
    if attempts is None or attempts < 2:
        raise InvalidArgument(
            f"{text.where(path)}: must be a whole number greater than 1; it includes the first try"
        )
    line = text.line(path)
    if attempts > ATTEMPTS_IN_EFFECT_MAX:
        draft.note(
            "CAPPED_BY_CLIENT",
            f"{attempts} configured, {ATTEMPTS_IN_EFFECT_MAX} in effect: gRPC cuts maxAttempts "
            "silently; write 5 or less",
        )
    draft.given("attempts", min(attempts, ATTEMPTS_IN_EFFECT_MAX), line, f"maxAttempts {attempts}")


def _retry(draft: Draft, text: Text, policy: Path) -> None:
    _attempts(draft, text, policy)
    for ours, theirs in (("base_delay_ms", "initialBackoff"), ("max_delay_ms", "maxBackoff")):
        path = (*policy, theirs)
        draft.given(ours, _required(text, path, text.duration_ms(path)), text.line(path), theirs)
    path = (*policy, "backoffMultiplier")
    multiplier = _required(text, path, text.number(path))
    draft.given(
        "multiplier", max(1, multiplier), text.line(path), f"backoffMultiplier {multiplier:g}"
    )
    draft.default("jitter", "symmetric", "fixed by gRPC: 20 % either way")
    draft.default("jitter_spread", JITTER_SPREAD, "fixed by gRPC")
    draft.default("respect_retry_after", True, "fixed by gRPC: grpc-retry-pushback-ms is obeyed")
    _codes(draft, text, (*policy, "retryableStatusCodes"))


def _codes(draft: Draft, text: Text, path: Path) -> None:
    codes = text.get(path)
    if not isinstance(codes, list) or not codes:
        raise InvalidArgument(f"{text.where(path)}: is required, and must not be empty")
    names = [_code(text, path, code) for code in codes]
    draft.given("retry_on", names, text.line(path), "retryableStatusCodes")
    if set(names) <= SAFE_CODES:
        draft.default("idempotent", True, "UNAVAILABLE alone is taken as not yet carried out")
    else:
        other = ", ".join(name for name in names if name not in SAFE_CODES)
        draft.default("idempotent", False, f"{other} can follow a call that was carried out")


def _code(text: Text, path: Path, code: Any) -> str:
    if isinstance(code, int) and not isinstance(code, bool) and 0 <= code < len(CODES):
        return CODES[code]
    if isinstance(code, str) and code.upper() in CODES:
        return code.upper()
    raise InvalidArgument(f"{text.where(path)}: {code!r} is no gRPC status code")


def _hedging(draft: Draft, text: Text, policy: Path) -> None:
    _attempts(draft, text, policy)
    delay = text.duration_ms((*policy, "hedgingDelay")) or 0
    line = text.line((*policy, "hedgingDelay"))
    draft.given("base_delay_ms", delay, line, "hedgingDelay")
    draft.given("multiplier", 1, line, "hedging waits equally long each time")
    draft.given("max_delay_ms", delay, line, "hedgingDelay")
    draft.default("jitter", "none", "hedging has none")
    draft.default("idempotent", False, "the service config does not say")
    draft.note(
        "HEDGE_UNSAFE",
        f"up to {draft.value('attempts')} copies of a call run at once, one more every "
        f"{delay:g} ms: only for calls that may be made twice, and only with retryThrottling",
    )


def _throttling(draft: Draft, text: Text) -> None:
    path: Path = ("retryThrottling",)
    if text.get(path) is None:
        return
    tokens = text.number((*path, "maxTokens"), at_least=0)
    ratio = text.number((*path, "tokenRatio"), at_least=0)
    if not tokens or tokens > 1000 or not ratio:
        raise InvalidArgument(
            f"{text.where(path)}: maxTokens must be above 0 and at most 1000, tokenRatio above 0"
        )
    ratio = int(ratio * 1000) / 1000 or ratio
    shown = f"maxTokens {tokens:g}, tokenRatio {ratio:g}"
    draft.given("retry_budget", {"ratio": ratio, "min_per_s": 0}, text.line(path), shown)
    failures = int(tokens - tokens / 2 + 0.999)
    share = ratio / (1 + ratio)
    draft.note(
        "SHARED_THROTTLE",
        f"one throttle for all methods of the server ({shown}): after {failures} failures in a "
        f"row, whichever method's, nothing is retried; it holds up to {share:.1%} failures, and "
        f"needs {tokens / 2 / ratio:.0f} successes to recover",
    )
