from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import activity, workflow
from tests.docs.pages import ClientOfEngine, run_page


@pytest.fixture
def page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Path], list[str]]]:
    """`run_page` in a directory of its own, with a Client that needs no node."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(perdure, "Client", ClientOfEngine, raising=False)
    modules = set(sys.modules)
    definitions = [(kind, len(kind)) for kind in (activity.defined, workflow.defined)]
    yield run_page
    for name in set(sys.modules) - modules:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]
    for kind, length in definitions:
        del kind[length:]
