"""A workflow that runs what its input says: steps in a row, steps side by side, variables.

The statements are data, so that a YAML file or a form can make them; activities go by name.
"""

import asyncio
from typing import Any

from perdure import activity, workflow
from perdure.errors import InvalidArgument


@activity.define
def fetch(what: str) -> str:
    return f"<{what}>"


@activity.define
def join(left: str, right: str) -> str:
    return left + right


@workflow.define
async def recipe(statement: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
    async def run(node: dict[str, Any]) -> None:
        match node:
            case {"call": str(name), **rest}:
                args = [variables[one] for one in rest.get("with", [])]
                result = await workflow.execute_activity(name, *args)
                if "as" in rest:
                    variables[rest["as"]] = result
            case {"in_a_row": list(nodes)}:
                for one in nodes:
                    await run(one)
            case {"side_by_side": list(nodes)}:
                async with asyncio.TaskGroup() as group:
                    for one in nodes:
                        group.create_task(run(one))
            case _:
                raise InvalidArgument(f"no statement: {node}")

    await run(statement)
    return variables
