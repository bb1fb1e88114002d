from __future__ import annotations

from perdure import failure_text

STACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.11/site-packages/perdure/worker/replay.py", line 182, in _main
    self._ending = endings.Ending(result=await function(*args, **kwargs))
  File "/srv/shop/flow.py", line 29, in checkout
    inner()
  File "/srv/shop/flow.py", line 27, in inner
    raise KeyError("no such price")
  File "/usr/lib/python3.11/json/decoder.py", line 5, in raw
KeyError: 'no such price'
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/srv/shop/flow.py", line 9, in checkout
  +-+---------------- 1 ----------------
    |   File "/srv/shop/flow.py", line 3, in one
"""


def test_the_calls_of_a_stack_are_those_of_the_users_own_code():
    assert [str(one) for one in failure_text.frames(STACK)] == [
        "/srv/shop/flow.py:29 in checkout",
        "/srv/shop/flow.py:27 in inner",
    ]
    assert failure_text.where(STACK) == ", at /srv/shop/flow.py:27 in inner"


def test_a_stack_of_which_nothing_is_the_users_is_shown_as_it_is_and_none_is_nothing():
    engine_only = "\n".join(STACK.splitlines()[:3])
    assert [one.line for one in failure_text.frames(engine_only)] == [182]
    assert failure_text.frames(None) == failure_text.frames("no stack at all") == []
    assert failure_text.where(None) == ""


def test_the_members_of_a_group_are_calls_as_well():
    assert [one.line for one in failure_text.frames(GROUP)] == [9, 3]


def test_causes_follow_each_other_and_end():
    first = {"type": "A", "cause": {"type": "B", "cause": None}}
    assert [one["type"] for one in failure_text.causes(first)] == ["A", "B"]
    assert list(failure_text.causes(None)) == []
    first["cause"]["cause"] = first
    assert len(list(failure_text.causes(first))) == failure_text.CAUSES_MAX
