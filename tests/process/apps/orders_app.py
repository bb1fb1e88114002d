"""A workflow whose course shows in what order things happened, for nodes that start otherwise."""

from __future__ import annotations

import asyncio

from perdure import activity, workflow


@activity.define
def shout(word: str) -> str:
    """The word, louder."""
    return word.upper()


@workflow.define
async def ordered(words: list[str]) -> list[object]:
    """Sets, chance and time before a signal, and the same after it."""
    found: list[object] = []
    box = workflow.receive("go_on")
    for half in range(2):
        chosen = workflow.random().sample(words, 4)
        tasks = {asyncio.create_task(workflow.execute_activity(shout, one)) for one in {*chosen}}
        done, _ = await asyncio.wait(tasks)
        found += sorted(task.result() for task in done)
        found += [str(workflow.uuid4()), workflow.side_effect(lambda: "once")]
        await workflow.sleep_ms(10)
        if half == 0:
            found.append(await box.get())
    return found
