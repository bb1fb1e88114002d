"""The chain to start from: three layers with the usual mistakes, every number of it known."""

from __future__ import annotations

from typing import Any

CHECKOUT: dict[str, Any] = {
    "name": "checkout",
    "failure_rate": 0.3,
    "max_amplification": 10,
    "layers": [
        {
            "name": "web app -> api gateway",
            "attempts": 3,
            "base_delay_ms": 200,
            "multiplier": 2,
            "max_delay_ms": 2000,
            "jitter": "full",
            "per_try_timeout_ms": 8000,
            "deadline_ms": 20000,
            "retry_on": ["network", 502, 503, 504],
            "idempotent": True,
            "respect_retry_after": True,
        },
        {
            "name": "api gateway -> orders service",
            "attempts": 3,
            "base_delay_ms": 100,
            "multiplier": 2,
            "max_delay_ms": 1000,
            "jitter": "none",
            "per_try_timeout_ms": 3000,
            "retry_on": [500, 502, 503, 504, "timeout"],
            "idempotent": True,
        },
        {
            "name": "orders service -> payments provider",
            "attempts": 4,
            "base_delay_ms": 250,
            "multiplier": 2,
            "jitter": "equal",
            "per_try_timeout_ms": 2500,
            "deadline_ms": 9000,
            "retry_on": [409, 429, 500, 503, "timeout"],
            "idempotent": False,
        },
    ],
}

EXPECTED_FINDINGS: dict[int, set[str]] = {
    0: set(),
    1: {"INNER_OUTLIVES_CALLER", "NO_JITTER", "NO_DEADLINE", "IGNORES_RETRY_AFTER"},
    2: {
        "RETRY_UNSAFE",
        "AMPLIFICATION",
        "INNER_OUTLIVES_CALLER",
        "NO_CAP",
        "RETRY_ON_4XX",
        "IGNORES_RETRY_AFTER",
    },
}
