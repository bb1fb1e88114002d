"""A lock over workflows: whoever asks first has it first; who keeps it too long loses it.

The lock is a workflow of its own. Asking and giving back are signals, being given it is one, too.
"""

from typing import Any

from perdure import activity, workflow


@workflow.define
async def mutex(hold_max_ms: int, waiting: list[str] | None = None) -> None:
    """Give the lock to one workflow after another, for at most `hold_max_ms` each."""
    asks, returns = workflow.receive("ask"), workflow.receive("give_back")
    queue = list(waiting or [])
    while not workflow.info().continue_as_new_suggested:
        while len(asks) or not queue:
            queue.append(await asks.get())
        holder = queue.pop(0)
        workflow.external(holder).signal("granted", workflow.info().workflow_id)
        deadline_ms = workflow.now_ms() + hold_max_ms
        try:
            while await returns.get(timeout_ms=deadline_ms - workflow.now_ms()) != holder:
                pass  # Somebody who had lost it already.
        except TimeoutError:
            continue
    workflow.continue_as_new(hold_max_ms, queue)


@activity.define
def use(resource: str, who: str) -> None:
    print(f"{resource}: {who}")


@workflow.define
async def user(lock: str, work_ms: int) -> dict[str, Any]:
    me = workflow.info().workflow_id
    granted = workflow.receive("granted")
    workflow.external(lock).signal("ask", me)
    await granted.get()
    since_ms = workflow.now_ms()
    try:
        await workflow.execute_activity(use, lock, me)
        await workflow.sleep_ms(work_ms)
    finally:
        workflow.external(lock).signal("give_back", me)
    return {"since_ms": since_ms, "until_ms": workflow.now_ms()}
