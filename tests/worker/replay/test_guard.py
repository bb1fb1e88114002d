"""Guards: what would not replay is stopped in a workflow, and nowhere else."""

from __future__ import annotations

import asyncio
import datetime
import gc
import io
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
import zoneinfo
from pathlib import Path
from random import randint
from time import monotonic
from uuid import uuid4

import pytest

from perdure import activity, workflow
from perdure.worker import guard


@pytest.fixture(autouse=True)
def _guards():
    guard.install()
    guard.install()
    yield
    guard.uninstall()


USES = {
    "time.time": (lambda: time.time(), "workflow.now_ms"),
    "time.monotonic": (lambda: time.monotonic(), "workflow.now_ms"),
    "time.sleep": (lambda: time.sleep(0), "asyncio.sleep"),
    "time.localtime": (lambda: time.localtime(), "workflow.now_ms"),
    "time.strftime": (lambda: time.strftime("%H"), "workflow.now_ms"),
    "datetime.now": (lambda: datetime.datetime.now(tz=datetime.UTC), "workflow.now_ms"),
    "time.time ": (lambda: datetime.date.today(), "workflow.now_ms"),  # noqa: DTZ011
    "random.random": (lambda: random.random(), "workflow.random"),
    "random.shuffle": (lambda: random.shuffle([]), "workflow.random"),
    "random.Random() without a seed": (lambda: random.Random(), "workflow.random"),
    "time.gmtime": (lambda: time.gmtime(None), "workflow.now_ms"),
    "random._urandom": (lambda: secrets.token_hex(), "workflow.random"),
    "uuid.uuid1": (lambda: uuid.uuid1(), "workflow.uuid4"),
    "uuid.uuid4": (lambda: uuid.uuid4(), "workflow.uuid4"),
    "os.urandom": (lambda: os.urandom(1), "workflow.random"),
    "Thread.start": (lambda: threading.Thread(target=print).start(), "activity"),
    "os.stat": (lambda: Path("there").exists(), "activity"),
    "os.mkdir": (lambda: os.mkdir("there"), "activity"),
    "os.listdir": (lambda: os.listdir("."), "activity"),
    "changing os.environ": (lambda: os.environ.update(A="1"), "argument"),
    "socket.getaddrinfo": (lambda: socket.getaddrinfo("localhost", 1), "activity"),
    "open()": (lambda: open(os.devnull), "activity"),  # noqa: SIM115
    "socket.socket": (lambda: socket.socket(), "activity"),
    "subprocess.Popen": (lambda: subprocess.run(["true"], check=False), "activity"),
}


@pytest.mark.parametrize("what", USES)
def test_what_would_not_replay_is_stopped_and_says_what_to_use_instead(history, what):
    use, instead = USES[what]

    async def flow():
        use()

    with pytest.raises(workflow.NonDeterminism) as raised:
        history(flow).run()
    assert what in str(raised.value)
    assert instead in str(raised.value)
    assert "test_guard.py:" in str(raised.value)


def test_what_was_imported_by_name_before_the_guards_is_stopped_too(history):
    async def clock():
        return monotonic()

    async def chance():
        return _throws_dice()

    async def ids():
        return _Maker().make()

    async def default(dice=_throws_dice, *, make=None):
        return dice()

    flows = ((clock, "time.monotonic"), (chance, "random"), (ids, "uuid.uuid4"))
    for flow, what in (*flows, (default, "random")):
        with pytest.raises(workflow.NonDeterminism, match=what):
            history(flow).run()


def _throws_dice():
    return randint(1, 6)


class _Maker:
    def make(self):
        return uuid4()


def test_the_time_past_the_guards_is_stopped_only_where_it_is_asked_for(history):
    async def flow(early):
        at = datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
        if not early:
            datetime.datetime.now(tz=datetime.UTC)
        given = [at.year, time.gmtime(0).tm_year, time.strftime("%Y", time.gmtime(0))]
        return [*given, random.Random(7).randint(1, 1), random.Random(x=b"seven").randint(2, 2)]

    assert history(flow, True).run().result == [2026, 1970, "1970", 1, 2]
    with pytest.raises(workflow.NonDeterminism, match=r"datetime\.now"):
        history(flow, False).run()
    assert sys.getprofile() is None


class _Litter:
    """A circle that only the garbage collector finds, and that looks at the clock then."""

    def __init__(self, seen):
        self.me = self
        self.seen = seen

    def __del__(self):
        self.seen.append(time.time() + monotonic())


def test_what_the_garbage_collector_calls_is_no_doing_of_the_workflow(history):
    seen = []

    def collected(phase, _):
        seen.append((phase, time.monotonic()))

    async def flow():
        _Litter(seen)
        gc.collect()
        return await workflow.execute_activity("work", activity_id="a")

    gc.callbacks.append(collected)
    try:
        assert history(flow).run().result == "a"
    finally:
        gc.callbacks.remove(collected)
    assert len(seen) >= 3

    async def asks():
        gc.collect()
        time.time()

    with pytest.raises(workflow.NonDeterminism, match=r"time\.time"):
        history(asks).run()


def test_in_a_side_effect_the_time_can_be_asked_for(history):
    async def flow():
        return workflow.side_effect(lambda: datetime.datetime.now(tz=datetime.UTC).year)

    assert history(flow).run().result >= 2026


def test_only_code_that_may_ask_for_the_time_past_the_guards_is_watched(history):
    async def plain():
        await workflow.execute_activity(asks_the_time)

    async def asking():
        return _asks()

    assert history(plain).replayer.loop.watched is False
    assert history(asking).replayer.loop.watched is True


@activity.define
def asks_the_time():
    return _asks()


def _asks():
    return datetime.datetime.now(tz=datetime.UTC)


def test_code_that_swallows_the_error_fails_its_task_all_the_same(history):
    async def flow():
        try:
            time.time()
        except Exception:  # noqa: BLE001
            return "nothing happened"

    run = history(flow)
    with pytest.raises(workflow.NonDeterminism, match=r"time\.time"):
        run.run()
    assert run.replayer.take_steps() == ()


def test_in_a_task_group_it_fails_the_task_and_not_the_workflow(history):
    async def child():
        uuid.uuid4()

    async def flow():
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    with pytest.raises(workflow.NonDeterminism, match="uuid4"):
        history(flow).run()


def test_outside_a_workflow_everything_is_as_ever(history):
    async def flow():
        return await workflow.execute_activity("work", activity_id="a")

    assert history(flow).run().result == "a"
    assert time.time() > 0
    assert random.random() < 1
    assert uuid.uuid4().version == 4
    with open(os.devnull) as file, io.open(os.devnull), socket.socket():  # noqa: UP020
        assert file.readable()
    thread = threading.Thread(target=time.sleep, args=(0,))
    thread.start()
    thread.join()
    asyncio.run(asyncio.to_thread(time.monotonic))


def test_logging_and_imports_pass_through(history, tmp_path, monkeypatch):
    module = tmp_path / "perdure_imported_in_a_workflow.py"
    module.write_text("import random, time\nat = time.time()\ndrawn = random.random()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    handler = logging.FileHandler(tmp_path / "log", delay=True)
    log = logging.getLogger("perdure.test.guard")
    log.addHandler(handler)

    async def flow():
        import perdure_imported_in_a_workflow as imported

        log.warning("from the workflow")
        return imported.at > 0

    try:
        assert history(flow).run().result is True
    finally:
        log.removeHandler(handler)
        handler.close()
        sys.modules.pop(module.stem, None)
    assert (tmp_path / "log").read_text() == "from the workflow\n"


def test_the_failure_of_a_workflow_has_its_stack_with_guards_in_place(history):
    async def flow():
        raise ValueError("why")

    failure = history(flow).run().failure
    assert "raise ValueError" in failure.stack


def test_uninstalling_puts_everything_back():
    guarded = time.time, open
    guard.uninstall()
    assert not any(callback.__module__ == guard.__name__ for callback in gc.callbacks)
    assert not hasattr(time.time, "__wrapped__")
    assert (time.time, open) != guarded
