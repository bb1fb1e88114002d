"""Results over runs, updates, queries and events, as far as they are the gateway's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pytest

from actors import gateway_events, gateway_queries
from perdure.core.commands import (
    CancelWorkflow,
    Closed,
    CompleteWorkflow,
    CompleteWorkflowTask,
    Done,
    Refusal,
    SignalWorkflow,
    StartWorkflow,
    TerminateWorkflow,
    Updated,
    UpdateWorkflow,
)
from perdure.core.ids import execution_id
from perdure.core.ledger import Ledger
from perdure.core.limits import PROTOCOL_VERSION
from perdure.core.links import (
    Answer,
    Ask,
    Feed,
    Hello,
    Newest,
    Query,
    QueryAnswer,
    ToWorker,
    Unwatch,
    Watch,
    Welcome,
    WorkerBye,
    WorkerHello,
    WorkerWelcome,
)
from perdure.failures import Failure
from perdure.store.sqlite import SqliteWriter

HEARD = msgspec.msgpack.Decoder(list[ToWorker])


def reply(node, n, answer, commit=5):
    node.history.say(node.name, Answer(n, commit, answer))


class Log:
    """A history that commits to the gateway's store, and leaves it to the test to tell."""

    def __init__(self, node) -> None:
        self.node = node
        self.writer = SqliteWriter(node.tmp)
        opened = self.writer.open_epoch("history.log", 1_700_000_000_000, "boot", 0)
        self.ledger = Ledger(
            self.writer,
            epoch=opened.epoch,
            n=opened.n,
            last_hash=opened.last_hash,
            key=opened.key,
            draw=lambda: 0.5,
        )

    def commit(self, *commands) -> Feed:
        previous = self.ledger.n
        batch = self.ledger.judge(commands, 1_700_000_000_000)
        assert batch.change is not None
        self.writer.commit(batch.change)
        self.ledger.committed(batch)
        return Feed(previous, batch.n, batch.change.body)

    def start(self, workflow_id: str) -> Feed:
        return self.commit(StartWorkflow(workflow_id, "T", "default", None, None, b""))

    def complete(self, workflow_id: str) -> Feed:
        return self.commit(CompleteWorkflowTask(workflow_id, 0, 0, 1, (CompleteWorkflow(None),)))


@pytest.fixture
def log(node) -> Iterator[Log]:
    it = Log(node)
    yield it
    it.writer.close()


# --- commands ----------------------------------------------------------------------
def test_signals_and_endings_are_commands_with_what_was_asked(node):
    client = node.client()
    client.ask("SignalWorkflow", workflow_id="w", name="add", input=[1], request_id="r")
    client.ask("CancelWorkflow", workflow_id="w", reason="why")
    client.ask("TerminateWorkflow", workflow_id="w", request_id="t")
    for expected in (
        SignalWorkflow("w", "add", b"j[1]", "r"),
        CancelWorkflow("w", "why", None),
        TerminateWorkflow("w", "", "t"),
    ):
        ask = node.history.hear(Ask)
        assert ask.command == expected
        reply(node, ask.n, Done())
        assert client.answer()["ok"] == {}


# --- results over runs -----------------------------------------------------------------
def test_a_result_is_followed_from_run_to_run(node):
    client = node.client()
    client.ask("GetResult", workflow_id="w", wait_ms=5_000)
    for run in (1, 2):
        watch = node.history.hear(Watch)
        assert watch.workflow_id == execution_id("w", run)
        reply(node, watch.n, Closed("ContinuedAsNew", None, None))
    watch = node.history.hear(Watch)
    assert watch.workflow_id == execution_id("w", 3)
    reply(node, watch.n, Closed("Completed", b"j7", None))
    assert client.answer()["ok"] == {"status": "Completed", "result": 7}


def test_the_result_of_a_named_run_is_its_own(node):
    client = node.client()
    client.ask("GetResult", workflow_id="w", wait_ms=5_000, run=2)
    watch = node.history.hear(Watch)
    assert watch.workflow_id == execution_id("w", 2)
    reply(node, watch.n, Closed("ContinuedAsNew", None, None))
    assert client.answer()["error"]["status"] == "ContinuedAsNew"


# --- updates ------------------------------------------------------------------------------
def ask_update(node, client, wait_ms=5_000):
    args = {"workflow_id": "w", "name": "pay", "input": [1], "request_id": "u"}
    client.ask("UpdateWorkflow", **args, wait_ms=wait_ms)
    ask = node.history.hear(Ask)
    assert ask.command == UpdateWorkflow("w", "pay", b"j[1]", "u")
    return ask


def test_an_update_is_a_command_and_then_waited_for_by_its_id(node):
    client = node.client()
    reply(node, ask_update(node, client).n, Done())
    watch = node.history.hear(Watch)
    assert (watch.workflow_id, watch.update_id) == ("w", "u")
    reply(node, watch.n, Updated(b"m\x07", None))
    assert client.answer()["ok"] == {"result": 7}


def test_an_update_that_was_accepted_holds_up_nothing_behind_it(node):
    client = node.client()
    ask = ask_update(node, client)
    client.ask("DescribeWorkflow", workflow_id="other")
    assert client.is_silent()
    reply(node, ask.n, Done())
    assert client.answer()["id"] == 2


@pytest.mark.parametrize(
    ("rejected", "code"), [(True, "UPDATE_REJECTED"), (False, "UPDATE_FAILED")]
)
def test_an_update_without_a_result_says_how_and_why(node, rejected, code):
    client = node.client()
    reply(node, ask_update(node, client).n, Done())
    reply(node, node.history.hear(Watch).n, Updated(None, Failure("Bad", "no"), rejected))
    error = client.answer()["error"]
    assert (error["code"], error["failure"]["type"]) == (code, "Bad")


def test_an_update_that_is_not_waited_for_is_answered_when_it_is_durable(node):
    client = node.client()
    reply(node, ask_update(node, client, wait_ms=0).n, Done())
    assert client.answer()["ok"] == {}


def test_an_update_that_takes_too_long_is_no_longer_waited_for(node):
    client = node.client()
    reply(node, ask_update(node, client, wait_ms=50).n, Done())
    watch = node.history.hear(Watch)
    assert client.answer()["error"]["code"] == "DEADLINE_EXCEEDED"
    assert node.history.hear(Unwatch).n == watch.n


def test_an_update_that_is_refused_is_not_waited_for(node):
    client = node.client()
    reply(node, ask_update(node, client).n, Refusal("FAILED_PRECONDITION", "it is Completed"))
    assert client.answer()["error"]["code"] == "FAILED_PRECONDITION"
    assert node.history.hears_nothing(Watch)


# --- queries ---------------------------------------------------------------------------------
def worker_that_has(node, *types, queue="default"):
    worker = node.worker()
    hello = WorkerHello(
        f"w-{types}", os.getpid(), 0.0, "node.test", PROTOCOL_VERSION, None, (queue,), (), types
    )
    worker.say(b"G", hello)
    [welcome] = worker.hear(HEARD)
    assert isinstance(welcome, WorkerWelcome)
    return worker


def test_a_query_goes_to_a_worker_that_has_the_type_and_its_answer_comes_back(node, log):
    log.start("w")
    worker_that_has(node, "Other")
    worker = worker_that_has(node, "T")
    client = node.client()
    client.ask("QueryWorkflow", workflow_id="w", name="count", input=[2])
    [query] = worker.hear(HEARD)
    assert (query.workflow_id, query.workflow_type, query.name) == ("w", "T", "count")
    assert (query.input, query.last_event_id) == (b"j[2]", 1)
    worker.say(b"G", QueryAnswer(query.n, b"m\x07"))
    assert client.answer()["ok"] == {"result": 7}


def test_what_a_worker_can_not_answer_is_told_as_it_says_it(node, log):
    log.start("w")
    worker = worker_that_has(node, "T")
    client = node.client()
    client.ask("QueryWorkflow", workflow_id="w", name="count")
    [query] = worker.hear(HEARD)
    worker.say(b"G", QueryAnswer(query.n, None, "NOT_FOUND", "no query 'count'"))
    error = client.answer()["error"]
    assert (error["code"], error["message"]) == ("NOT_FOUND", "no query 'count'")


def test_where_nobody_has_the_type_it_is_said_at_once_but_not_while_workers_may_be_coming(
    node, log
):
    log.start("w")
    client = node.client()
    queries = node.gateways[-1]._queries
    queries._settled_ms += 60_000  # As if it had begun later.
    assert client.call("QueryWorkflow", workflow_id="w", name="q")["error"]["code"] == "UNAVAILABLE"
    queries._settled_ms = 0
    error = client.call("QueryWorkflow", workflow_id="w", name="q")["error"]
    assert error["code"] == "FAILED_PRECONDITION"
    assert "workflow 'T' on queue 'default'" in error["message"]


def test_the_query_of_a_worker_that_goes_is_asked_again_by_the_client(node, log):
    log.start("w")
    worker = worker_that_has(node, "T")
    client = node.client()
    client.ask("QueryWorkflow", workflow_id="w", name="count")
    assert isinstance(worker.hear(HEARD)[0], Query)
    worker.say(b"G", WorkerBye())
    assert client.answer()["error"]["code"] == "UNAVAILABLE"


def test_a_query_that_no_worker_answers_ends_in_time(node, log):
    log.start("w")
    worker_that_has(node, "T")
    client = node.client()
    error = client.call("QueryWorkflow", workflow_id="w", name="count", wait_ms=50)["error"]
    assert error["code"] == "DEADLINE_EXCEEDED"
    assert gateway_queries.WAIT_MS == 10_000


def test_a_query_of_what_is_not_there_asks_nobody(node):
    client = node.client()
    error = client.call("QueryWorkflow", workflow_id="nobody", name="q")["error"]
    assert error["code"] == "NOT_FOUND"


# --- events -----------------------------------------------------------------------------------
def follows(node):
    """The gateway has greeted history anew, with the wish to follow, and was welcomed."""
    hello = node.history.hear(Hello)
    assert hello.follow
    node.history.say(node.name, Welcome(node.history.identity, 1, 1, 1_700_000_000_000))


def test_events_that_are_there_are_answered_at_once_and_history_is_not_bothered(node, log):
    log.start("w")
    log.complete("w")
    ok = node.client().call("ReadEvents", wait_ms=5_000)["ok"]
    assert [it["kind"] for it in ok["events"]] == ["WorkflowStarted", "WorkflowCompleted"]
    assert node.history.hears_nothing(Hello)


def test_who_waits_for_events_gets_the_first_that_comes(node, log):
    client = node.client()
    client.ask("ReadEvents", after="now", wait_ms=5_000)
    follows(node)
    assert client.is_silent()
    node.history.say(node.name, log.start("w"))
    ok = client.answer()["ok"]
    assert [(it["kind"], it["workflow_id"]) for it in ok["events"]] == [("WorkflowStarted", "w")]
    assert client.call("ReadEvents", after=ok["next"])["ok"]["events"] == []


def test_who_waits_for_one_kind_is_not_woken_by_others(node, log):
    client = node.client()
    client.ask("ReadEvents", after="now", kinds=["WorkflowCompleted"], wait_ms=5_000)
    follows(node)
    node.history.say(node.name, log.start("w"))
    assert client.is_silent()
    node.history.say(node.name, log.complete("w"))
    assert [it["kind"] for it in client.answer()["ok"]["events"]] == ["WorkflowCompleted"]


def test_what_was_committed_before_history_knew_of_the_follower_is_not_missed(node, log):
    client = node.client()
    client.ask("ReadEvents", after="now", wait_ms=5_000)
    assert node.history.hear(Hello).follow
    log.start("w")
    node.history.say(node.name, Welcome(node.history.identity, 1, log.ledger.n, 1_700_000_000_000))
    assert len(client.answer()["ok"]["events"]) == 1


def test_a_feed_that_got_lost_is_read_from_the_log(node, log):
    client = node.client()
    client.ask("ReadEvents", after="now", wait_ms=5_000)
    follows(node)
    other = node.client()
    other.ask("TerminateWorkflow", workflow_id="nobody")
    reply(node, node.history.hear(Ask).n, Refusal("NOT_FOUND", "there is none"))
    assert "error" in other.answer()  # Thus it has read the log as of the welcome.
    lost = log.start("lost")
    node.history.say(node.name, log.start("w"))
    ok = client.answer()["ok"]
    assert [it["workflow_id"] for it in ok["events"]] == ["lost", "w"]
    client.ask("ReadEvents", after=ok["next"], wait_ms=5_000)
    assert client.is_silent()
    lost = log.start("x")
    node.history.say(node.name, Newest(lost.n, lost.n))
    assert [it["workflow_id"] for it in client.answer()["ok"]["events"]] == ["x"]


def test_a_wait_in_which_nothing_happened_is_answered_with_where_to_go_on(node, log):
    log.start("w")
    client = node.client()
    ok = client.call("ReadEvents", after="now", wait_ms=30)["ok"]
    assert ok == {"events": [], "next": str(log.ledger.n)}


def test_a_history_that_is_replaced_leaves_those_who_wait_waiting(node, log):
    client = node.client()
    client.ask("ReadEvents", after="now", wait_ms=5_000)
    follows(node)
    node.put("history")
    node.tell_peers()
    follows(node)
    node.history.say(node.name, log.start("w"))
    assert [it["workflow_id"] for it in client.answer()["ok"]["events"]] == ["w"]


def test_when_nobody_has_waited_for_long_the_feed_is_no_longer_followed(node, log, monkeypatch):
    monkeypatch.setattr(gateway_events, "KEEP_FOLLOWING_MS", 20)
    client = node.client()
    client.ask("ReadEvents", after="now", wait_ms=20)
    follows(node)
    assert client.answer()["ok"]["events"] == []
    assert not node.history.hear(Hello).follow
