"""What docs/clients.md shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from perdure import activity, workflow
from perdure.local_client import LocalClient
from perdure.testing import LocalEngine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


class Moving(LocalClient):
    """A node would have run on between two calls."""

    def __init__(self, engine: LocalEngine) -> None:
        super().__init__(engine._core)
        self.engine = engine

    def _call(self, args: Any, wait_ms: int = 0) -> Any:
        self.engine.run_until_idle(skip_time=False)
        return super()._call(args, wait_ms)


def test_the_page_on_clients_does_what_it_says(capsys):
    assert len(BLOCKS) == 6
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(BLOCKS[0], str(PAGE), "exec"), names)
    assert activity.definition_of(names["charge"])
    assert workflow.definition_of(names["order"])
    names["client"] = Moving(LocalEngine([names["order"]], [names["charge"]]))
    for block in BLOCKS[1:5]:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["receipt"] == "receipt-1999"
    assert "WorkflowCompleted order-42" in capsys.readouterr().out
    compile(BLOCKS[5], str(PAGE), "exec")
