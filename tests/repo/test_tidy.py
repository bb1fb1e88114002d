"""Rules about the source itself, checked by machine: sizes, arrows, purity, no sleeping tests."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("perdure", "actors", "supervisors", "chaos")
MODULE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60

# Functions that may be longer, as "path::name"; each needs a reason beside it.
LONG_FUNCTIONS_ALLOWED: frozenset[str] = frozenset()

SLEEPERS = frozenset({"time.sleep"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    """Every Python file under these folders of the repository, in order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def long_functions(source: str, name: str) -> set[str]:
    """Functions of this source over the limit, docstring and decorators included."""
    found = set()
    for node in functions(ast.parse(source)):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if (node.end_lineno or node.lineno) - first + 1 > FUNCTION_LINES_MAX:
            found.add(f"{name}::{node.name}")
    return found


def sleeps(source: str) -> list[int]:
    """Lines that call time.sleep, under whatever name the module has imported it."""
    tree = ast.parse(source)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func, names) in SLEEPERS
    ]


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """The full name that an expression such as ``t.sleep`` stands for, or an empty string."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, names)}.{node.attr}"
    return ""


def test_modules_stay_within_the_line_limit():
    sizes = {
        relative(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(*ROOMS, "tests")
    }
    assert len(sizes) > len(ROOMS)
    assert {name: size for name, size in sizes.items() if size > MODULE_LINES_MAX} == {}


def test_functions_stay_within_the_line_limit():
    found: set[str] = set()
    for path in python_files(*ROOMS, "tests"):
        found |= long_functions(path.read_text(encoding="utf-8"), relative(path))
    assert found - LONG_FUNCTIONS_ALLOWED == set()
    assert LONG_FUNCTIONS_ALLOWED - found == set(), "no longer long: take it off the list"


def test_a_function_one_line_over_the_limit_is_found():
    body = "    pass\n" * (FUNCTION_LINES_MAX - 1)
    assert long_functions("def f():\n" + body, "m") == set()
    assert long_functions("def f():\n    pass\n" + body, "m") == {"m::f"}
    assert long_functions("@d\ndef f():\n" + body, "m") == {"m::f"}


# The first asks for the sleep to see it refused; the second is work that takes its time.
SLEEPS_ALLOWED = {"tests/worker/replay/test_guard.py", "tests/process/apps/hurt_app.py"}


def test_no_test_sleeps():
    found = [
        f"{relative(path)}:{line}"
        for path in python_files("tests")
        if relative(path) not in SLEEPS_ALLOWED
        for line in sleeps(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "import time as t\nt.sleep(1)",
        "from time import sleep\nsleep(1)",
        "from time import sleep as nap\nnap(1)",
    ],
)
def test_a_sleep_is_found_under_any_name(source):
    assert sleeps(source) == [2]


def test_a_sleep_on_the_workflow_loop_is_no_sleep_of_the_test():
    assert sleeps("import asyncio\nasync def f():\n    await asyncio.sleep(60)") == []


@pytest.mark.process
def test_imports_follow_the_arrows_and_the_core_is_pure():
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_module_of_the_library_has_a_place_among_the_rooms():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    layers = config["importlinter:contract:rooms"]["layers"]
    placed = {word.strip("()") for word in layers.split()}
    present = {
        f"perdure.{path.stem}"
        for path in (ROOT / "perdure").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem[0] != "_"
    }
    assert present - placed == set(), "name it in setup.cfg, under the contract on rooms"


def test_the_lock_file_pins_by_hash_and_names_no_address():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert entries
    assert all("==" in line and line.endswith("\\") for line in entries)
    assert not [line for line in lines if "://" in line or line.lstrip().startswith("--index")]


def test_every_dependency_that_is_declared_is_locked():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    extras = config["options.extras_require"]
    declared = [
        line
        for text in (config["options"]["install_requires"], extras["test"], extras["dev"])
        for line in text.splitlines()
        if line
    ]
    names = {line.split()[0].lower() for line in [*declared, *build["requires"]]}
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    locked = {line.split("==")[0] for line in lock if "==" in line}
    assert names - locked == set()
