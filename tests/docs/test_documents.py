"""What the README and the pages show, runs; what documents link to, is there."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
import shutil
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from perdure import activity, wire, workflow
from perdure.outbox import drain
from perdure.policy import RetryPolicy, backoff_ms
from perdure.testing import LocalEngine
from perdure.worker.context import activity_context
from tests.docs.pages import BLOCK, DOCS, PAGES, ROOT, ClientOfEngine, named, text_of

ACTIVITIES = DOCS / "activities.md"

_fence = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_link = re.compile(r"\]\(([^)\s]+)\)")
_heading = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.fixture
def answering(tmp_path) -> Iterator[list[dict[str, Any]]]:
    """A node, as far as one request goes: node.json and a socket. What came in, as JSON."""
    endpoint = f"ipc://{tmp_path}/public"
    (tmp_path / ".perdure").mkdir()
    (tmp_path / ".perdure" / "node.json").write_text(json.dumps({"endpoint": endpoint}))
    socket = zmq.Context.instance().socket(zmq.REP)
    socket.linger = 0
    socket.bind(endpoint)
    requests: list[dict[str, Any]] = []

    def answer() -> None:
        if not socket.poll(10_000):
            return  # The test has failed before it asked.
        body = socket.recv()
        wire.JSON.read(body)  # Raises Refused for what a node would not take.
        requests.append(json.loads(body))
        socket.send_json({"id": 1, "ok": {"workflow_id": "order-44", "run": 1}})

    thread = threading.Thread(target=answer)
    thread.start()
    yield requests
    thread.join()
    socket.close()


# --- code ----------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # The README's bare socket is left open.
def test_the_code_of_the_readme_runs(page_run, answering, capsys):
    assert page_run(ROOT / "README.md") == ["shop", "2", "3", "4"]
    assert [request["op"] for request in answering] == ["StartWorkflow"]
    assert capsys.readouterr().out.splitlines()[0] == "receipt order-43/charge: 500 cents"


def test_the_code_of_the_page_on_effects_runs(page_run):
    assert page_run(DOCS / "effects.md") == [
        "paying",
        "test_a_payment_that_is_delivered_twice_is_booked_once",
        "any_sql",
        "charging",
        "tickets",
        "rendering",
        "test_the_report_is_there_under_its_key",
        "fenced",
    ]
    effects = sys.modules["any_sql"].apply_once
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE effects (key TEXT PRIMARY KEY, result TEXT)")
    database.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT, fence INTEGER)")
    found = []
    for fence in (1, 3, 2):
        with activity.bound(attempt_of(fence)):
            found.append(effects(database, lambda db, fence=fence: {"by": fence}))
            found.append(sys.modules["fenced"].set_status(database, "o", f"of {fence}"))
    database.close()
    assert found == [{"by": 1}, True, {"by": 1}, True, {"by": 1}, False]


def test_the_code_of_the_page_on_the_outbox_runs(page_run):
    assert page_run(DOCS / "outbox.md") == [
        "shop",
        "test_shop",
        "test_an_order_that_is_rolled_back_starts_nothing",
    ]
    [statement] = re.findall(r"```sql\n(.*?)```", text_of(DOCS / "outbox.md"), re.DOTALL)
    with contextlib.closing(sqlite3.connect("app.db")) as db:
        db.execute(statement)
        db.commit()
    engine = LocalEngine([sys.modules["shop"].checkout])
    assert drain("app.db", engine.client) == 1
    assert engine.client.describe_workflow("order-7").input == ["o-7", 1999]


def attempt_of(fence: int) -> activity.ActivityContext:
    """The context of an attempt that was granted with this fence."""
    return activity_context(
        workflow_id="w",
        workflow_type="t",
        activity_id="a",
        activity_type="t",
        generation=1,
        grant=fence,
        attempt=fence,
        token="t",
        details=None,
        heartbeat=lambda details: None,
    )


def finished(engine, name, *args):
    """The result of a workflow that the engine has run to its end."""
    handle = engine.client.start_workflow(name, *args, workflow_id=name)
    engine.run_until_idle()
    return handle.result()


def test_the_code_of_the_page_on_activities_runs(page_run):
    ran = page_run(ACTIVITIES)
    assert {"orders", "calls", "copying", "importing", "approvals", "packing"} <= set(ran)

    engine = ClientOfEngine().engine
    assert finished(engine, "backup", 5) == 2
    assert finished(engine, "nightly_import", 5) == 3
    handle = engine.client.start_workflow("purchase", "a lamp", workflow_id="purchase")
    engine.run_until_idle()
    [(question, token)] = sys.modules["approvals"].outbox
    engine.complete_activity_task(token, True)
    engine.run_until_idle()
    assert (question, handle.result()) == ("buy a lamp?", "bought")


def test_the_code_of_the_page_on_workflows_runs(page_run):
    assert "test_the_cart_takes_things_and_closes" in page_run(DOCS / "workflows.md")
    engine = ClientOfEngine().engine
    assert finished(engine, "cheapest", ["north", "south"]) == 20
    assert finished(engine, "both", ["north", "south"]) == [30, 20]
    assert finished(engine, "trip", ["rome", "paris"]) == ["rome booked", "paris booked"]
    again = engine.client.start_workflow("trip", ["rome", "moon"], workflow_id="t-2")
    engine.run_until_idle()
    assert again.result() == ["t-2-moon: NoSuchPlace"]

    began_ms = engine.clock.now_ms
    assert finished(engine, "patient", "why?") == "nobody answered"
    assert engine.clock.now_ms - began_ms == 3_600_000


def test_the_workflows_of_the_page_hear_what_they_are_told(page_run):
    page_run(DOCS / "workflows.md")
    engine = ClientOfEngine().engine
    client = engine.client

    reminder = client.start_workflow("reminder", "when?", 3, workflow_id="reminder")
    engine.run_workflow_tasks()
    engine.clock.advance_ms(86_400_000)
    engine.run_workflow_tasks()
    task = engine.poll_activity_task()
    assert (task.type, task.input) == ("remind", ["when? (1)"])
    engine.complete_activity_task(task.token)
    engine.run_workflow_tasks()
    reminder.signal("answer", "now")
    engine.run_workflow_tasks()
    assert reminder.result() == "now"

    rental = client.start_workflow("rental", "c-1", 5, workflow_id="rental")
    engine.run_until_idle(skip_time=False)
    rental.cancel()
    engine.run_until_idle()
    assert rental.result() == "came back early"
    assert [it.activity_id for it in rental.history() if it.kind == "ActivityTaskCompleted"] == [
        "hand-over",
        "take-back",
    ]

    member = client.start_workflow("subscription", "c-7", workflow_id="member")
    engine.run_workflow_tasks()
    for _ in range(7):
        engine.clock.advance_ms(30 * 86_400_000)
        engine.run_workflow_tasks()
    assert member.describe().run == 3
    member.signal("end")
    engine.run_workflow_tasks()
    assert member.result() == 7


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("concepts", 0),
        ("values", 2),
        ("determinism", 2),
        ("from-celery", 0),
        ("from-temporal", 1),
        ("from-dbos", 0),
        ("schedules", 0),
    ],
)
def test_the_code_of_the_page_runs(page_run, name, tests):
    ran = page_run(DOCS / f"{name}.md")
    assert ran
    assert sum(it.startswith("test_") and not Path(f"{it}.py").exists() for it in ran) == tests


def test_the_code_of_the_page_on_replays_runs_beside_its_examples(page_run):
    shutil.copytree(DOCS / "replay", ".", dirs_exist_ok=True)
    assert page_run(DOCS / "replay.md") == ["1", "2"]


def test_the_code_of_the_page_on_tests_runs_beside_that_on_activities(page_run):
    page_run(ACTIVITIES)
    ran = page_run(DOCS / "testing.md")
    assert sum(it.startswith("test_") and not Path(f"{it}.py").exists() for it in ran) == 7


@pytest.mark.parametrize(
    ("status", "state", "due_ms"),
    [
        (429, "Retrying", 30_000),
        (401, "Dropped", None),
        (410, "Dropped", None),
        (422, "Dropped", None),
        (503, "Retrying", 1_000),
    ],
)
def test_each_status_of_the_example_ends_as_its_comment_says(page_run, status, state, due_ms):
    page_run(ACTIVITIES)
    call = sys.modules["calls"].call

    @workflow.define
    async def calling() -> str:
        try:
            return await workflow.execute_activity(call, status, activity_id="call")
        except workflow.ActivityFailed:
            return "Dropped"

    engine = LocalEngine([calling], [call], jitter=lambda delay_ms, u: delay_ms)
    handle = engine.client.start_workflow(calling, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    described = handle.describe()
    if state == "Dropped":
        assert described.result == "Dropped"
    else:
        [pending] = described.pending_activities
        assert (pending.state, pending.due_ms) == (state, due_ms)


# Which test runs the Python of each page that has some.
RUN = {
    "this file": {"activities", "concepts", "determinism", "effects", "from-celery", "from-dbos"}
    | {"from-temporal", "outbox", "replay", "schedules", "testing", "values", "workflows"},
    "tests/docs/test_clients_page.py": {"clients"},
    "tests/docs/test_tutorial.py": {"tutorial"},
    "tests/verify/test_examples.py": {"verify"},
    "nobody: it needs a node, and is compiled": {"protocol"},
}


def test_no_page_has_python_that_nobody_runs():
    with_code = {page.stem for page in DOCS.glob("*.md") if BLOCK.search(text_of(page))}
    assert with_code == set().union(*RUN.values())
    for found in BLOCK.findall(text_of(DOCS / "protocol.md")):
        compile(found, "docs/protocol.md", "exec")


# --- tables --------------------------------------------------------------------------------
def test_the_defaults_of_the_retry_policy_are_those_of_the_table():
    resolved = RetryPolicy().resolved()
    section = text_of(ACTIVITIES).partition("## Retries")[2].partition("## Timeouts")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|`]+) \|$", section, re.MULTILINE)
    shown = {name: value.strip().replace(" ", "") for name, value in rows}
    assert shown == {name: str(getattr(resolved, name)) for name in RetryPolicy.__struct_fields__}


def test_the_backoffs_of_the_table_are_those_of_the_policies():
    rows = re.findall(
        r"^\| `(RetryPolicy\(.*?\))`.*?((?: \| [\d.]+){8}) \|$", text_of(ACTIVITIES), re.MULTILINE
    )
    assert len(rows) == 3
    for source, cells in rows:
        policy = eval(source, {"RetryPolicy": RetryPolicy})
        seconds = [float(cell) for cell in cells.split("|")[1:]]
        assert seconds == [backoff_ms(policy, n) / 1_000 for n in range(1, 9)]


def test_the_timeouts_of_the_table_are_the_options_of_define():
    rows = re.findall(
        r"^\| `(\w+_ms)` \| [^|]+ \| (?:600 000|none) \|", text_of(ACTIVITIES), re.MULTILINE
    )
    options = [
        name
        for name in inspect.signature(activity.Options).parameters
        if "_ms" in name and name != "grace_ms"
    ]
    assert sorted(rows) == sorted(options)


def test_what_the_page_says_is_refused_is_refused():
    import datetime
    import random
    import time

    def reading_the_clock() -> object:
        return time.time()

    def reading_another_clock() -> object:
        return datetime.datetime.now(tz=datetime.UTC)

    def drawing() -> object:
        return random.random()

    def opening() -> object:
        return open(__file__)

    def using_a_thread() -> object:
        return asyncio.get_running_loop().run_in_executor(None, drawing)

    for forbidden in (reading_the_clock, reading_another_clock, drawing, opening, using_a_thread):

        @workflow.define
        async def culprit(forbidden=forbidden) -> None:
            try:
                forbidden()
            except Exception:  # noqa: BLE001 - as the page says, this does not help
                return

        engine = LocalEngine([culprit])
        handle = engine.client.start_workflow(culprit, workflow_id="w")
        engine.run_workflow_tasks()
        assert handle.describe().status == "Running"
        assert handle.describe().workflow_task.failure.type == "NonDeterminism"


# --- links ---------------------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_leads_to_something(page):
    text = _fence.sub("", text_of(page))
    for target in _link.findall(text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{named(page)} links to {target}"
        if anchor:
            assert anchor in anchors(there), f"{named(page)} links to {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = _heading.findall(_fence.sub("", text_of(page)))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
