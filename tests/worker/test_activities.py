"""A worker's activities against a node that is only sockets."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading

import msgspec
import pytest

from perdure import activity, values
from perdure.core import limits, links
from perdure.core.commands import (
    CompleteActivity,
    DetachLease,
    Done,
    FailActivity,
    Refusal,
    ReleaseActivity,
)
from perdure.worker.activities import HEAP_SLACK

PATIENCE_S = 30
STALE = Refusal("FAILED_PRECONDITION", "stale token")
later: dict[str, threading.Event] = {}


@pytest.fixture(autouse=True)
def events():
    later.clear()
    for name in ("begun", "release", "cancelled", "over"):
        later[name] = threading.Event()
    yield
    later["release"].set()


@activity.define
def double(x: int) -> int:
    return 2 * x


@activity.define
async def double_async(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


@activity.define
def who() -> list:
    return [
        activity.idempotency_key(),
        activity.attempt(),
        activity.fence(),
        activity.task_token(),
        activity.heartbeat_details(),
    ]


@activity.define
def wait() -> str:
    later["begun"].set()
    assert later["release"].wait(PATIENCE_S)
    later["over"].set()
    return "waited"


@activity.define
def until_cancelled() -> None:
    later["begun"].set()
    while not activity.cancelled():
        later["release"].wait(0.001)
    try:
        activity.record_heartbeat()
    except activity.Cancelled:
        later["cancelled"].set()
        raise


@activity.define
async def until_cancelled_async() -> None:
    later["begun"].set()
    try:
        await asyncio.sleep(PATIENCE_S)
    except asyncio.CancelledError:
        later["cancelled"].set()
        raise


@activity.define
def raises(name: str) -> None:
    if name == "CompleteLater":
        raise activity.CompleteLater
    if name == "SystemExit":
        sys.exit(3)
    raise {"KeyboardInterrupt": KeyboardInterrupt, "BaseException": BaseException}[name]()


@activity.define
async def raises_async(name: str) -> None:
    raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[name]()


@activity.define
async def starts_a_task_that_exits() -> str:
    async def exits() -> None:
        sys.exit(3)

    task = asyncio.ensure_future(exits())
    await asyncio.wait([task])
    return type(task.exception()).__name__


@activity.define
def beats_and_leaves() -> None:
    activity.record_heartbeat("question 1")
    activity.record_heartbeat("question 2")
    raise activity.CompleteLater


@activity.define
def returns(what: str) -> object:
    return {"later": activity.CompleteLater, "object": object(), "large": b"x" * 3_000_000}[what]


@activity.define
def forks(how: str) -> int:
    pid = os.fork()
    if pid == 0:
        if how == "exit":
            sys.exit(7)
        if how == "raise":
            raise KeyError
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


ALL = (
    double,
    double_async,
    who,
    wait,
    until_cancelled,
    until_cancelled_async,
    raises,
    raises_async,
    starts_a_task_that_exits,
    beats_and_leaves,
    returns,
    forks,
)


def failure_of(node, token: str = "t1"):
    command = node.command(FailActivity, Done())
    assert command.token == token
    return command.failure


# --- outcomes ------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["double", "double_async"])
def test_a_result_is_reported_as_a_payload(node, task, kind):
    node.worker(activities=ALL)
    node.say(task("t1", kind, 21))
    assert node.command(CompleteActivity, Done()) == CompleteActivity("t1", values.encode(42))


def test_the_code_knows_its_attempt(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "who", details={"row": 500}))
    result = values.decode(node.command(CompleteActivity, Done()).result)
    assert result == ["order%2F1/charge", 2, 3, "t1", {"row": 500}]


def test_an_input_that_does_not_fit_is_a_non_retryable_failure_that_names_the_argument(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "double", "one"))
    failure = failure_of(node)
    assert (failure.type, failure.non_retryable) == ("BadInput", True)
    assert "x" in failure.message


@pytest.mark.parametrize(("what", "kind"), [("object", "BadResult"), ("large", "PayloadTooLarge")])
def test_a_result_that_can_not_be_kept_is_a_non_retryable_failure(node, task, what, kind):
    node.worker(activities=ALL)
    node.say(task("t1", "returns", what))
    failure = failure_of(node)
    assert (failure.type, failure.non_retryable) == (kind, True)


def test_an_unknown_type_is_handed_back(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "unheard"))
    assert node.command(ReleaseActivity, Done()) == ReleaseActivity("t1", "unknown_type")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("raises", "SystemExit"),
        ("raises", "KeyboardInterrupt"),
        ("raises", "BaseException"),
        ("raises_async", "SystemExit"),
        ("raises_async", "KeyboardInterrupt"),
    ],
)
def test_whatever_is_raised_is_a_failure_and_the_worker_goes_on(node, task, kind, name):
    node.worker(activities=ALL)
    node.say(task("t1", kind, name))
    assert failure_of(node).type == name
    node.say(task("t2", "double", 1), task("t3", "double_async", 1))
    assert {node.command(CompleteActivity, Done()).token for _ in range(2)} == {"t2", "t3"}


def test_a_task_that_exits_does_not_end_the_loop_of_the_others(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "starts_a_task_that_exits"))
    assert values.decode(node.command(CompleteActivity, Done()).result) == "SystemExit"
    node.say(task("t2", "double_async", 1))
    assert node.command(CompleteActivity, Done()).token == "t2"


@pytest.mark.parametrize(("kind", "arg"), [("raises", "CompleteLater"), ("returns", "later")])
def test_an_attempt_that_is_left_open_is_held_until_history_knows_that_it_is_nobodys(
    node, task, kind, arg
):
    node.worker(activities=ALL, slots=1)
    node.say(task("t1", kind, arg), task("t2", "double", 1))
    assert node.command(CompleteActivity, Done()).token == "t2"
    node.sync(lambda sync: sync.tokens == ("t1",))
    assert node.command(DetachLease, Done()).token == "t1"
    node.sync(lambda sync: sync.tokens == ())
    assert node.commands(FailActivity) == []


def test_what_was_recorded_last_goes_with_the_attempt_that_is_left_open(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "beats_and_leaves"))
    command = node.command(DetachLease, Done())
    assert values.decode(command.details) == "question 2"
    assert command.beat > 0


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit", 7), ("raise", 1)])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_leaves_the_function_ends_and_reports_nothing(
    node, task, how, code, capfd
):
    node.worker(activities=ALL)
    node.say(task("t1", "forks", how))
    assert values.decode(node.command(CompleteActivity, Done()).result) == code
    node.say(task("t2", "double", 1))
    assert node.command(CompleteActivity, Done()).token == "t2"
    assert len(node.commands(CompleteActivity)) == 2


@activity.define
def starts_processes() -> list:
    child = multiprocessing.get_context("fork").Process(target=int)
    child.start()
    child.join()
    done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, check=True)
    return [child.exitcode, done.stdout.decode().strip()]


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_that_an_activity_starts_leave_the_worker_and_its_sockets_alone(node, task):
    node.worker(activities=[starts_processes])
    for number in range(3):
        node.say(task(f"t{number}", "starts_processes"))
        result = node.command(CompleteActivity, Done()).result
        assert values.decode(result) == [0, "42"]


def test_an_input_that_the_node_did_not_put_in_its_place_is_no_fault_of_the_caller(node, task):
    node.worker(activities=ALL)
    reference = values.refer(values.encode("x" * 2_000))
    node.say(msgspec.structs.replace(task("t1", "double"), input=reference))
    failure = failure_of(node)
    assert (failure.type, failure.non_retryable) == ("Internal", False)


# --- holding and reporting -------------------------------------------------------
def test_a_task_that_is_sent_again_runs_once_whether_it_runs_or_is_over(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "wait"))
    assert later["begun"].wait(PATIENCE_S)
    node.say(task("t1", "wait"))
    later["release"].set()
    node.command(CompleteActivity, Done())
    node.say(task("t1", "wait"), task("t2", "double", 1))
    assert node.command(CompleteActivity, Done()).token == "t2"
    assert len(node.commands(CompleteActivity)) == 2


def test_a_token_is_held_until_its_report_is_answered(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "double", 1))
    ask = node.next(links.Ask)
    assert node.sync().tokens == ("t1",)
    node.say(links.Answer(ask.n, 77, Done()))
    sync = node.sync(lambda sync: sync.tokens == ())
    assert sync.n == 77, "the newest commit that it saw"


def test_a_report_is_sent_again_to_a_new_history_and_over_a_new_connection(node, task, monkeypatch):
    monkeypatch.setattr(limits, "RESEND_FIRST_MS", 600_000)
    node.worker(activities=ALL)
    node.say(task("t1", "double", 1))
    first = node.next(links.Ask)
    node.say(links.HistoryChanged("history.two"))
    assert node.next(links.Ask) == first
    node.end()
    node.open()
    node.next(links.WorkerHello)
    assert node.next(links.Sync).tokens == ("t1",)
    assert node.next(links.Ask) == first


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED"])
def test_a_report_whose_fate_is_unknown_is_sent_again(node, task, code):
    node.worker(activities=ALL)
    node.say(task("t1", "double", 1))
    ask = node.next(links.Ask)
    node.say(links.Answer(ask.n, 0, Refusal(code, "not now")))
    assert node.next(links.Ask) == ask


def test_a_report_that_is_stale_is_dropped(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "double", 1))
    node.command(CompleteActivity, STALE)
    node.sync(lambda sync: sync.tokens == ())
    assert len(node.commands(CompleteActivity)) == 1


def test_a_result_that_history_refuses_fails_the_attempt_instead_of_running_again(node, task):
    node.worker(activities=ALL)
    node.say(task("t1", "double", 1))
    node.command(CompleteActivity, Refusal("INVALID_ARGUMENT", "no such payload"))
    failure = failure_of(node)
    assert (failure.type, failure.non_retryable) == ("BadResult", True)


def test_no_more_than_the_slots_run_at_a_time(node, task):
    node.worker(activities=ALL, slots=1)
    node.say(task("t1", "wait"), task("t2", "double", 1))
    assert later["begun"].wait(PATIENCE_S)
    node.sync(lambda sync: sync.tokens == ("t1", "t2"))
    node.sync()
    assert node.commands(CompleteActivity) == []
    later["release"].set()
    assert node.command(CompleteActivity, Done()).token == "t1"
    assert node.command(CompleteActivity, Done()).token == "t2"


def test_a_frame_that_can_not_be_read_costs_only_what_is_wrong_in_it(node, task):
    node.worker(activities=ALL)
    bad = links.Stop(1)  # Nothing that is said to workers.
    node.say(bad, task("t1", "double", 1))
    node.socket.send_multipart([node.identity, b"\xc1 noise"])
    assert node.command(CompleteActivity, Done()).token == "t1"


# --- cancellation ------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["until_cancelled", "until_cancelled_async"])
def test_an_attempt_that_is_not_live_is_cancelled_and_says_nothing(node, task, kind):
    node.worker(activities=ALL, slots=1)
    node.say(task("t1", kind))
    assert later["begun"].wait(PATIENCE_S)
    node.say(links.CancelTask("t1", "cancelled"), task("t1", kind), task("t2", "double", 1))
    assert later["cancelled"].wait(PATIENCE_S)
    assert node.command(CompleteActivity, Done()).token == "t2"
    node.sync(lambda sync: sync.tokens == ())
    assert node.commands(FailActivity) == []


def test_the_slot_of_code_that_does_not_listen_is_free_and_its_report_dropped(node, task):
    node.worker(activities=ALL, slots=1)
    node.say(task("t1", "wait"))
    assert later["begun"].wait(PATIENCE_S)
    node.say(links.CancelTask("t1", "stale"), task("t2", "double", 1))
    assert node.command(CompleteActivity, Done()).token == "t2"
    later["release"].set()
    assert later["over"].wait(PATIENCE_S)
    node.say(task("t3", "double", 1))
    assert node.command(CompleteActivity, Done()).token == "t3"


def test_a_worker_with_too_many_threads_that_do_not_return_ends_and_says_so(
    node, task, monkeypatch
):
    monkeypatch.setattr(limits, "STUCK_THREADS_MAX", 1)
    worker = node.worker(activities=ALL, slots=1)
    for number in range(2):
        later["begun"].clear()
        node.say(task(f"t{number}", "wait"))
        assert later["begun"].wait(PATIENCE_S)
        assert not worker.is_worn_out
        node.say(links.CancelTask(f"t{number}", "stale"))
    node.sync(lambda sync: sync.draining)
    node.next(links.WorkerBye)
    assert worker.is_worn_out


@pytest.mark.parametrize("kind", ["until_cancelled", "until_cancelled_async"])
@pytest.mark.parametrize("bound", ["lease_ms", "attempt_ms"])
def test_an_attempt_knows_by_its_own_clock_when_it_has_lost_its_lease(node, task, kind, bound):
    node.worker(activities=ALL, slots=1)
    node.say(task("t1", kind, **{bound: 1_000}))
    assert later["begun"].wait(PATIENCE_S)
    assert later["cancelled"].wait(PATIENCE_S)
    node.say(task("t2", "double", 1))
    assert node.command(CompleteActivity, Done()).token == "t2"
    node.sync(lambda sync: sync.tokens == ("t1",))  # Else the node would send it again.
    node.say(links.CancelTask("t1", "stale"))
    node.sync(lambda sync: sync.tokens == ())
    assert node.commands(FailActivity) == []


def test_what_is_over_does_not_pile_up(node, task):
    worker = node.worker(activities=ALL)
    for number in range(60):
        node.say(*(task(f"t{number}-{i}", "double", 1) for i in range(50)))
        for _ in range(50):
            node.command(CompleteActivity, Done())
    node.sync(lambda sync: sync.tokens == ())
    assert len(worker.activities._leases) <= HEAP_SLACK + 2 * 50 + 1
    assert worker.activities._sent == {}
