"""What the README and the page on applications show, runs; what documents link to, is there."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import perdure
from perdure import activity, registry, wire, workflow
from perdure.local_client import LocalClient
from perdure.policy import RetryPolicy, backoff_ms
from perdure.testing import LocalEngine
from perdure.worker.context import activity_context

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]
APPLICATIONS = DOCS / "applications.md"

_block = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_fence = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_file_name = re.compile(r"# (\w+)\.py\n")
_link = re.compile(r"\]\(([^)\s]+)\)")
_heading = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


class ClientOfEngine(LocalClient):
    """A Client whose node is a LocalEngine with the modules of the page, in the working directory.

    It has run all that can run before a result is asked for.
    """

    def __init__(self) -> None:
        names = sorted(path.stem for path in Path().glob("*.py"))
        found = registry.collect([sys.modules[n] for n in names if not n.startswith("test_")])
        self.engine = LocalEngine(
            [one.function for one in found.workflows.values()],
            [one.function for one in found.activities.values()],
        )
        super().__init__(self.engine._core)

    def __enter__(self) -> ClientOfEngine:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def start_workflow(self, *args: Any, **kwargs: Any) -> Any:
        handle = super().start_workflow(*args, **kwargs)
        self.engine.run_workflow_tasks()
        return handle

    def result(self, workflow_id: str, timeout_ms: int | None = None, **options: Any) -> Any:
        self.engine.run_until_idle()
        return super().result(workflow_id, timeout_ms, **options)


@pytest.fixture
def page_run(tmp_path, monkeypatch):
    """Runs the Python of a page in order, in a directory of its own; the namespaces of the blocks.

    A block that begins with "# name.py" is that module; its test functions are called.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(perdure, "Client", ClientOfEngine, raising=False)
    modules = set(sys.modules)
    definitions = [(kind, len(kind)) for kind in (activity.defined, workflow.defined)]

    def run(page: Path) -> list[str]:
        ran = []
        for number, found in enumerate(_block.finditer(text_of(page)), start=1):
            source = found[1]
            file_name = _file_name.match(source)
            if file_name is None:
                code = compile(source, f"{named(page)} block {number}", "exec")
                exec(code, {"__name__": "__main__"})
                ran.append(str(number))
                continue
            Path(f"{file_name[1]}.py").write_text(source, encoding="utf-8")
            module = __import__(file_name[1])
            ran.append(file_name[1])
            for name, function in list(vars(module).items()):
                if name.startswith("test_"):
                    function()
                    ran.append(name)
        return ran

    yield run
    for name in set(sys.modules) - modules:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]
    for kind, length in definitions:
        del kind[length:]


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


def test_the_code_of_the_page_on_applications_runs(page_run):
    ran = page_run(APPLICATIONS)
    assert {"orders", "parallel", "calls", "copying", "approvals", "packing"} <= set(ran)
    assert sum(name.startswith("test_") and name != "test_orders" for name in ran) == 4

    engine = ClientOfEngine().engine
    for name, args, result in [
        ("cheapest", (["north", "south"],), 20),
        ("both", (["north", "south"],), [30, 20]),
        ("backup", (5,), 2),
    ]:
        handle = engine.client.start_workflow(name, *args, workflow_id=name)
        engine.run_until_idle()
        assert handle.result() == result

    began_ms = engine.clock.now_ms
    handle = engine.client.start_workflow("patient", "why?", workflow_id="patient")
    engine.run_until_idle()
    assert (handle.result(), engine.clock.now_ms - began_ms) == ("nobody answered", 3_600_000)

    handle = engine.client.start_workflow("purchase", "a lamp", workflow_id="purchase")
    engine.run_until_idle()
    [(question, token)] = sys.modules["approvals"].outbox
    engine.complete_activity_task(token, True)
    engine.run_until_idle()
    assert (question, handle.result()) == ("buy a lamp?", "bought")


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
    page_run(APPLICATIONS)
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


# --- tables --------------------------------------------------------------------------------
def test_the_defaults_of_the_retry_policy_are_those_of_the_table():
    resolved = RetryPolicy().resolved()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|`]+) \|$", text_of(APPLICATIONS), re.MULTILINE)
    shown = {name: value.strip().replace(" ", "") for name, value in rows}
    assert shown == {name: str(getattr(resolved, name)) for name in RetryPolicy.__struct_fields__}


def test_the_backoffs_of_the_table_are_those_of_the_policies():
    rows = re.findall(
        r"^\| `(RetryPolicy\(.*?\))`.*?((?: \| [\d.]+){8}) \|$", text_of(APPLICATIONS), re.MULTILINE
    )
    assert len(rows) == 3
    for source, cells in rows:
        policy = eval(source, {"RetryPolicy": RetryPolicy})
        seconds = [float(cell) for cell in cells.split("|")[1:]]
        assert seconds == [backoff_ms(policy, n) / 1_000 for n in range(1, 9)]


def test_the_timeouts_of_the_table_are_the_options_of_define():
    rows = re.findall(
        r"^\| `(\w+_ms)` \| [^|]+ \| (?:600 000|none) \|", text_of(APPLICATIONS), re.MULTILINE
    )
    options = [
        name
        for name in inspect.signature(activity.Options).parameters
        if "_ms" in name and name != "grace_ms"
    ]
    assert sorted(rows) == sorted(options)


def test_what_the_page_says_is_refused_is_refused():
    import random
    import time

    def reading_the_clock() -> object:
        return time.time()

    def drawing() -> object:
        return random.random()

    def opening() -> object:
        return open(__file__)

    def using_a_thread() -> object:
        return asyncio.get_running_loop().run_in_executor(None, drawing)

    for forbidden in (reading_the_clock, drawing, opening, using_a_thread):

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
