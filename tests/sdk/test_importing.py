"""What is said where an application can't be imported."""

from __future__ import annotations

import sys

import pytest

from perdure import registry
from perdure.errors import InvalidArgument

FILES = {
    "orders/__init__.py": "",
    "orders/flows.py": "",
    "raises.py": "def f():\n    raise RuntimeError('boom')\n\nf()\n",
    "deep.py": "import json\n\njson.loads('x')\n",
    "typo.py": "x = 1\nx = = 2\n",
    "imports_typo.py": "import typo\n",
    "missing.py": "\nimport nosuch_thing\n",
    "silent.py": "raise KeyError\n",
    "plain.py": "from perdure import workflow\n\n@workflow.define\ndef a(): ...\n",
    "leaves.py": "raise SystemExit(3)\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def said(name, project):
    with pytest.raises(InvalidArgument) as caught:
        registry.load([name], str(project))
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("raises", "RuntimeError: boom at raises.py:2"),
        ("deep", "Expecting value: line 1 column 1 (char 0) at deep.py:3"),
        ("typo", "SyntaxError: invalid syntax at typo.py:2"),
        ("imports_typo", "SyntaxError: invalid syntax at typo.py:2"),
        ("missing", "imports 'nosuch_thing', which is not there at missing.py:2"),
        ("silent", "can't be imported: KeyError at silent.py:1"),
        ("plain", "workflow functions must be async: `async def a` at plain.py:3"),
        ("leaves", "SystemExit: 3 at leaves.py:1"),
    ],
)
def test_a_failing_import_names_the_innermost_line_of_the_users_own_code(name, end, project):
    message = said(name, project)
    assert message.startswith(f"module {name!r} ")
    assert message.endswith(end)


def test_a_place_outside_of_the_directory_is_named_in_full(project):
    assert said("raises", project / "orders").endswith(f" at {project / 'raises.py'}:2")


@pytest.mark.parametrize(
    "name",
    [
        "orders/flows.py",
        "./orders/flows.py",
        "orders/flows",
        "orders.flows:process_order",
        "orders/flows.py:process_order",
        "orders.flwos",
        "ordres.flows",
        "Orders.Flows",
        "ordres/flwos.py",
    ],
)
def test_a_name_that_is_nearly_a_modules_is_answered_with_that(name, project):
    assert said(name, project).endswith("; did you mean orders.flows?")


def test_the_path_of_a_file_may_be_absolute(project):
    path = str(project / "orders" / "flows.py")
    assert said(path, project).endswith("; did you mean orders.flows?")


def test_the_file_of_a_package_is_the_package(project):
    assert said("orders/__init__.py", project).endswith("; did you mean orders?")


def test_an_empty_name_is_one_clear_line(project):
    assert said("", project).endswith("this name is empty")


@pytest.mark.parametrize("name", ["nothing_like_it", "orders.nothing_like_it"])
def test_where_nothing_is_near_there_is_no_hint(name, project):
    assert said(name, project) == f"there is no module {name!r}"
