"""A client's open requests and its retries, without a socket or a clock."""

from __future__ import annotations

from perdure import wire
from perdure.errors import NotFound, Unavailable
from perdure.outstanding import (
    RESEND_FIRST_S,
    RESEND_MAX_S,
    RETRY_FIRST_S,
    RETRY_MAX_S,
    Exchange,
    Outstanding,
    Round,
)
from perdure.wire import AnswerBody, ErrorBody


class Waiter:
    def __init__(self, remaining: int) -> None:
        self.remaining = remaining


def ok(number: int) -> AnswerBody:
    return AnswerBody(id=number, ok=b"\xc0")


def failed(number: int, code: str) -> AnswerBody:
    return AnswerBody(id=number, error=ErrorBody(code=code, message=code))


def open_one(open_: Outstanding, number: int = 1) -> Waiter:
    waiter = Waiter(1)
    open_.add({number: Exchange(b"body", waiter)})
    return waiter


def sent(open_: Outstanding, now: float) -> list[bytes]:
    bodies: list[bytes] = []
    open_.flush(lambda body: bodies.append(body) is None, now)
    return bodies


def test_an_unanswered_request_is_sent_again_after_doubling_waits():
    open_: Outstanding = Outstanding()
    open_one(open_)
    at, times = 0.0, []
    for _ in range(8):
        assert sent(open_, at) == [b"body"]
        step = RESEND_FIRST_S / 4
        while not (open_.look(at + step), sent(open_, at + step))[1]:
            step += RESEND_FIRST_S / 4
        times.append(step)
        at += step
        open_.send_all_again()
    assert times[:3] == [RESEND_FIRST_S, 4 * RESEND_FIRST_S, 16 * RESEND_FIRST_S]
    assert max(times) == RESEND_MAX_S


def test_what_the_socket_does_not_take_stays():
    open_: Outstanding = Outstanding()
    open_one(open_)
    assert open_.flush(lambda body: False, 0.0)
    assert sent(open_, 0.0) == [b"body"]


def test_a_second_answer_and_a_foreign_one_are_nobodys():
    open_: Outstanding = Outstanding()
    waiter = open_one(open_)
    assert open_.deliver(ok(9)) is None
    assert open_.deliver(ok(1)) is waiter
    assert waiter.remaining == 0
    assert open_.deliver(ok(1)) is None


def test_a_new_connection_has_everything_sent_again_once():
    open_: Outstanding = Outstanding()
    open_one(open_, 1)
    open_one(open_, 2)
    sent(open_, 0.0)
    open_.send_all_again()
    assert len(sent(open_, 0.0)) == 2
    assert sent(open_, 0.0) == []


def start(workflow_id: str) -> wire.StartWorkflow:
    return wire.StartWorkflow(workflow_id=workflow_id, type="T", request_id="r")


def test_only_calls_of_unknown_outcome_are_asked_again_and_with_the_same_request_id():
    round_ = Round([start("a"), start("b"), start("c")], lambda: 1.0)
    numbers = iter(range(1, 100))
    first = round_.requests(numbers.__next__)
    answers = [ok(1), failed(2, "UNAVAILABLE"), failed(3, "NOT_FOUND")]
    assert round_.take(answers, Unavailable, lambda raw: raw) == RETRY_FIRST_S
    [(number, body)] = round_.requests(numbers.__next__)
    assert number == 4
    again, before = (wire.form_of(raw).read(raw).args for raw in (body, first[1][1]))
    assert again == before
    assert round_.take([ok(4)], Unavailable, lambda raw: "fine") is None
    assert round_.outcomes[1] == "fine"
    assert isinstance(round_.outcomes[2], NotFound)


def test_pauses_double_to_their_limit_and_are_drawn_from_the_upper_half():
    for drawn, share in ((0.0, 0.5), (1.0, 1.0)):
        round_ = Round([start("a")], lambda drawn=drawn: drawn)
        pauses = []
        for number in range(1, 12):
            round_.requests(lambda number=number: number)
            pauses.append(round_.take([failed(number, "UNAVAILABLE")], Unavailable, bytes))
        assert pauses[:2] == [RETRY_FIRST_S * share, 2 * RETRY_FIRST_S * share]
        assert pauses[-1] == RETRY_MAX_S * share


def test_silence_does_not_hide_what_was_answered_before():
    round_ = Round([start("a")], lambda: 1.0)
    round_.requests(lambda: 1)
    round_.take([failed(1, "RESOURCE_EXHAUSTED")], Unavailable, bytes)
    round_.requests(lambda: 2)
    round_.take([None], lambda: Unavailable("nothing came"), bytes)
    assert round_.outcomes[0].code == "RESOURCE_EXHAUSTED"
