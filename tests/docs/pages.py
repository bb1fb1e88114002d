"""The pages of the documentation, and a node as far as their Python needs one."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from perdure import registry
from perdure.local_client import LocalClient
from perdure.testing import LocalEngine

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# (\w+)\.py\n")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


class ClientOfEngine(LocalClient):
    """A Client whose node is a LocalEngine with the modules of the page, in the working directory.

    It has run all that can run before a result is asked for.
    """

    def __init__(self) -> None:
        names = sorted(path.stem for path in Path().glob("*.py"))
        found = registry.collect([sys.modules[n] for n in names if not n.startswith("test_")])
        self.engine = LocalEngine(
            [one.function for one in found.workflows.values()],
            [one.function for one in found.activities.values()],
        )
        super().__init__(self.engine._core)

    def __enter__(self) -> ClientOfEngine:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def start_workflow(self, *args: Any, **kwargs: Any) -> Any:
        handle = super().start_workflow(*args, **kwargs)
        self.engine.run_workflow_tasks()
        return handle

    def result(self, workflow_id: str, timeout_ms: int | None = None, **options: Any) -> Any:
        self.engine.run_until_idle()
        return super().result(workflow_id, timeout_ms, **options)


def run_page(page: Path) -> list[str]:
    """Run the Python of a page in order, in the working directory; the names of what ran.

    A block that begins with "# name.py" is that module; its test functions are called.
    """
    ran = []
    for number, found in enumerate(BLOCK.finditer(text_of(page)), start=1):
        source = found[1]
        file_name = FILE_NAME.match(source)
        if file_name is None:
            code = compile(source, f"{named(page)} block {number}", "exec")
            exec(code, {"__name__": "__main__"})
            ran.append(str(number))
            continue
        Path(f"{file_name[1]}.py").write_text(source, encoding="utf-8")
        module = __import__(file_name[1])
        ran.append(file_name[1])
        for name, function in list(vars(module).items()):
            if name.startswith("test_"):
                function()
                ran.append(name)
    return ran
