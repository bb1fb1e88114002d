"""A layer's policy written in the syntax of the system that will carry it out.

Where that system can't do what the layer asks for, this is said, not left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.audit.chain import Layer, tidy
from perdure.audit.imports.kinds import known

# What to start from where no chain is given.
ADVISED = Layer(
    name="client -> service",
    attempts=3,
    base_delay_ms=100,
    multiplier=2,
    max_delay_ms=2_000,
    jitter="full",
    per_try_timeout_ms=1_000,
    deadline_ms=5_000,
    retry_on=("network", "timeout", 429, 502, 503, 504),
    respect_retry_after=True,
)

_ENVOY_WORDS = frozenset(
    """
    5xx gateway-error reset reset-before-request connect-failure envoy-ratelimited retriable-4xx
    refused-stream http3-post-connect-failure cancelled deadline-exceeded internal
    resource-exhausted unavailable
    """.split()  # noqa: SIM905
)
_GRPC_OF_STATUS = {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}


class Snippet(NamedTuple):
    """Text in the kind's syntax, and what it can't say of the layer."""

    text: str
    caveats: tuple[str, ...]


def snippet(kind: str, layer: Layer) -> Snippet:
    """The layer's policy as `kind` writes it. InvalidArgument for an unknown kind."""
    text, caveats = _WRITERS[known(kind)](layer)
    return Snippet(text, tuple(caveats))


Written = tuple[str, list[str]]


def _seconds(value_ms: float) -> str:
    return f"{value_ms / 1000:.9f}".rstrip("0").rstrip(".")


def _python(value: Any) -> str:
    return repr(tidy(value))


def _unless(condition: bool, caveat: str) -> list[str]:
    return [] if condition else [caveat]


def _no_time_limits(layer: Layer, advice: str) -> list[str]:
    caveats = []
    if layer.deadline_ms is not None:
        caveats.append(f"no deadline of {tidy(layer.deadline_ms)} ms for all tries: {advice}")
    if layer.per_try_timeout_ms is not None:
        limit = _seconds(layer.per_try_timeout_ms)
        caveats.append(f"no per-try timeout: give timeout={limit} to each call")
    return caveats


def _statuses(layer: Layer) -> list[int]:
    return [item for item in layer.retry_on if isinstance(item, int)]


# --- proxies -----------------------------------------------------------------


def _conditions(layer: Layer) -> tuple[list[str], list[int]]:
    words = [str(item) for item in layer.retry_on if str(item) in _ENVOY_WORDS]
    others = {str(item) for item in layer.retry_on} - _ENVOY_WORDS
    if others & {"network", "timeout", "connect", "read"}:
        words += [word for word in ("reset", "connect-failure") if word not in words]
    return words, _statuses(layer)


def _proxy_caveats(layer: Layer) -> list[str]:
    caveats = _unless(layer.jitter == "full", f"jitter is always full, not {layer.jitter}")
    caveats += _unless(layer.multiplier == 2, f"the multiplier is 2, not {layer.multiplier:g}")
    if not layer.is_safe and layer.retries:
        caveats.append("a call without a key is retried: add a key, or set the retries to 0")
    return caveats


def _envoy(layer: Layer) -> Written:
    words, statuses = _conditions(layer)
    words += ["retriable-status-codes"] if statuses else []
    lines = ["route:", f"  cluster: {json.dumps(layer.callee)}"]
    timeout = "0s" if layer.deadline_ms is None else f"{_seconds(layer.deadline_ms)}s"
    lines.append(f"  timeout: {timeout}")
    caveats = _proxy_caveats(layer) if layer.retries else []
    if layer.retries:
        base = max(1.0, layer.base_delay_ms)
        lines += [
            "  retry_policy:",
            f"    retry_on: {json.dumps(','.join(words) or 'connect-failure')}",
            f"    num_retries: {layer.attempts - 1}",
        ]
        if statuses:
            lines.append(f"    retriable_status_codes: {statuses}")
        if layer.per_try_timeout_ms is not None:
            lines.append(f"    per_try_timeout: {_seconds(layer.per_try_timeout_ms)}s")
        lines += ["    retry_back_off:", f"      base_interval: {_seconds(base)}s"]
        if layer.max_delay_ms is not None:
            lines.append(f"      max_interval: {_seconds(max(base, layer.max_delay_ms))}s")
        if layer.respect_retry_after:
            lines += [
                "    rate_limited_retry_back_off:",
                '      reset_headers: [{name: "Retry-After", format: SECONDS}]',
            ]
        if layer.retry_budget is not None:
            percent = layer.retry_budget.ratio * 100
            caveats.append(
                "the budget belongs to the cluster: circuit_breakers.thresholds[0].retry_budget: "
                f"{{budget_percent: {{value: {percent:g}}}, min_retry_concurrency: 3}}"
            )
    return "\n".join(lines) + "\n", caveats


def _istio(layer: Layer) -> Written:
    words, statuses = _conditions(layer)
    words += [str(status) for status in statuses]
    lines = ["http:", "- route:", f"  - destination: {{host: {json.dumps(layer.callee)}}}"]
    if layer.deadline_ms is not None:
        lines.append(f"  timeout: {_seconds(layer.deadline_ms)}s")
    # Without a retries block the mesh would retry twice.
    lines += ["  retries:", f"    attempts: {layer.attempts - 1}"]
    if not layer.retries:
        return "\n".join(lines) + "\n", []
    if layer.per_try_timeout_ms is not None:
        lines.append(f"    perTryTimeout: {_seconds(layer.per_try_timeout_ms)}s")
    lines.append(f"    retryOn: {json.dumps(','.join(words) or 'connect-failure')}")
    lines.append(f"    backoff: {_seconds(max(1.0, layer.base_delay_ms))}s")
    caveats = _proxy_caveats(layer)
    base_cap = 10 * max(1.0, layer.base_delay_ms)
    if layer.max_delay_ms is not None and layer.max_delay_ms < base_cap:
        caveats.append(
            f"the cap is 10 x backoff ({tidy(base_cap)} ms), not {layer.max_delay_ms:g} ms"
        )
    return "\n".join(lines) + "\n", caveats


def _grpc(layer: Layer) -> Written:
    method: dict[str, Any] = {"name": [{}]}
    service, _, rpc = layer.callee.partition("/")
    if service and " " not in service and "." in service:
        method["name"] = [{"service": service} | ({"method": rpc} if rpc else {})]
    if layer.deadline_ms is not None:
        method["timeout"] = f"{_seconds(layer.deadline_ms)}s"
    caveats = []
    if layer.retries:
        words = [str(item) for item in layer.retry_on if str(item).isupper()]
        codes = words or [_GRPC_OF_STATUS.get(item, "UNAVAILABLE") for item in _statuses(layer)]
        base = max(1.0, layer.base_delay_ms)
        method["retryPolicy"] = {
            "maxAttempts": min(5, layer.attempts),
            "initialBackoff": f"{_seconds(base)}s",
            "maxBackoff": f"{_seconds(max(base, layer.max_delay_ms or 60_000))}s",
            "backoffMultiplier": tidy(layer.multiplier),
            "retryableStatusCodes": list(dict.fromkeys(codes)) or ["UNAVAILABLE"],
        }
        caveats += _unless(layer.attempts <= 5, "gRPC makes at most 5 attempts")
        caveats += _unless(layer.jitter == "symmetric", "jitter is always 20 % either way")
    if layer.per_try_timeout_ms is not None and layer.retries:
        caveats.append("a service config has no per-try timeout")
    config: dict[str, Any] = {"methodConfig": [method]}
    if layer.retry_budget is not None and layer.retry_budget.ratio > 0:
        ratio = max(0.001, round(layer.retry_budget.ratio, 3))
        config["retryThrottling"] = {"maxTokens": 10, "tokenRatio": ratio}
    return json.dumps(config, indent=2) + "\n", caveats


# --- Python libraries --------------------------------------------------------


def _urllib3_retry(layer: Layer) -> Written:
    statuses = [status for status in _statuses(layer) if status not in (413,)]
    methods = list(layer.methods or ("DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE"))
    if layer.idempotency_key and "POST" not in methods:
        methods.append("POST")
    arguments = [f"total={layer.attempts - 1}", f"backoff_factor={_seconds(layer.base_delay_ms)}"]
    if layer.max_delay_ms is not None:
        arguments.append(f"backoff_max={_seconds(layer.max_delay_ms)}")
    if layer.jitter != "none":
        spread = layer.jitter_ms if layer.jitter == "additive" else layer.base_delay_ms
        arguments.append(f"backoff_jitter={_seconds(spread)}")
    arguments += [
        f"status_forcelist={_python(statuses)}",
        f"allowed_methods={_python(sorted(methods))}",
        f"respect_retry_after_header={layer.respect_retry_after}",
    ]
    if layer.respect_retry_after and layer.deadline_ms is not None:
        arguments.append(f"retry_after_max={int(layer.deadline_ms / 1000) or 1}")
    caveats = _unless(layer.multiplier == 2, f"the multiplier is 2, not {layer.multiplier:g}")
    caveats += ["the first retry is always immediate"] if layer.retries else []
    caveats += _unless(
        layer.jitter in ("none", "additive"),
        f"{layer.jitter} jitter is not there; backoff_jitter adds to the delay, and is lost at "
        "the cap",
    )
    body = "".join(f"    {argument},\n" for argument in arguments)
    return f"retry = Retry(\n{body})\n", caveats


def _urllib3(layer: Layer) -> Written:
    text, caveats = _urllib3_retry(layer)
    timeout = "" if layer.per_try_timeout_ms is None else _seconds(layer.per_try_timeout_ms)
    pool = f"http = PoolManager(retries=retry{f', timeout={timeout}' if timeout else ''})\n"
    caveats += _no_time_limits(layer, "count it yourself")[: 1 if layer.deadline_ms else 0]
    return f"from urllib3 import PoolManager, Retry\n\n{text}{pool}", caveats


def _requests(layer: Layer) -> Written:
    text, caveats = _urllib3_retry(layer)
    head = "import requests\nfrom requests.adapters import HTTPAdapter\nfrom urllib3 import Retry\n"
    tail = (
        'session = requests.Session()\nsession.mount("https://", HTTPAdapter(max_retries=retry))\n'
    )
    if layer.per_try_timeout_ms is not None:
        tail += f'session.get("https://…", timeout={_seconds(layer.per_try_timeout_ms)})\n'
    caveats += _no_time_limits(layer, "count it yourself")[: 1 if layer.deadline_ms else 0]
    return f"{head}\n{text}{tail}", caveats


def _tenacity_wait(layer: Layer) -> tuple[str, str, list[str]]:
    """(the class, the call, what it can't say)."""
    base, cap = _seconds(layer.base_delay_ms), layer.max_delay_ms
    growth = f"multiplier={base}, exp_base={tidy(layer.multiplier)}"
    growth += "" if cap is None else f", max={_seconds(cap)}"
    floor = f", min={_seconds(layer.min_delay_ms)}" if layer.min_delay_ms else ""
    match layer.jitter:
        case "full":
            return "wait_random_exponential", f"{growth}{floor}", []
        case "none":
            return "wait_exponential", f"{growth}{floor}", []
        case "additive":
            jitter = f"{growth}, jitter={_seconds(layer.jitter_ms)}{floor}"
            return "wait_exponential_jitter", jitter, []
        case _:
            caveat = f"{layer.jitter} jitter is not there: full jitter instead"
            return "wait_random_exponential", f"{growth}{floor}", [caveat]


def _tenacity(layer: Layer) -> Written:
    name, wait, caveats = _tenacity_wait(layer)
    stops = [f"stop_after_attempt({layer.attempts})"]
    names = ["retry", "stop_after_attempt", name]
    if layer.deadline_ms is not None:
        stops.append(f"stop_before_delay({_seconds(layer.deadline_ms)})")
        names.append("stop_before_delay")
    text = (
        f"from tenacity import {', '.join(sorted(names))}\n\n\n"
        f"@retry(\n    stop={' | '.join(stops)},\n    wait={name}({wait}),\n    reraise=True,\n)\n"
        "def call(): ...\n"
    )
    if layer.per_try_timeout_ms is not None:
        limit = _seconds(layer.per_try_timeout_ms)
        caveats.append(f"no per-try timeout: give timeout={limit} to the call itself")
    if layer.respect_retry_after:
        caveats.append("Retry-After is not obeyed unless wait_exception reads it")
    caveats.append("retry= must name the exceptions that may pass: by default it is any")
    return text, caveats


def _botocore(layer: Layer) -> Written:
    options = [f'retries={{"mode": "standard", "total_max_attempts": {layer.attempts}}}']
    if layer.per_try_timeout_ms is not None:
        seconds = _seconds(layer.per_try_timeout_ms)
        options += [f"connect_timeout={seconds}", f"read_timeout={seconds}"]
    body = "".join(f"    {option},\n" for option in options)
    caveats = ["delays are the SDK's own: full jitter, capped at 20 s"] if layer.retries else []
    if layer.deadline_ms is not None:
        caveats.append(f"no deadline of {tidy(layer.deadline_ms)} ms for all tries")
    return f"from botocore.config import Config\n\nconfig = Config(\n{body})\n", caveats


def _perdure(layer: Layer) -> Written:
    policy = [f"max_attempts={layer.attempts}", f"initial_ms={round(layer.base_delay_ms)}"]
    policy.append(f"backoff={tidy(layer.multiplier)}")
    if layer.max_delay_ms is not None:
        policy.append(f"max_interval_ms={round(layer.max_delay_ms)}")
    if layer.min_delay_ms:
        policy.append(f"min_interval_ms={round(layer.min_delay_ms)}")
    options = [f"retry=RetryPolicy({', '.join(policy)})"]
    for key, value in (
        ("start_to_close_ms", layer.per_try_timeout_ms),
        ("schedule_to_close_ms", layer.deadline_ms),
        ("heartbeat_ms", layer.heartbeat_ms),
    ):
        if value is not None:
            options.append(f"{key}={round(value)}")
    name = layer.callee.removeprefix("activity ").replace(" ", "_")
    body = "".join(f"    {option},\n" for option in options)
    text = (
        "from perdure import RetryPolicy, activity\n\n\n"
        f"@activity.define(\n{body})\ndef {name if name.isidentifier() else 'call'}(): ...\n"
    )
    caveats = _unless(layer.jitter == "full", f"jitter is always full, not {layer.jitter}")
    if not layer.idempotency_key:
        caveats.append("hand activity.idempotency_key() to the receiver")
    return text, caveats


_WRITERS: dict[str, Callable[[Layer], Written]] = {
    "envoy": _envoy,
    "istio": _istio,
    "grpc": _grpc,
    "urllib3": _urllib3,
    "requests": _requests,
    "tenacity": _tenacity,
    "botocore": _botocore,
    "perdure": _perdure,
}
COMMENT = {"grpc": ""}
