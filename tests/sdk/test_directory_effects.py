"""Directories that appear whole, once for each key, whoever dies or writes at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from perdure import effects
from perdure.directory_effects import NOTE, WORK
from perdure.effects import DirectoryEffects, http_headers
from perdure.errors import InvalidArgument


@pytest.fixture
def receiver(tmp_path):
    return DirectoryEffects(tmp_path / "out", now_ms=lambda: 77)


def names(path):
    return sorted(os.listdir(path))


def test_the_first_result_is_everybodys_and_its_files_are_there(receiver):
    def render(directory):
        (directory / "pages").mkdir()
        (directory / "pages" / "1.txt").write_text("one")
        return {"pages": (1,)}

    first = receiver.apply_once("w/render", render, attempt=1)
    again = receiver.apply_once("w/render", lambda _: 1 / 0, attempt=2)
    assert first == again == {"pages": [1]}
    assert (receiver.path_of("w/render") / "pages" / "1.txt").read_text() == "one"
    assert receiver.applied() == {"w/render": 1}


def test_what_raises_leaves_nothing_and_may_be_tried_again(receiver, tmp_path):
    def half(directory):
        (directory / "a").write_text("half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        receiver.apply_once("k", half)
    assert not receiver.path_of("k").exists()
    assert names(tmp_path / "out" / WORK) == []
    assert receiver.apply_once("k", lambda: "whole") == "whole"


def test_of_two_that_write_at_once_the_first_to_finish_counts_for_both(receiver):
    begun, go_on, results = threading.Event(), threading.Event(), []

    def slow(directory):
        begun.set()
        go_on.wait(10)
        (directory / "by").write_text("slow")
        return "slow"

    def fast(directory):
        (directory / "by").write_text("fast")
        return "fast"

    thread = threading.Thread(target=lambda: results.append(receiver.apply_once("k", slow)))
    thread.start()
    begun.wait(10)
    assert receiver.apply_once("k", fast) == "fast"
    go_on.set()
    thread.join(10)
    assert results == ["fast"]
    assert (receiver.path_of("k") / "by").read_text() == "fast"


def test_a_death_in_the_middle_leaves_nothing_visible_and_is_swept_away(receiver, tmp_path):
    code = (
        "import os, sys\n"
        "from perdure.effects import DirectoryEffects\n"
        "def dies(directory):\n"
        "    (directory / 'half').write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
        "DirectoryEffects(sys.argv[1]).apply_once('k', dies)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, tmp_path / "out"])
    assert died.returncode == -signal.SIGKILL
    assert names(tmp_path / "out") == [WORK]
    assert len(names(tmp_path / "out" / WORK)) == 1
    assert receiver.apply_once("k", lambda: "whole") == "whole"
    assert names(tmp_path / "out" / WORK) == []
    assert names(receiver.path_of("k")) == [NOTE]


KEYS = [
    "a/b",
    "a%2Fb",
    "A",
    "a",
    ".",
    "..",
    ".perdure-work",
    "k" * 300,
    "k" * 301,
    "größe",
    "~",
    "a b",
]


def test_every_key_has_a_directory_of_its_own_inside_the_root(receiver, tmp_path):
    paths = {receiver.path_of(key) for key in KEYS}
    assert len(paths) == len(KEYS)
    assert {path.parent for path in paths} == {tmp_path / "out"}
    for key in KEYS:
        receiver.apply_once(key, lambda key=key: key)
    assert receiver.applied() == dict.fromkeys(sorted(KEYS), 1)


def test_the_key_of_the_activity_is_the_default(receiver, monkeypatch):
    monkeypatch.setattr(effects, "current_activity", lambda: ("order/größe 1", 3))
    assert receiver.apply_once(fn=lambda directory: directory.is_dir()) is True
    assert receiver.applied() == {"order/größe 1": 1}
    assert http_headers() == {"Idempotency-Key": "order/gr%C3%B6%C3%9Fe%201"}
    assert http_headers("k-1") == {"Idempotency-Key": "k-1"}


@pytest.mark.parametrize("key", ["", "a b", "ä", "a\nb", "k" * 3_000])
def test_a_key_that_no_header_can_carry_is_refused(key):
    with pytest.raises(InvalidArgument) as caught:
        http_headers(key)
    assert caught.value.field == "key"


async def later():
    return 1


@pytest.mark.parametrize("wrong", [lambda: later(), lambda: object()])
def test_what_can_not_be_kept_is_refused_and_nothing_is_applied(receiver, wrong):
    with pytest.raises(InvalidArgument):
        receiver.apply_once("k", wrong)
    assert receiver.applied() == {}
