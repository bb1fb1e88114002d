"""Activities with isolation="process": real children of a worker, which end when they have to."""

from __future__ import annotations

import importlib
import os
import queue
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure import values
from perdure.activity import ActivityContext
from perdure.clock import boottime_ms
from perdure.core import links
from perdure.core.commands import CompleteActivity, Done
from perdure.failures import Failure
from perdure.worker.children import Children
from perdure.worker.context import activity_context

APPS = str(Path(__file__).parent / "apps")
PATIENCE_S = 30


@pytest.fixture(scope="module")
def app():
    sys.path.insert(0, APPS)
    yield importlib.import_module("isolated_app")
    sys.path.remove(APPS)


@pytest.fixture(scope="module")
def pool(app):
    """The children of one worker: most tests find a warm one."""
    children = Children(("isolated_app",))
    yield children
    children.close()


class Attempt:
    """One attempt in a child, looked after by a thread as in a worker."""

    def __init__(self, pool: Children, task: links.ActivityTask) -> None:
        self._beats: queue.Queue[bytes | None] = queue.Queue()
        self._outcomes: queue.Queue = queue.Queue()
        self.context: ActivityContext = activity_context(
            workflow_id=task.workflow_id,
            workflow_type=task.workflow_type,
            activity_id=task.activity_id,
            activity_type=task.activity_type,
            generation=task.generation,
            grant=task.grant,
            attempt=task.attempt,
            token=task.token,
            details=task.details,
            heartbeat=self._beats.put,
        )
        work = lambda: self._outcomes.put(pool.run(task, self.context))  # noqa: E731
        threading.Thread(target=work, daemon=True).start()

    def beat(self):
        return values.decode(self._beats.get(timeout=PATIENCE_S))

    def newest_beat(self):
        beats = []
        while not self._beats.empty():
            beats.append(self._beats.get())
        return values.decode([beat for beat in beats if beat is not None][-1])

    @property
    def result(self):
        outcome = self._outcomes.get(timeout=PATIENCE_S)
        assert isinstance(outcome, bytes), outcome
        return values.decode(outcome)

    @property
    def failure(self) -> Failure:
        outcome = self._outcomes.get(timeout=PATIENCE_S)
        assert isinstance(outcome, Failure), outcome
        return outcome


@pytest.fixture
def isolated(pool, task):
    """Begins an attempt that runs in a child, with a grace of 300 ms."""

    def begin(activity_type: str, *args: object, **options: object) -> Attempt:
        options = {"isolation": "process", "grace_ms": 300, **options}
        return Attempt(pool, task("t1", activity_type, *args, **options))

    return begin


def is_gone(pid: int) -> bool:
    """Whether that process ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], PATIENCE_S)[0])
    finally:
        os.close(fd)


def test_it_runs_in_another_process_which_is_used_again(isolated):
    # Others that wait for work may have their turn between two calls; there are at most four.
    found = [isolated(kind).result for kind in ("pid", "pid_async") for _ in range(5)]
    assert os.getpid() not in found
    assert len(set(found)) < len(found)


def test_it_knows_who_it_is_and_what_an_earlier_attempt_has_left(isolated):
    found = isolated("who", details={"row": 7})
    assert found.result == ["order%2F1/charge", 2, 3, "t1", {"row": 7}]


def test_the_newest_of_very_many_heartbeats_comes_before_the_failure(isolated):
    attempt = isolated("beats_a_lot")
    assert attempt.failure.type == "KeyError"
    assert attempt.newest_beat() == 19_999


@pytest.mark.parametrize("activity_type", ["listens", "listens_async"])
def test_a_cancelled_one_is_interrupted_at_once(isolated, activity_type):
    attempt = isolated(activity_type, grace_ms=60_000)
    pid = attempt.beat()
    attempt.context.cancel("cancelled")
    assert attempt.failure.type == "Cancelled"
    assert is_gone(pid)


@pytest.mark.parametrize("kind", ["Exception", "BaseException"])
def test_one_that_swallows_what_is_raised_in_it_is_gone_after_its_grace(isolated, kind):
    attempt = isolated("swallows", kind)
    pid = attempt.beat()
    attempt.context.cancel("timeout")
    assert attempt.failure.type == "Cancelled"
    assert is_gone(pid)


def test_one_that_is_cancelled_before_it_begins_does_not_begin(isolated):
    attempt = isolated("listens", grace_ms=60_000)
    attempt.context.cancel("cancelled")
    assert attempt.failure.type == "Cancelled"


@pytest.mark.parametrize(
    ("how", "kind"), [("signal", "SignalSIGSEGV"), ("0", "ExitCode0"), ("7", "ExitCode7")]
)
def test_the_death_of_its_process_is_the_failure_of_the_attempt(isolated, how, kind):
    assert isolated("ends", how).failure.type == kind


def test_what_it_raises_need_not_be_picklable(isolated):
    failure = isolated("raises").failure
    assert failure.type == "Odd"
    assert "in raises" in failure.stack
    assert "isolated_app.Odd" in failure.type_chain


def test_large_values_pass_and_too_large_ones_are_named(isolated):
    large = "x" * 1_900_000
    assert isolated("echoes", large, 1).result == large
    failure = isolated("echoes", "x", 3_000_000).failure
    assert (failure.type, failure.non_retryable) == ("PayloadTooLarge", True)
    misfit = isolated("echoes", 5, 1).failure
    assert (misfit.type, misfit.non_retryable) == ("BadInput", True)


def test_it_may_be_left_to_be_completed_later(isolated):
    assert isolated("later")._outcomes.get(timeout=PATIENCE_S) is None


@pytest.mark.parametrize("what", ["process", "thread"])
def test_a_process_that_an_activity_left_untidy_runs_no_other(isolated, what):
    left = isolated(f"leaves_a_{what}").result
    assert is_gone(left)
    assert isolated("pid").result != left


def until(probe):
    pause, until_ms = threading.Event(), boottime_ms() + 1_000 * PATIENCE_S
    while not probe():
        assert boottime_ms() < until_ms
        pause.wait(0.01)


def test_once_a_template_has_the_application_children_are_forked_from_it(app, task):
    pool = Children(("isolated_app",))
    try:
        assert "import template" not in Attempt(pool, task("t1", "birth")).result
        until(lambda: pool._template._can())
        pool.warm()  # The child that waits for longest is taken last.
        assert "import template" in Attempt(pool, task("t2", "birth")).result
    finally:
        pool.close()


def test_an_application_with_threads_of_its_own_is_imported_by_every_child(app, task):
    pool = Children(("threaded_app",))
    try:
        assert "import template" not in Attempt(pool, task("t1", "birth")).result
        until(lambda: not pool._template._can() and pool._template._is_ready is False)
    finally:
        pool.close()


def test_a_template_whose_worker_was_killed_ends_without_a_word():
    ours, its = socket.socketpair()
    code = f"from perdure.worker.isolated import template; template({its.fileno()}, [])"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, pass_fds=[its.fileno()], stderr=subprocess.PIPE) as process:
        its.close()
        select.select([ours], [], [], PATIENCE_S)  # It is ready, and nobody will read that.
        ours.close()
        assert process.communicate(timeout=PATIENCE_S) == (None, b"")
    assert process.returncode == 0


def test_an_application_that_a_child_can_not_import_is_said(task):
    pool = Children(("no_such_app",))
    failure = Attempt(pool, task("t1", "pid", isolation="process")).failure
    pool.close()
    assert failure.type == "IsolationFailed"
    assert "no_such_app" in failure.message


def test_at_its_timeout_it_is_ended_and_its_slot_is_free(node, app, task):
    """Through a whole worker, with one slot."""
    node.worker(activities=app.ALL, apps=("isolated_app",), slots=1)
    options = {"isolation": "process", "grace_ms": 100, "lease_ms": 2_500, "attempt_ms": 2_500}
    node.say(task("t0", "pid", isolation="process"))
    node.command(CompleteActivity, Done())  # From here on a process is warm.
    node.say(task("t1", "swallows", "BaseException", **options))
    beat = node.next(links.Heartbeat, lambda message: message.token == "t1")
    node.say(task("t2", "pid", isolation="process"), task("t3", "pid", isolation="process"))
    assert is_gone(values.decode(beat.details))
    assert {node.command(CompleteActivity, Done()).token for _ in range(2)} == {"t2", "t3"}
