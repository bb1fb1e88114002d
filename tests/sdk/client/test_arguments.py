"""Whatever a client's method is handed, it takes it or refuses it by name; no other error."""

from __future__ import annotations

import contextlib
import datetime
import inspect

import pytest

from perdure import workflow
from perdure.client import Client
from perdure.errors import InvalidArgument, PerdureError
from perdure.failures import Failure
from perdure.operations import Operations
from perdure.testing import LocalEngine


@workflow.define
async def held():
    await workflow.wait_condition(lambda: False)


class Odd:
    """No value that can be sent."""


ODD = [
    None,
    5,
    -1,
    2**70,
    1.5,
    float("nan"),
    True,
    "",
    "text",
    "\ud800",
    b"x",
    [1],
    ["a", None],
    {"a": Odd()},
    Odd(),
    Odd,
    {1, 2},
    datetime.date(2024, 1, 1),
    lambda: 1,
]

NAMED = {
    "workflow": "held",
    "workflow_id": "w",
    "activity_id": "a",
    "schedule_id": "s",
    "name": "n",
    "signal": "n",
    "update": "n",
    "type": "t",
    "result": 1,
    "token": "t",
    "failure": Failure("Boom"),
    "first_ms": 0,
    "last_ms": 0,
    "to_event": 1,
}


def methods():
    for name, method in inspect.getmembers(Operations, inspect.isfunction):
        parameters = inspect.signature(method).parameters
        if name.startswith("_") or name in ("events", "handle", "schedule_handle"):
            continue
        for parameter in list(parameters.values())[1:]:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                yield name, parameter.name


def given(client, name):
    parameters = inspect.signature(getattr(client, name)).parameters.values()
    optional = ("type",) if name == "list_workflows" else ()
    return {
        one.name: NAMED[one.name]
        for one in parameters
        if one.name in NAMED and one.default is one.empty and one.name not in optional
    }


@pytest.mark.parametrize(("name", "parameter"), list(methods()))
def test_an_argument_of_any_kind_is_taken_or_refused(name, parameter):
    client = LocalEngine([held]).client
    client.start_workflow(held, workflow_id="w")
    for odd in ODD:
        arguments = given(client, name) | {parameter: odd}
        with contextlib.suppress(PerdureError):
            getattr(client, name)(**arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("start_workflow", {"workflow": 5}, "type"),
        ("start_workflow", {"search_attributes": "tier"}, "search_attributes"),
        ("describe_workflow", {"run": "1"}, "run"),
        ("describe_workflow", {"run": 0}, "run"),
        ("result", {"timeout_ms": -1}, "timeout_ms"),
        ("result", {"timeout_ms": True}, "timeout_ms"),
        ("result", {"timeout_ms": "5"}, "timeout_ms"),
        ("query_workflow", {"timeout_ms": 1.5}, "timeout_ms"),
        ("update_workflow", {"timeout_ms": 1.5}, "timeout_ms"),
        ("history", {"after": "1"}, "after"),
        ("history", {"limit": -1}, "limit"),
        ("list_workflows", {"status": "Broken"}, "status"),
        ("list_workflows", {"limit": 1_001}, "limit"),
        ("list_workflows", {"older_than_ms": -1}, "older_than_ms"),
        ("list_dead_letters", {"limit": True}, "limit"),
        ("poll_activity_task", {"types": "charge"}, "types"),
        ("poll_activity_task", {"wait_ms": "5"}, "wait_ms"),
        ("read_events", {"kinds": "WorkflowStarted"}, "kinds"),
        ("complete_activity_task", {"token": None}, "token"),
        ("fail_activity_task", {"failure": ValueError("x")}, "failure"),
        ("create_schedule", {"cron": 5}, "cron"),
        ("create_schedule", {"every_ms": "5"}, "every_ms"),
        ("create_schedule", {"every_ms": 1_000, "time_zone": None}, "time_zone"),
        ("create_schedule", {"every_ms": 1_000, "note": 5}, "note"),
        ("backfill_schedule", {"last_ms": None}, "last_ms"),
    ],
)
def test_what_does_not_fit_is_refused_naming_the_argument(name, arguments, field):
    client = LocalEngine([held]).client
    client.start_workflow(held, workflow_id="w")
    with pytest.raises(InvalidArgument, match=field) as caught:
        getattr(client, name)(**given(client, name) | arguments)
    assert caught.value.field == field


def test_a_value_that_no_message_can_hold_is_refused_before_anything_is_sent():
    with (
        Client("ipc:///nowhere", timeout_ms=1) as client,
        pytest.raises(InvalidArgument, match="request_id"),
    ):
        client.start_workflow("held", workflow_id="w", request_id=Odd())
