"""What a type checker tells those who use Perdure."""

from __future__ import annotations

import pytest
from mypy import api

PROGRAM = """
from typing import Any, assert_type

from perdure import AsyncClient, Client, workflow
from perdure.testing import LocalEngine

@workflow.define
async def checkout(order: str, cents: int) -> list[int]:
    return [cents]

client = Client()
assert_type(client.start_workflow(checkout, "o", 1, workflow_id="w").result(), list[int])
assert_type(client.start_workflow("checkout", "o", 1, workflow_id="w").result(), Any)
assert_type(
    client.signal_with_start(checkout, "o", 1, workflow_id="w", signal="s").result(), list[int]
)
assert_type(client.handle("w").result(), Any)
assert_type(
    LocalEngine([checkout]).client.start_workflow(checkout, "o", 1, workflow_id="w").result(),
    list[int],
)

async def main(client: AsyncClient) -> None:
    handle = await client.start_workflow(checkout, "o", 1, workflow_id="w")
    assert_type(await handle.result(), list[int])
"""


@pytest.mark.timeout(600)  # It reads the whole package.
def test_a_result_has_the_type_that_the_workflow_function_returns(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    said, problems, code = api.run(["--follow-imports=silent", str(program)])
    assert (said.splitlines()[-1:], problems, code) == (
        ["Success: no issues found in 1 source file"],
        "",
        0,
    )
