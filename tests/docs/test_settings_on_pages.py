"""The settings that pages show are ones that a node takes; the table of the page has them all."""

from __future__ import annotations

import re

import msgspec
import pytest

from perdure import config
from tests.docs.pages import DOCS, named, text_of

_toml = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = [
    (page, text) for page in sorted(DOCS.glob("*.md")) for text in _toml.findall(text_of(page))
]


@pytest.mark.parametrize(("page", "text"), SHOWN, ids=[named(page) for page, _ in SHOWN])
def test_the_settings_of_a_page_are_taken(page, text):
    assert config.parse(text, named(page)).source == named(page)


def test_the_page_of_the_command_line_has_every_setting_and_its_default():
    [text] = _toml.findall(text_of(DOCS / "cli.md"))
    shown = config.parse(text, "cli.md")
    for kind in (config.Durable, config.Limits):
        name = kind.__name__.lower()
        assert getattr(shown, name) == kind()
        assert {
            it.name for it in msgspec.structs.fields(kind) if f"\n{it.name} = " not in text
        } == set()
    for kind in (config.Node, config.Outbox):
        assert {
            it.name for it in msgspec.structs.fields(kind) if f"\n{it.name} = " not in text
        } == set()
