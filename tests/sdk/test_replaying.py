"""New code against recorded histories, by what `wf history --json` prints."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perdure import activity, errors, replaying, values, views, workflow
from perdure.answers import to_answer
from perdure.core import records
from perdure.core.commands import CancelWorkflow, SignalWorkflow, UpdateWorkflow
from perdure.core.ids import execution_id
from perdure.core.records import decode_event
from perdure.core.start import Parent, StartTerms
from perdure.failures import Failure
from perdure.registry import Registry
from perdure.replaying import check, history_of, read_histories
from perdure.testing import LocalEngine


@activity.define
def work(it):
    return it


@activity.define
def fails():
    raise activity.NonRetryable("no")


@workflow.define(name="kid")
async def kid(n):
    return await workflow.execute_activity(work, n)


@workflow.define(name="flow")
async def flow(n):
    taken = []

    @workflow.signal
    def go(what):
        taken.append(what)

    @workflow.update
    async def change(what):
        return await workflow.execute_activity(work, what)

    await workflow.execute_child(kid, n)
    try:
        await workflow.execute_activity(fails)
    except workflow.ActivityFailed as problem:
        taken.append(problem.failure.type)
    await workflow.wait_condition(lambda: "go" in taken)
    workflow.set_search_attributes({"n": n, "b": True})
    taken.append(workflow.side_effect(lambda: 7))
    if workflow.patched("p"):
        await asyncio.sleep(1)
    if n < 2:
        workflow.continue_as_new(n + 1)
    try:
        await workflow.receive("never").get()
    finally:
        await workflow.execute_activity(work, "cleanup")


def recorded():
    """The shown histories of every execution of a workflow that has gone through all there is."""
    engine = LocalEngine(workflows=[flow, kid], activities=[work, fails])
    engine.client.start_workflow(flow, 1, workflow_id="w")
    core = engine._core
    engine.run_until_idle()
    core.ask(UpdateWorkflow("w", "change", values.encode([b"\0"]), "u1"))
    core.ask(UpdateWorkflow("w", "none", None, "u2"))
    for n in range(2):
        core.ask(SignalWorkflow("w", "go", values.encode(["go"]), f"s{n}"))
        engine.run_until_idle()
    core.ask(CancelWorkflow("w", "enough"))
    engine.run_until_idle()
    shown = {}
    for id_ in ("w", execution_id("w", 2), "w/@1", "w#2/@1"):
        raws = core.reader.events(id_, 0, 1_000, 1 << 20)
        shown[id_] = views.events(map(decode_event, raws))
    return shown


@pytest.fixture(scope="module")
def shown():
    return recorded()


def printed(events):
    return json.loads(msgspec.json.encode(events))


@workflow.define
async def drains():
    box, items = workflow.receive("item"), []
    while len(box):
        items.append(await box.get())
    return items


@workflow.define
async def heir():
    if workflow.info().run == 1:
        await workflow.start_child(kid, 1, workflow_id="heirs")
        workflow.continue_as_new()
    for child in workflow.earlier_children().values():
        await child
    return workflow.info().run


NEW = Registry([flow, kid], [work, fails])


def test_what_a_workflow_has_gone_through_fits_its_code_as_a_client_has_it_and_as_printed(shown):
    kinds = {event["kind"] for events in shown.values() for event in events}
    assert len(kinds) >= 18, kinds
    for id_, events in shown.items():
        run = 2 if "\x1f" in id_ else 1
        for form in (events, printed(events), to_answer(events)):
            found = history_of(form, id_.partition("\x1f")[0], run=run)
            verdict = check(NEW, found)
            assert verdict.fits, verdict
            assert (verdict.run, verdict.events) == (run, events[-1]["event_id"])


def test_every_prefix_of_a_history_fits(shown):
    events = shown["w"]
    for length in range(1, len(events) + 1):
        if events[length - 1]["kind"] != "ActivityTaskStarted":
            verdict = check(NEW, history_of(events[:length], "w"))
            assert verdict.fits, verdict


def other_flow(body):
    @workflow.define(name="flow")
    async def changed(n):
        return await body(n)

    return Registry([changed], [work])


def test_where_code_and_history_part_is_said_with_both_sides_and_the_line(shown):
    async def renamed(n):
        await workflow.execute_child("child", n)

    verdict = check(other_flow(renamed), history_of(shown["w"], "w"))
    assert (verdict.verdict, verdict.event_id) == ("differs", 2)
    assert verdict.expected == "ChildWorkflowStarted of 'w/@1', type kid (event 2)"
    assert verdict.got == "StartChild of 'w/@1', type child"
    assert "test_replaying.py:" in verdict.where


def test_code_that_asks_for_less_or_goes_past_the_guards_differs(shown):
    async def ends(n):
        return n

    async def waits(n):
        await workflow.execute_child(kid, n)
        await workflow.wait_condition(lambda: False)

    async def looks(n):
        import time

        return time.time()

    for body, got in ((ends, "CompleteWorkflow"), (waits, "no command"), (looks, "")):
        verdict = check(other_flow(body), history_of(shown["w"], "w"))
        assert (verdict.verdict, verdict.got) == ("differs", got)
    assert "time.time" in verdict.message


def test_a_side_effect_that_is_not_recorded_is_not_run_by_a_check():
    engine = LocalEngine(workflows=[kid], activities=[work])
    engine.client.start_workflow(kid, 1, workflow_id="w")
    engine.run_until_idle()
    calls = []

    @workflow.define(name="kid")
    async def changed(n):
        workflow.side_effect(lambda: calls.append(1))
        return await workflow.execute_activity(work, n)

    verdict = check(Registry([changed], []), history_of(engine.history("w"), "w"))
    assert (verdict.verdict, verdict.got) == ("differs", "RecordMarker of side_effect '1'")
    assert calls == []


def test_a_patched_change_fits_what_was_recorded_before_it():
    engine = LocalEngine(workflows=[kid], activities=[work])
    engine.client.start_workflow(kid, 1, workflow_id="w")
    engine.run_until_idle()

    @workflow.define(name="kid")
    async def changed(n):
        if workflow.patched("more"):
            await workflow.execute_activity(work, "more")
        return await workflow.execute_activity(work, n)

    assert check(Registry([changed], []), history_of(engine.history("w"), "w")).fits


def test_a_type_that_is_gone_and_code_that_blocks_are_said(shown, monkeypatch):
    async def spins(_):
        while True:
            pass

    gone = check(Registry([], []), history_of(shown["w"], "w"))
    assert (gone.verdict, "'flow'" in gone.message) == ("unknown_type", True)
    monkeypatch.setattr(replaying, "BLOCKED_S", 0.1)
    assert check(other_flow(spins), history_of(shown["w"], "w")).verdict == "blocked"


def test_a_history_with_an_event_missing_is_not_replayed(shown):
    events = [*shown["w"][:2], *shown["w"][3:]]
    assert check(NEW, history_of(events, "w")).verdict == "failed"


def test_histories_are_read_from_files_and_folders(shown, tmp_path):
    (tmp_path / "deeper").mkdir()
    (tmp_path / "w.json").write_bytes(msgspec.json.encode(shown["w"]))
    named = [{**shown["w/@1"][0], "workflow_id": "w/@1", "run": 1}, *shown["w/@1"][1:]]
    (tmp_path / "deeper" / "one.json").write_bytes(msgspec.json.encode(named))
    found = read_histories(tmp_path)
    assert [(each.workflow_id, each.workflow_type) for each in found] == [
        ("w/@1", "kid"),
        ("w", "flow"),
    ]
    assert all(check(NEW, each).fits for each in found)
    assert read_histories(tmp_path / "w.json")[0].source.endswith("w.json")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no history"),
        ("{}", "a list of events"),
        ("[]", "a list of events"),
        ("[1]", "an object with a kind"),
        ('[{"kind": "Unheard", "event_id": 1}]', "newer perdure"),
        ('[{"kind": "TimerFired", "event_id": 1, "at_ms": 1, "timer_id": 1}]', "begins with"),
        ('[{"kind": "TimerFired", "event_id": "1", "at_ms": 1, "timer_id": 1}]', "event 1"),
    ],
)
def test_what_is_no_history_is_said_with_its_file(tmp_path, text, why):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(errors.InvalidArgument, match=why) as raised:
        read_histories(file)
    assert str(file) in str(raised.value)


def test_where_there_is_nothing_to_read_that_is_said(tmp_path):
    with pytest.raises(errors.InvalidArgument, match=r"no \.json file"):
        read_histories(tmp_path)
    with pytest.raises(errors.InvalidArgument, match="can't be read"):
        read_histories(tmp_path / "none.json")


def test_how_a_run_began_is_read_back():
    terms = StartTerms(5, 6, 7, Parent("p", "c", "abandon"), (("a", 1),), 8, (("s", None),))
    started = records.WorkflowStarted(1, 2, "t", "q", values.encode([1]), "r", b"", terms)
    failed = records.ActivityTaskFailed(
        3, 4, "@1", 1, 1, 2, Failure("T", "m", details={"a": [1]}, cause=Failure("C", "d")), 9, "w"
    )
    shown = views.events([started, failed])
    if "terms" not in shown[0] or not isinstance(shown[0]["terms"], dict):
        shown[0]["terms"] = {
            **msgspec.structs.asdict(terms),
            "parent": msgspec.structs.asdict(terms.parent),
            "attributes": {"a": 1},
            "signals": [{"name": "s", "input": None}],
        }
    for form in (printed(shown), to_answer(shown)):
        (first, second) = history_of(form).events
        assert first.terms == terms
        assert second.failure == failed.failure
        assert (second.event_id, second.started_ms) == (3, 9)


def test_bytes_in_the_details_of_a_failure_are_bytes_where_a_client_gives_them():
    failure = Failure("T", "m", details=[b"\0\xff"], cause=Failure("C", "d", details=b"c"))
    started = records.WorkflowStarted(1, 2, "t", "q", None, "r", b"", None)
    failed = records.ActivityTaskFailed(3, 4, "@1", 1, 1, 2, failure, 9, "w")
    (_, found) = history_of(to_answer(views.events([started, failed]))).events
    assert found.failure == failure


# --- any hash seed ---------------------------------------------------------------------------

SCRIPT = """
import asyncio, json, sys
from perdure import activity, workflow
from perdure.registry import Registry
from perdure.replaying import check, history_of
from perdure.testing import LocalEngine

@activity.define
def work(name):
    return name

@workflow.define
async def busy():
    async def branch(name):
        await asyncio.sleep(len(name) / 100)
        return await workflow.execute_activity(work, name)
    tasks = {asyncio.create_task(branch(name)) for name in ("a", "bb", "c", "dd", "e")}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    seen = [task.result() for task in done]
    for each in pending:
        each.cancel()
    handles = {workflow.start_activity(work, name) for name in ("x", "y", "z")}
    for each in asyncio.as_completed(handles):
        seen.append(await each)
        await workflow.execute_activity(work, seen[-1])
    async with asyncio.TaskGroup() as group:
        for name in ("p", "q", "r"):
            group.create_task(branch(name))
    return [*seen, str(workflow.uuid4()), workflow.random().random()]

if sys.argv[1] == "record":
    engine = LocalEngine(workflows=[busy], activities=[work])
    engine.client.start_workflow(busy, workflow_id="w")
    engine.run_until_idle()
    print(json.dumps([event.to_dict() for event in engine.history("w")]))
else:
    print(check(Registry([busy], [work]), history_of(json.load(sys.stdin), "w")).message)
"""


@pytest.mark.process
def test_a_history_fits_under_any_hash_seed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def run(seed, what, text=None):
        return subprocess.run(
            [sys.executable, script, what],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(Path(replaying.__file__).parents[1]),
            },
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout

    history = run("1", "record")
    assert len(json.loads(history)) > 40
    for seed in ("2", "3"):
        assert run(seed, "replay", history) == "\n"


def test_how_a_run_began_is_the_same_after_it_was_shown_and_printed():
    terms = StartTerms(
        delay_ms=1,
        timeout_ms=2,
        timeout_at_ms=3,
        parent=Parent("p", "p/@1", "cancel"),
        attributes=(("city", "Ulm"),),
        first_started_ms=4,
        signals=(("go", values.encode([1])),),
        signalled=True,
        children=(("kid", "abandon"),),
    )
    plain = StartTerms()
    for field in StartTerms.__struct_fields__:  # One that is new is to be shown, too.
        assert getattr(terms, field) != getattr(plain, field), field
    started = records.WorkflowStarted(1, 5, "flow", "default", None, None, b"", terms)
    [view] = printed(views.events([started]))
    [back] = list(replaying._events([view]))
    signals = [(name, values.to_builtins(payload)) for name, payload in back.terms.signals]
    assert signals == [("go", [1])]
    assert msgspec.structs.replace(back.terms, signals=terms.signals) == terms


def test_a_history_that_began_with_its_signal_or_with_children_fits():
    engine = LocalEngine([drains, heir, kid], [work])
    engine.client.signal_with_start(drains, workflow_id="d", signal="item", signal_args=["lamp"])
    engine.client.start_workflow(heir, workflow_id="h")
    engine.run_until_idle()
    assert engine.client.result("d") == ["lamp"]
    assert engine.client.result("h") == 2
    for id_, run in (("d", 1), ("h", 2)):
        events = [it.to_dict() for it in engine.client.history(id_)]
        verdict = check(
            Registry([drains, heir, kid], [work]), history_of(printed(events), id_, run=run)
        )
        assert verdict.fits, verdict
