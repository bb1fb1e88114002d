"""Leases and sessions: the dead lose theirs at once, the living keep what they hold."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.ids import Address, Session, seal
from perdure.core.lease_keeping import LeaseKeeping
from perdure.core.links import CancelTask, Sessions, Sync

NODE = "node.1"
LOCAL = Session(NODE, 1)
GATEWAY = "gateway.1"
REMOTE = Session(GATEWAY, 1)


class Keeper:
    """The lease keeper's mind before a history that answers at once, unless told otherwise."""

    def __init__(self, history) -> None:
        self.history = history
        self.proposed: list[c.AnyCommand] = []
        self.told: list[tuple[Session, CancelTask]] = []
        self.mind = LeaseKeeping(
            history.key,
            NODE,
            lambda command, tag: self.proposed.append(command),
            lambda session, message: self.told.append((session, message)),
            lambda asker, commit, answer: None,
        )
        history.listeners.append(
            lambda n, at_ms, workflow_id, records: self.mind.apply(at_ms, workflow_id, records)
        )
        self.mind.load(history.open_state(), history.now_ms)

    def sets(self, source: str, highest: int, *live: int) -> None:
        self.mind.sessions(Sessions(source, highest, live))

    def sync(self, session: Session, *held: Address, n: int | None = None) -> None:
        tokens = tuple(seal(address, self.history.key) for address in held)
        n = self.history.n if n is None else n
        message = Sync("w1", (), (), (), 1, 1, tokens, (), n)
        self.mind.sync(session, message, self.history.now_ms)
        self.step()

    def step(self) -> None:
        self.mind.step(self.history.n, self.history.now_ms)

    def carry_out(self) -> None:
        while self.proposed:
            self.history.ask(self.proposed.pop(0))


@pytest.fixture
def keeper(history):
    return Keeper(history)


def lease(history, session: Session | None = LOCAL, name: str = "w") -> Address:
    history.schedule(name, start_to_close_ms=600_000)
    return history.grant(name, session=session)


def test_the_leases_of_a_session_end_when_its_source_no_longer_names_it(history, keeper):
    address = lease(history)
    keeper.sets(NODE, 1, 1)
    assert keeper.proposed == []
    keeper.sets(NODE, 2, 2)
    assert keeper.proposed == [c.EndLease(address, "worker_died")]


def test_a_set_that_does_not_reach_the_session_says_nothing(history, keeper):
    lease(history, Session(NODE, 5))
    keeper.sets(NODE, 4, 4)
    assert keeper.proposed == []


def test_a_grant_that_comes_after_the_death_ends_too(history, keeper):
    keeper.sets(NODE, 1)
    address = lease(history)
    assert keeper.proposed == [c.EndLease(address, "worker_died")]


def test_what_was_granted_after_the_death_was_seen_reached_nobody_and_is_not_charged(
    history, keeper
):
    before = lease(history)
    history.now_ms += 10
    after = lease(history, name="later")
    keeper.mind.sessions(Sessions(NODE, 1, (), ((1, history.now_ms),)))
    assert keeper.proposed == [
        c.EndLease(before, "worker_died"),
        c.EndLease(after, "undelivered"),
    ]
    keeper.carry_out()
    assert history.executions["later"].activities["a"].attempt == 1


def test_an_end_carries_the_details_that_were_not_committed(history, keeper):
    address = lease(history)
    keeper.mind.table.heartbeat("x", seal(address, history.key), 3, b"m3", True, 1_000)
    keeper.proposed.clear()
    keeper.sets(NODE, 1)
    assert keeper.proposed == [c.EndLease(address, "worker_died", b"m3", 3)]


def test_local_sessions_of_an_earlier_node_start_end_at_once_and_uncharged(history):
    address = lease(history, Session("node.0", 1))
    keeper = Keeper(history)
    assert keeper.proposed == [c.EndLease(address, "node_restart")]
    keeper.carry_out()
    assert history.executions["w"].activities["a"].attempt == 1


def test_a_refused_end_is_proposed_again_while_the_lease_lives(history, keeper):
    address = lease(history)
    keeper.sets(NODE, 1)
    [command] = keeper.proposed
    keeper.mind.answered(command, None, c.Refusal("UNAVAILABLE", ""), 0, 1_000)
    history.now_ms = 2_000
    keeper.step()
    assert keeper.proposed == [command, command]
    assert command.address == address


def test_a_lease_polled_by_hand_is_no_concern_of_sets_and_syncs(history, keeper):
    lease(history, None)
    keeper.sets(NODE, 9)
    for now_ms in range(2_000, 9_000, 1_000):
        history.now_ms = now_ms
        keeper.sync(LOCAL)
    assert keeper.proposed == []
    assert keeper.told == []


# --- gateways ---------------------------------------------------------------------
def test_sessions_of_an_earlier_gateway_have_ten_seconds(history, keeper):
    keeper.mind.gateway(GATEWAY, 1_000)
    address = lease(history, REMOTE)
    keeper.mind.gateway("gateway.2", 5_000)
    assert keeper.mind.next_ms() == 15_000
    history.now_ms = 14_999
    keeper.step()
    assert keeper.proposed == []
    history.now_ms = 15_000
    keeper.step()
    assert keeper.proposed == [c.EndLease(address, "worker_died")]


def test_a_worker_that_came_back_keeps_what_it_holds(history, keeper):
    keeper.mind.gateway(GATEWAY, 1_000)
    address = lease(history, REMOTE)
    keeper.mind.gateway("gateway.2", 5_000)
    back = Session("gateway.2", 1)
    keeper.sets("gateway.2", 1, 1)
    keeper.sync(back, address)
    history.now_ms = 15_000
    keeper.step()
    assert keeper.proposed == []
    keeper.sets("gateway.2", 1)
    assert keeper.proposed == [c.EndLease(address, "worker_died")]


def test_local_sessions_outlive_a_gateway(history, keeper):
    keeper.mind.gateway(GATEWAY, 1_000)
    lease(history)
    keeper.mind.gateway("gateway.2", 5_000)
    history.now_ms = 16_000
    keeper.step()
    assert keeper.proposed == []


def test_a_grant_to_an_earlier_gateways_session_ends_once_those_are_judged(history, keeper):
    keeper.mind.gateway(GATEWAY, 500)
    keeper.mind.gateway("gateway.2", 1_000)
    history.now_ms = 11_000
    keeper.step()
    address = lease(history, REMOTE)
    assert keeper.proposed == [c.EndLease(address, "worker_died")]


def test_the_gateway_that_the_root_names_may_give_before_it_has_spoken_to_us(history, keeper):
    keeper.mind.gateway(GATEWAY, 1_000)
    history.now_ms = 11_000
    keeper.step()
    keeper.mind.coming("gateway.2", 12_000)
    history.now_ms = 12_000
    address = lease(history, Session("gateway.2", 1))
    history.now_ms = 60_000
    keeper.step()
    assert keeper.proposed == []
    keeper.mind.coming("gateway.3", 60_000)  # It has never spoken to us, and is gone.
    assert keeper.mind.next_ms() == 70_000
    history.now_ms = 70_000
    keeper.step()
    assert keeper.proposed == [c.EndLease(address, "worker_died")]


def test_a_gateway_that_nobody_has_named_has_its_time_to_be_named(history, keeper):
    keeper.mind.gateway(GATEWAY, 1_000)
    history.now_ms = 11_000
    keeper.step()
    new, never = Session("gateway.2", 1), Session("gateway.0", 1)
    lease(history, new, "a")
    address = lease(history, never, "b")
    assert keeper.proposed == []
    keeper.mind.gateway("gateway.2", 15_000)
    history.now_ms = 25_000
    keeper.step()
    assert keeper.proposed == [c.EndLease(address, "worker_died")]


# --- syncs ------------------------------------------------------------------------
def test_a_held_token_that_is_not_live_is_cancelled(history, keeper):
    address = lease(history)
    history.ask(c.EndLease(address, "undelivered"))
    keeper.sync(LOCAL, address)
    token = seal(address, history.key)
    assert keeper.told == [(LOCAL, CancelTask(token, "stale"))]


def test_a_sync_from_ahead_is_judged_only_when_we_are_there(history, keeper):
    lease(history)
    unknown = Address("v", "a", 1, 1)
    keeper.sync(LOCAL, unknown, n=history.n + 3)
    assert keeper.told == []
    history.schedule("v")
    history.grant("v", session=LOCAL)
    keeper.step()
    assert keeper.told == []


def test_what_three_syncs_in_a_row_lack_was_not_delivered(history, keeper):
    address = lease(history)
    for now_ms in (1_999, 2_900, 3_900):
        history.now_ms = now_ms
        keeper.sync(LOCAL)
    assert keeper.proposed == [], "the first came too soon after the grant to count"
    history.now_ms = 4_900
    keeper.sync(LOCAL)
    assert keeper.proposed == [c.EndLease(address, "undelivered")]


def test_syncs_that_come_at_once_count_once(history, keeper):
    lease(history)
    history.now_ms = 3_000
    for _ in range(5):
        keeper.sync(LOCAL)
    assert keeper.proposed == []


def test_a_sync_that_holds_it_begins_the_count_anew(history, keeper):
    address = lease(history)
    for now_ms, held in ((2_000, 0), (3_000, 0), (4_000, 1), (5_000, 0), (6_000, 0)):
        history.now_ms = now_ms
        keeper.sync(LOCAL, *[address][:held])
    assert keeper.proposed == []


# --- cancellation -----------------------------------------------------------------
@pytest.mark.parametrize("step", [c.CancelActivity("a"), c.CompleteWorkflow(None)])
def test_a_cancelled_lease_is_told_to_its_worker_at_once(history, keeper, step):
    address = lease(history)
    history.step("w", step)
    assert keeper.told == [(LOCAL, CancelTask(seal(address, history.key), "cancelled"))]


def test_an_expired_lease_is_told_to_its_worker(history, keeper):
    address = lease(history)
    history.now_ms = 700_000
    keeper.step()
    history.now_ms = 700_020
    keeper.step()
    keeper.carry_out()
    assert keeper.told == [(LOCAL, CancelTask(seal(address, history.key), "stale"))]


def test_a_report_needs_no_telling(history, keeper):
    address = lease(history)
    history.ask(c.CompleteActivity(seal(address, history.key), None))
    assert keeper.told == []
