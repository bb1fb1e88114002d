"""What a verification says of workflows that do not simply end, and of those that prove nothing."""

from __future__ import annotations

import pytest

from perdure import verify
from perdure.errors import InvalidArgument
from tests.verify.conftest import kinds

ONCE = "@activity.define(retry=RetryPolicy(max_attempts=1))"


def test_an_activity_that_fails_by_itself_is_retried_and_passes(one_activity):
    body = """
    if activity.attempt() < 3:
        raise OSError('not yet')
    verify.effect('mail', activity.idempotency_key())
    """
    result = one_activity(body)
    assert (result.verdict, result.status, result.dead_letters) == ("proved", "Completed", {})


def test_a_workflow_that_fails_is_compared_as_well(verified):
    source = """
    @activity.define
    def act():
        verify.effect('mail', uuid.uuid4())
        raise activity.NonRetryable('Refused')
    @workflow.define
    async def flow():
        await workflow.execute_activity(act)
    """
    result = verified(source)
    assert (result.status, kinds(result)) == ("Failed", {("doubled", "act", "mail")})


def test_a_dead_letter_by_a_crash_is_redriven_and_counted(one_activity):
    result = one_activity("verify.effect('mail', activity.idempotency_key())", define=ONCE)
    assert result.verdict == "proved"
    assert result.dead_letters == {"act": 4}  # A worker's death at any point of the attempt.


def test_an_effect_that_a_redrive_doubles_is_found(one_activity):
    body = "verify.effect('mail', activity.info().generation)"
    [finding] = one_activity(body, define=ONCE).findings
    assert finding.schedule[3] == "4. act is a dead letter; an operator redrives it"
    assert one_activity(body, define=ONCE, redrive=False).verdict == "proved"


def test_without_redrive_a_dead_letter_waits_and_nothing_is_lost(one_activity):
    body = "verify.effect('mail', activity.idempotency_key())"
    result = one_activity(body, define=ONCE, redrive=False)
    assert (result.verdict, result.dead_letters) == ("proved", {"act": 4})


def test_an_activity_that_no_second_attempt_can_do_is_lost(one_activity):
    body = """
    if activity.attempt() > 1 or activity.fence() > 1:
        raise ValueError('never again')
    verify.effect('mail', 1)
    """
    result = one_activity(body, define=ONCE)
    assert kinds(result) == {("lost", "act", "mail"), ("stuck", "act", "")}
    finding = next(one for one in result.findings if one.kind == "lost")
    assert "act is a dead letter after attempt 1 (ValueError: never again)" in finding.says
    assert finding.hint == "an attempt that follows a crash has to be able to succeed"
    # Nobody is played who would redrive it: then nothing is said of its effect.
    assert one_activity(body, define=ONCE, redrive=False).verdict == "proved"


def test_effects_that_hang_on_what_is_done_first_are_found_and_told(verified):
    source = """
    @activity.define
    def act(): verify.effect('mail', activity.idempotency_key())
    @workflow.define
    async def flow():
        both = [workflow.start_activity(act), workflow.start_activity(act)]
        done, rest = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for handle in rest:
            handle.cancel()
    """
    [finding] = verified(source).findings
    assert (finding.kind, finding.activity_id) == ("lost", "@2")
    assert "did not wait for it" in finding.hint


def test_a_workflow_that_ends_otherwise_after_a_crash_is_found(verified):
    source = """
    @activity.define(retry=RetryPolicy(non_retryable=('WorkerDied',)))
    def act():
        verify.effect('mail', 1)
    @activity.define
    def undo():
        verify.effect('apology', 1)
    @workflow.define
    async def flow():
        try:
            await workflow.execute_activity(act)
        except workflow.ActivityFailed:
            await workflow.execute_activity(undo)
            raise
    """
    result = verified(source)
    assert kinds(result) == {("lost", "act", "mail"), ("doubled", "undo", "apology")}
    assert "is not without a crash" in next(f.says for f in result.findings if f.kind == "doubled")


def test_an_ending_that_differs_is_found_where_no_effect_does(verified):
    source = """
    @activity.define
    def act():
        verify.effect('mail', 1)
    @activity.define(retry=RetryPolicy(non_retryable=('WorkerDied',)))
    def nothing():
        pass
    @workflow.define
    async def flow():
        await workflow.execute_activity(act)
        await workflow.execute_activity(nothing)
    """
    [finding] = verified(source).findings
    assert (finding.kind, finding.activity_type) == ("ending", "")
    assert finding.says.startswith("the workflow: it would end Failed (ActivityFailed: ")
    assert finding.says.endswith(", not Completed")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            "@workflow.define\nasync def flow():\n    await workflow.execute_activity('absent')",
            "the application has no activity 'absent'",
        ),
        (
            "@activity.define(retry=RetryPolicy(max_attempts=2))\ndef act():\n"
            "    raise OSError('x')\n"
            "@workflow.define\nasync def flow():\n    await workflow.execute_activity(act)",
            "act (@1) is a dead letter after attempt 2 (OSError: x)",
        ),
        (
            "@activity.define\ndef act():\n    return activity.CompleteLater\n"
            "@workflow.define\nasync def flow():\n    await workflow.execute_activity(act)",
            "act (@1) was left open",
        ),
        (
            "@workflow.define\nasync def flow():\n    while True:\n        await asyncio.sleep(1)",
            "does it loop for ever?",
        ),
        (
            "import os\n@activity.define\ndef act():\n    os._exit(3)\n"
            "@workflow.define\nasync def flow():\n    await workflow.execute_activity(act)",
            "ended with exit code 3",
        ),
        (
            "@activity.define\ndef act():\n    threading.Event().wait()\n"
            "@workflow.define\nasync def flow():\n    await workflow.execute_activity(act)",
            "not done within 300 ms",
        ),
        (
            "@workflow.define\nasync def flow():\n    await asyncio.Future()",
            "it waits for something that does not come",
        ),
        ("@workflow.define\nasync def flow():\n    return 1", "no effect was seen"),
    ],
)
def test_where_nothing_can_be_found_out_it_says_why(verified, source, why):
    is_stuck = "wait()" in source
    result = verified(source, timeout_ms=300 if is_stuck else 10_000)
    assert result.verdict == "inconclusive"
    assert why in result.why


def test_an_input_that_does_not_fit_is_bad_input(verified):
    source = "@workflow.define\nasync def flow(count: int):\n    return count"
    assert verified(source, 1).bad_input is False
    result = verified(source, "many")
    assert result.bad_input
    assert "count" in result.why


def test_a_run_that_kills_or_holds_its_process_after_a_crash_is_found(one_activity):
    for act in ("os._exit(7)", "threading.Event().wait()"):
        body = f"if activity.attempt() > 1:\n    {act}\nverify.effect('mail', 1)"
        result = one_activity(body, head="import os", timeout_ms=400)
        assert kinds(result) >= {("lost", "act", "mail")}
        assert "stands still" in result.findings[0].says


def test_too_many_schedules_prove_nothing_and_no_finding_is_kept_back(one_activity):
    result = one_activity("verify.effect('mail', 1)", schedules=5)
    assert (result.verdict, result.schedules) == ("inconclusive", 5)
    result = one_activity("verify.effect('mail')", schedules=20)
    assert (result.verdict, result.schedules) == ("violated", 20)


def test_pairs_find_what_one_crash_does_not(one_activity):
    """A key that only the third attempt changes."""
    body = "verify.effect('mail', max(activity.attempt(), 2))"
    result = one_activity(body, depth=2)
    [finding] = result.findings
    assert (finding.kind, finding.crashes) == ("doubled", 2)
    assert sum(" dies " in line for line in finding.schedule) == 2
    # What begins from the same is run once.
    assert 10 * result.crash_points < result.schedules > 3 * result.runs


def test_a_block_that_raises_is_no_effect(one_activity):
    body = """
    try:
        with verify.effect('mail', uuid.uuid4()):
            raise OSError
    except OSError:
        pass
    verify.effect('sms', 1)
    """
    result = one_activity(body)
    assert [one.name for one in result.effects] == ["sms"]
    assert result.verdict == "proved"


def test_another_effect_inside_a_block_comes_before_it(one_activity):
    body = "with verify.effect('outer', 1):\n    verify.effect('inner', 1)"
    result = one_activity(body)
    assert [one.name for one in result.effects] == ["inner", "outer"]
    assert result.verdict == "proved"


def test_outside_a_verification_nothing_happens():
    assert verify.effect("mail", "k") is verify.effect("mail")
    with verify.effect("mail"):
        pass


def test_a_workflow_is_named_where_there_are_several(verified):
    source = """
    @workflow.define
    async def first(): verify.effect('mail', 1)
    @workflow.define
    async def second(): verify.effect('sms', 1)
    """
    with pytest.raises(InvalidArgument, match="there are: first, second"):
        verified(source)
    with pytest.raises(InvalidArgument, match="did you mean second"):
        verified(source, name="secund")
    with pytest.raises(InvalidArgument, match="has no workflow"):
        verified("x = 1")
    assert [one.name for one in verified(source, name="second").effects] == ["sms"]
