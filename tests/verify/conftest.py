"""Verifies workflows that are written down as source, each in a module of its own."""

from __future__ import annotations

import itertools
import sys
import textwrap

import pytest

from perdure import activity, verify, workflow
from perdure.values import encode
from perdure.verifying import explore, target

HEAD = """
import asyncio, threading, uuid
from perdure import activity, verify, workflow
from perdure.policy import RetryPolicy
"""
_numbers = itertools.count(1)


@pytest.fixture
def loaded(monkeypatch):
    """What is loaded while a test runs is gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    notes = [(kind, len(kind)) for kind in (activity.defined, workflow.defined, verify.outsiders)]
    yield
    for name in set(sys.modules) - modules:
        if not name.startswith("perdure"):
            del sys.modules[name]
    for kind, length in notes:
        del kind[length:]


@pytest.fixture
def verified(tmp_path, loaded):
    """Verify the workflow in a source, whose imports are there: `verified(source, *input)`.

    `schedules`, `timeout_ms`: limits. `redrive`: of the plan.
    """

    def run(source, *args, depth=1, redrive=True, name="", schedules=10_000, timeout_ms=10_000):
        module = f"verified_{next(_numbers)}"
        (tmp_path / f"{module}.py").write_text(HEAD + textwrap.dedent(source), encoding="utf-8")
        payload = encode(list(args)) if args else None
        plan = target.planned(
            f"{module}:{name}" if name else module, str(tmp_path), payload, redrive=redrive
        )
        return explore.verify(plan, explore.Limits(depth, schedules, timeout_ms))

    return run


@pytest.fixture
def one_activity(verified):
    """Verify a workflow of one activity `act(order)`, of which this is the body."""

    def run(body, *, define="@activity.define", head="", is_async=False, **options):
        prefix = "async " if is_async else ""
        source = "\n".join(
            [
                textwrap.dedent(head),
                define,
                f"{prefix}def act(order):",
                textwrap.indent(textwrap.dedent(body), "    "),
                "@workflow.define",
                "async def flow(order='o'):",
                "    await workflow.execute_activity(act, order, activity_id='act')",
            ]
        )
        return verified(source, **options)

    return run


def kinds(result):
    """What was found, as (kind, activity, effect)."""
    return {(str(one.kind), one.activity_type, one.effect) for one in result.findings}
