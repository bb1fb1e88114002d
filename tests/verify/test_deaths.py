"""A simulated death is a real one: nothing of the process goes on, and nothing of it is left."""

from __future__ import annotations

import pytest

from tests.verify.conftest import kinds

KEYED = "verify.effect('mail', activity.idempotency_key())"
DOUBLED = {("doubled", "act", "mail")}
LOST = {("lost", "act", "mail")}


@pytest.mark.parametrize(
    "body",
    [
        "verify.effect('mail', 1)\ntry:\n    verify.effect('sms', 1)\nfinally:\n    pass",
        # Were the crash an exception, these would apply another effect after their death.
        """
        try:
            verify.effect('mail', 1)
        except BaseException:
            verify.effect('apology', 1)
        """,
        """
        try:
            with verify.effect('mail', 1):
                pass
            finished = True
        finally:
            if 'finished' not in locals():
                verify.effect('cleanup', 1)
        """,
    ],
)
def test_handlers_and_finally_of_a_dead_process_do_nothing(one_activity, body):
    assert one_activity(body).verdict == "proved"


def test_async_activities_die_with_all_their_tasks(one_activity):
    body = """
    async def part(n):
        await asyncio.sleep(0)
        async with verify.effect('part', f'{activity.idempotency_key()}/{n}'):
            await asyncio.sleep(0)
    async with asyncio.TaskGroup() as group:
        for n in range(3):
            group.create_task(part(n))
    """
    result = one_activity(body, is_async=True)
    assert (result.verdict, len(result.effects)) == ("proved", 3)
    assert result.crash_points == 12 + 4  # Each effect has two points.


def test_effects_of_threads_are_seen_and_belong_to_the_activity(one_activity):
    body = """
    def work():
        verify.effect('mail', uuid.uuid4())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    """
    assert kinds(one_activity(body)) == DOUBLED


def test_the_memory_of_a_process_dies_with_it(one_activity):
    """A note in a module would hide the second effect; the worker that made it is dead."""
    body = """
    if not sent:
        verify.effect('mail')
    sent.append(order)
    """
    assert kinds(one_activity(body, head="sent = []")) == DOUBLED


def test_what_is_outside_survives_it(one_activity):
    body = """
    if not sent:
        sent.append(order)
        verify.effect('mail')
    """
    assert kinds(one_activity(body, head="sent = verify.outside([])")) == LOST


@pytest.mark.parametrize("state", ["{}", "set()", "[]", "Provider()"])
def test_outside_may_be_any_state_and_begins_where_the_dead_process_left_it(one_activity, state):
    head = f"""
    class Provider:
        def __len__(self):
            return len(vars(self))
    def note(state, key):
        match state:
            case dict(): state[key] = 1
            case set(): state.add(key)
            case list(): state.append(key)
            case _: setattr(state, key, 1)
    state = verify.outside({state})
    """
    body = """
    note(state, f'before-{activity.attempt()}')
    verify.effect('mail', 'k')
    verify.effect('count', len(state))
    """
    # Two attempts leave two notes, so the count differs; forgotten, it would be 1 again.
    assert ("doubled", "act", "count") in kinds(one_activity(body, head=head))


def test_outside_is_refused_in_running_code(one_activity):
    result = one_activity("verify.outside([])", define="@activity.define(retry=RetryPolicy(1))")
    assert result.verdict == "inconclusive"
    assert "while the module is loaded" in result.why


def test_chance_and_time_are_others_after_a_crash(one_activity):
    keys = {
        "random": "random.random()",
        "own generator": "own.random()",
        "time": "int(time.time()) // 3600",
        "now": "datetime.datetime.now().strftime('%H')",
        "strftime": "time.strftime('%d')",
        "by name": "clock() // 3_600_000_000_000",
    }
    body = "\n".join(f"verify.effect({name!r}, {key})" for name, key in keys.items())
    head = (
        "import random, time, datetime\nfrom time import time_ns as clock\nown = random.Random(7)"
    )
    assert kinds(one_activity(body, head=head)) == {("doubled", "act", name) for name in keys}


def test_a_death_in_a_heartbeat_is_tried_and_its_details_are_what_was_committed(one_activity):
    body = """
    if activity.heartbeat_details() == 'sent':
        return
    activity.record_heartbeat('sent')
    verify.effect('mail', 1)
    """
    result = one_activity(body)
    assert kinds(result) == LOST
    assert "dies after a heartbeat of act" in result.findings[0].schedule[1]


def test_a_checkpoint_that_follows_its_effect_holds(one_activity):
    body = """
    done = activity.heartbeat_details() or 0
    for n in range(done, 3):
        verify.effect('part', n)
        activity.record_heartbeat(n + 1)
    """
    assert one_activity(body).verdict == "proved"
