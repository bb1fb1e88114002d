"""The pages that are made are as made, no public name is left out, and every page is on the map."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from perdure import activity, workflow
from tests.docs.pages import DOCS, text_of

SCRIPT = DOCS / "make_reference.py"

# In `__all__` for the engine, and nothing that an application would import.
FOR_THE_ENGINE = {
    "ActivityContext",
    "Definition",
    "Options",
    "Runtime",
    "bound",
    "defined",
    "definition_of",
    "inside",
}
ALIASES = {"Cancelled", "start_activity"}


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("make_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(script) -> str:
    return script.page()


def test_the_table_of_commands_is_up_to_date(script):
    shown = text_of(DOCS / "cli.md")
    assert shown == script.commands_page(shown), "commands have changed: run `make reference`"


def test_the_page_is_up_to_date(made):
    assert text_of(DOCS / "reference.md") == made, "docstrings have changed: run `make reference`"


@pytest.mark.parametrize("module", [activity, workflow])
def test_every_name_for_applications_is_there(made, module):
    prefix = module.__name__.removeprefix("perdure.")
    missing = {
        name
        for name in set(module.__all__) - FOR_THE_ENGINE
        if f"### {prefix}.{name}\n" not in made and name not in ALIASES
    }
    assert missing == set()


def test_every_page_is_on_the_map():
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in text_of(DOCS / "README.md")} == set()
