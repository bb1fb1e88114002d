"""The auditor's own arithmetic of a restart's grace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.auditor import retries

# Granted at 1 000 for 500 ms, in the epoch before the one that began at 2 000.
LEASE = ["w1", None, 1_000, 1_500, 1_500, None, 7, 0]
FAILURE = {"type": "StartToCloseTimeout", "message": "no report within 500 ms"}


@pytest.mark.parametrize("stall_ms", [0, 300])
def test_a_restart_gives_the_length_of_the_lease_anew_and_a_stall_before_it_adds_nothing(stall_ms):
    activity: Any = SimpleNamespace(lease=LEASE, options=[0, 0, 500, 0], close_ms=None)
    assert retries.early_ms(activity, FAILURE, 2_500, 2_000, stall_ms) == 0
    assert retries.early_ms(activity, FAILURE, 2_499, 2_000, stall_ms) == 1
