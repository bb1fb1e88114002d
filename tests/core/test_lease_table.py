"""The lease table: deadlines that heartbeats move, and expiries that wait for what was sent."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.ids import Address, seal
from perdure.core.lease_table import LeaseTable
from perdure.policy import RetryPolicy

LINGER = 20


class Keeper:
    """A table before a history that answers when told to."""

    def __init__(self, history, linger_ms: int = LINGER) -> None:
        self.history = history
        self.proposed: list[tuple[c.AnyCommand, object]] = []
        self.replies: list[tuple[object, c.AnyAnswer]] = []
        self.table = LeaseTable(
            history.key,
            lambda command, tag: self.proposed.append((command, tag)),
            lambda asker, commit, answer: self.replies.append((asker, answer)),
            linger_ms=linger_ms,
        )
        history.listeners.append(self.hear)

    def hear(self, n, at_ms, workflow_id, records) -> None:
        for record in records:
            self.table.apply(workflow_id, at_ms, record)

    def commands(self) -> list[c.AnyCommand]:
        return [command for command, _ in self.proposed]

    def answer_all(self) -> None:
        while self.proposed:
            command, tag = self.proposed.pop(0)
            answer = self.history.ask(command)
            self.table.answered(command, tag, answer, self.history.n, self.history.now_ms)

    def at(self, now_ms: int) -> list[c.AnyCommand]:
        """A full drain at this time; what is newly proposed."""
        self.history.now_ms = now_ms
        before = len(self.proposed)
        self.table.check(now_ms)
        return self.commands()[before:]

    def beat(self, address: Address, beat: int, details=None, asker: object = "asker") -> None:
        token = seal(address, self.history.key)
        self.table.heartbeat(asker, token, beat, details, details is not None, self.history.now_ms)


@pytest.fixture
def keeper(history):
    return Keeper(history)


@pytest.fixture
def address(history, keeper):
    history.schedule(heartbeat_ms=1_000, start_to_close_ms=60_000)
    return history.grant()


# --- expiry -----------------------------------------------------------------------
def test_a_lease_expires_a_full_drain_after_its_deadline_was_seen_to_have_passed(keeper, address):
    assert keeper.table.next_due_ms() == 2_000
    assert keeper.at(1_999) == []
    assert keeper.at(2_000) == []
    assert keeper.table.next_due_ms() == 2_000 + LINGER
    assert keeper.at(2_000 + LINGER) == [c.ExpireLease(address)]


def test_a_heartbeat_in_that_drain_saves_the_lease(keeper, address):
    keeper.at(2_000)
    keeper.history.now_ms = 2_010
    keeper.beat(address, 1)
    keeper.proposed.clear()
    assert keeper.at(2_020) == []
    assert keeper.table.next_due_ms() == 3_010


def test_without_lingering_it_expires_at_its_deadline(history):
    keeper = Keeper(history, linger_ms=0)
    history.schedule(start_to_close_ms=500)
    address = history.grant()
    assert keeper.at(1_499) == []
    assert keeper.at(1_500) == [c.ExpireLease(address)]


def test_a_proposal_is_made_once_and_again_after_a_refusal(keeper, address):
    keeper.at(2_000)
    [command] = keeper.at(2_020)
    assert keeper.at(5_000) == []
    keeper.table.answered(command, None, c.Refusal("UNAVAILABLE", ""), 0, 5_000)
    assert keeper.at(5_999) == []
    keeper.at(6_000)
    assert keeper.at(6_020) == [command]


def test_a_lease_that_ended_otherwise_never_expires(keeper, address, history):
    history.ask(c.CompleteActivity(seal(address, history.key), None))
    assert keeper.table.next_due_ms() is None
    assert len(keeper.table) == 0


def test_the_end_of_the_workflow_ends_its_leases(keeper, address, history):
    history.step("w", c.CompleteWorkflow(None))
    assert len(keeper.table) == 0
    assert keeper.table.next_due_ms() is None


def test_the_next_grant_has_its_own_deadline(keeper, address, history):
    history.schedule("v", start_to_close_ms=60_000, retry=RetryPolicy(initial_ms=1))
    history.fail(history.grant("v"))
    history.now_ms = 1_500
    again = history.grant("v")
    assert keeper.table.find(again).deadline_ms == 61_500


@pytest.mark.parametrize("length_ms", [3_000, 60_000])
def test_nothing_expires_soon_after_a_disturbance(history, length_ms):
    keeper = Keeper(history, linger_ms=0)
    history.schedule(start_to_close_ms=length_ms)
    history.grant()
    disturbed_ms = 1_000 + length_ms - 1
    keeper.table.disturbed(disturbed_ms)
    floor_ms = disturbed_ms + min(length_ms, 10_000)
    assert keeper.at(floor_ms - 1) == []
    assert len(keeper.at(floor_ms)) == 1


def test_after_a_restart_leases_get_their_time_anew(history):
    history.schedule("a", start_to_close_ms=60_000)
    history.schedule("b", heartbeat_ms=2_000)
    history.grant("a")
    history.grant("b")
    keeper = Keeper(history, linger_ms=0)
    keeper.table.load(history.open_state(), 100_000)
    assert keeper.at(101_999) == []
    assert [command.address.workflow_id for command in keeper.at(102_000)] == ["b"]
    assert keeper.at(109_999) == []
    assert [command.address.workflow_id for command in keeper.at(110_000)] == ["a"]


def test_nothing_expires_while_history_is_gone(keeper, address):
    keeper.table.pause()
    assert keeper.table.next_due_ms() is None
    assert keeper.at(50_000) == []
    keeper.table.resume(50_000)
    assert keeper.at(50_999) == []
    keeper.at(51_000)
    assert keeper.at(51_020) == [c.ExpireLease(address)]


# --- heartbeats -------------------------------------------------------------------
def test_a_heartbeat_moves_the_deadline_at_once_and_is_answered_when_committed(keeper, address):
    keeper.history.now_ms = 1_800
    keeper.beat(address, 1, b"m1")
    assert keeper.table.find(address).deadline_ms == 2_800
    assert keeper.replies == []
    keeper.answer_all()
    assert keeper.replies == [("asker", c.Deadline(2_800))]


def test_a_deadline_never_moves_past_the_end_of_the_attempt(history, keeper):
    history.schedule("v", heartbeat_ms=1_000, start_to_close_ms=1_500)
    address = history.grant("v")
    history.now_ms = 1_900
    keeper.beat(address, 1)
    assert keeper.table.find(address).deadline_ms == 2_500


def test_a_repeated_beat_moves_nothing_and_is_answered(keeper, address):
    keeper.beat(address, 3)
    keeper.answer_all()
    keeper.history.now_ms = 1_900
    keeper.beat(address, 3)
    keeper.beat(address, 2)
    keeper.answer_all()
    assert keeper.table.find(address).deadline_ms == 2_000
    assert len(keeper.replies) == 3


def test_one_heartbeat_is_on_its_way_at_a_time_and_the_newest_is_next(keeper, address):
    for beat in range(1, 6):
        keeper.beat(address, beat, b"m%d" % beat, asker=beat)
    assert [command.beat for command in keeper.commands()] == [1]
    keeper.answer_all()
    assert keeper.history.executions["w"].activities["a"].details == b"m5"
    assert [asker for asker, _ in keeper.replies] == [1, 2, 3, 4, 5]
    assert keeper.history.n == 5, "two of the five were committed"


def test_a_beat_without_details_does_not_drop_those_that_wait(keeper, address):
    keeper.beat(address, 1, b"m1")
    keeper.beat(address, 2, b"m2")
    keeper.beat(address, 3)
    keeper.answer_all()
    held = keeper.history.executions["w"].activities["a"]
    assert (held.beat, held.details) == (3, b"m2")


def test_a_token_that_is_not_known_here_is_passed_on(keeper):
    unknown = Address("x", "y", 1, 1)
    keeper.beat(unknown, 1, b"m1")
    [(command, tag)] = keeper.proposed
    assert isinstance(command, c.RecordHeartbeat)
    refusal = c.Refusal("FAILED_PRECONDITION", "stale")
    keeper.table.answered(command, tag, refusal, 7, 1_000)
    assert keeper.replies == [("asker", refusal)]


def test_those_who_wait_are_answered_though_the_lease_ends(keeper, address, history):
    keeper.beat(address, 1, asker="first")
    keeper.beat(address, 2, asker="second")
    history.step("w", c.CancelActivity("a"))
    keeper.answer_all()
    assert [asker for asker, _ in keeper.replies] == ["first", "second"]


def test_an_expiry_carries_the_details_that_were_not_committed(keeper, address, history):
    keeper.beat(address, 1, b"m1")
    keeper.answer_all()
    keeper.beat(address, 2, b"m2")
    keeper.at(2_000)
    [command] = keeper.at(2_020)
    assert command == c.ExpireLease(address, b"m2", 2)
    keeper.proposed.clear()
    history.ask(command)
    assert history.executions["w"].activities["a"].details == b"m2"


def test_what_was_said_since_a_beat_was_committed_stays_to_be_told(keeper, address, history):
    keeper.beat(address, 1, b"m1")
    keeper.beat(address, 2, b"m2")
    history.ask(keeper.commands()[0])
    keeper.at(2_000)
    assert keeper.at(2_020) == [c.ExpireLease(address, b"m2", 2)]


def test_an_expiry_carries_nothing_that_was_committed(keeper, address):
    keeper.beat(address, 1, b"m1")
    keeper.answer_all()
    keeper.at(2_000)
    assert keeper.at(2_020) == [c.ExpireLease(address)]


def test_begun_from_the_open_state_it_holds_what_it_would_have_followed(history, keeper, address):
    history.schedule("v", heartbeat_ms=2_000)
    history.grant("v")
    history.now_ms = 1_500
    history.ask(c.RecordHeartbeat(seal(address, history.key), 4, b"m4", True))
    loaded = Keeper(history)
    loaded.table.load(history.open_state(), 1_500)

    def picture(table):
        return sorted(
            (it.address.workflow_id, it.deadline_ms, it.beat, it.length_ms, it.heartbeat_ms)
            for it in table
        )

    assert picture(loaded.table) == picture(keeper.table)


# --- the path ---------------------------------------------------------------------
class Path:
    """A keeper whose probes go to `probes`, until the test sends them back."""

    def __init__(self, history) -> None:
        self.probes: list[int] = []
        self.keeper = Keeper(history)
        self.keeper.table = LeaseTable(
            history.key,
            lambda command, tag: self.keeper.proposed.append((command, tag)),
            lambda *_: None,
            linger_ms=LINGER,
            probe=self.probes.append,
        )
        history.schedule(heartbeat_ms=1_000, start_to_close_ms=60_000)
        self.address = history.grant()

    def at(self, now_ms: int) -> list[c.AnyCommand]:
        return self.keeper.at(now_ms)

    def echo(self, n: int, now_ms: int) -> None:
        self.keeper.table.echoed(n, now_ms)


@pytest.fixture
def path(history):
    return Path(history)


def test_nothing_expires_before_the_path_of_heartbeats_was_seen_open_after_its_deadline(path):
    path.at(2_000)
    assert path.probes == [1]
    assert path.at(2_000 + LINGER) == []
    path.echo(1, 2_500)
    assert path.keeper.table.next_due_ms() == 2_500
    assert path.at(2_500) == [c.ExpireLease(path.address)]


def test_an_echo_within_the_linger_shortens_nothing(path):
    path.at(2_000)
    path.echo(1, 2_001)
    assert path.at(2_000 + LINGER - 1) == []
    assert path.at(2_000 + LINGER) == [c.ExpireLease(path.address)]


def test_an_echo_of_before_says_nothing(path):
    path.echo(0, 1_999)
    path.at(2_000)
    path.echo(0, 2_010)
    assert path.at(2_000 + LINGER) == []


def test_a_heartbeat_that_was_held_up_saves_the_lease(path):
    path.at(2_000)
    path.at(2_000 + LINGER)
    path.keeper.history.now_ms = 2_600
    path.keeper.beat(path.address, 1)
    path.keeper.proposed.clear()
    path.echo(1, 2_600)
    assert path.at(2_600) == []
    assert path.at(3_599) == []


def test_a_probe_that_does_not_come_back_is_sent_again(path):
    path.at(2_000)
    path.at(2_000 + LINGER)
    assert path.keeper.table.next_due_ms() == 3_000
    path.at(2_999)
    assert path.probes == [1]
    path.at(3_000)
    assert path.probes == [1, 2]
    path.echo(2, 3_010)
    assert path.at(3_010) == [c.ExpireLease(path.address)]


def test_after_a_disturbance_the_path_is_looked_at_anew(path):
    path.at(2_000)
    path.at(2_000 + LINGER)
    path.keeper.table.disturbed(2_500)
    assert path.at(3_499) == []
    path.at(3_500)
    assert path.probes == [1, 2]


def test_nothing_expires_while_the_gateway_is_gone_however_long_and_the_next_one_gives_time(path):
    for now_ms in range(2_000, 62_000, 500):
        assert path.at(now_ms) == []  # Its probes reach nobody.
    path.keeper.table.disturbed(62_000)  # The next gateway's first word.
    assert path.at(62_999) == []
    path.at(63_000)
    path.echo(path.probes[-1], 63_001)
    assert path.at(63_000 + LINGER) == [c.ExpireLease(path.address)]
