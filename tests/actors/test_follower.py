"""A follower that was away until the log it needs was pruned does not go on as if nothing was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from actors.follower import Follower
from perdure.core.records import CommitBody, encode_body
from perdure.store.protocol import CommitRow, StoreError


def follower(first: int, reached: int) -> tuple[Follower, list[int]]:
    rows = [
        CommitRow(n, 1, 0, b"", b"", encode_body(CommitBody(n, 1, 0, ())))
        for n in range(first, first + 3)
    ]
    found: list[int] = []
    one = object.__new__(Follower)
    one.reached = reached
    one.reader = SimpleNamespace(commits=lambda after, limit: [r for r in rows if r.n > after])
    one.on_commit = lambda n, at_ms, groups: found.append(n)
    return one, found


def test_what_follows_the_newest_that_it_has_seen_is_applied():
    one, found = follower(first=5, reached=4)
    one._read_log()
    assert (found, one.reached) == ([5, 6, 7], 7)


def test_a_hole_ends_the_process_so_that_it_begins_anew_from_the_open_state():
    one, found = follower(first=6, reached=4)
    with pytest.raises(StoreError, match="begins with commit 6, 5 was pruned"):
        one._read_log()
    assert found == []
