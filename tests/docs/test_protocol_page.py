"""The page on the wire protocol has every operation with its arguments, every error and event."""

from __future__ import annotations

import re

import msgspec
import pytest

from perdure import errors, event_feed, wire
from tests.docs.pages import DOCS, text_of

PAGE = text_of(DOCS / "protocol.md")
# Told in words: it is no part of what others should build on.
IN_WORDS = {"WorkerEndpoint"}


def rows():
    section = PAGE.partition("## Operations")[2].partition("\n\n`WorkerEndpoint`")[0]
    for names, args, _ in re.findall(
        r"^\| (`\w+`[^|]*) \| ([^|]*)\| (.+) \|$", section, re.MULTILINE
    ):
        for name in re.findall(r"`(\w+)`", names):
            yield name, re.findall(r"`(\w+\??)`", args)


SHOWN = dict(rows())


def test_the_page_has_every_operation():
    assert SHOWN.keys() == wire.OPERATIONS.keys() - IN_WORDS


@pytest.mark.parametrize("name", SHOWN)
def test_the_arguments_of_an_operation_are_those_that_are_taken(name):
    fields = msgspec.structs.fields(wire.OPERATIONS[name])
    assert sorted(SHOWN[name]) == sorted(it.name + "?" * (not it.required) for it in fields)


def test_the_page_has_every_error_and_every_kind_of_event():
    missing = {code for code in errors.CODES if f"`{code}`" not in PAGE}
    assert missing == {"UNAUTHENTICATED"}  # Nobody sends it yet: there are no keys.
    assert {kind for kind in event_feed.KINDS.values() if kind not in PAGE} == set()
