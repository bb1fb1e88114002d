"""What the pages have one type are commands, with options that there are."""

from __future__ import annotations

import re
import shlex

import pytest
import typer

from perdure.cli.main import app
from tests.docs.pages import PAGES, named, text_of

GROUP = typer.main.get_command(app)
# Fields of the input: `perdure wf start TYPE --order o-42`.
TAKE_FIELDS = {"wf start", "verify", "schedule create"}

_line = re.compile(r"^(?:    |\$ )(perdure .+)$", re.MULTILINE)


def leaves(group, path=()):
    found = getattr(group, "commands", None)
    if found is None:
        yield " ".join(path), group
    for name, command in (found or {}).items():
        if not command.hidden:
            yield from leaves(command, (*path, name))


LEAVES = dict(leaves(GROUP))


def lines_of(page):
    text = re.sub(r"^```(?!console).*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    return [line for line in _line.findall(text) if "…" not in line and "," not in line.split()[1]]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_what_a_page_has_one_type_is_a_command_with_these_options(page):
    for line in lines_of(page):
        words = shlex.split(re.split(r" (?:2>|&|#|\||\\)", line)[0])[1:]
        found = next(
            (" ".join(words[:n]) for n in range(3, 0, -1) if " ".join(words[:n]) in LEAVES), None
        )
        assert found is not None or words[0].startswith("-"), line
        if found is None or found in TAKE_FIELDS:
            continue
        known = {name for it in LEAVES[found].params for name in (*it.opts, *it.secondary_opts)}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known | {"--help"}, line


@pytest.mark.parametrize("words", [it for it in LEAVES if not it.startswith("policy ")])
def test_no_option_is_one_that_no_page_mentions(words):
    pages = "\n".join(map(text_of, PAGES))
    options = [it for it in LEAVES[words].params if it.param_type_name == "option"]
    assert [
        option.opts
        for option in options
        if not any(name in pages for name in (*option.opts, *option.secondary_opts))
    ] == []
