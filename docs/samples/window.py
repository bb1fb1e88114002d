"""A batch of any size, at most so many at once: a window that slides over children.

Each record is a child that says by signal when it is done, so that the parent may go on as new in
the middle: the children live on, and the next run hears of them.
"""

from perdure import activity, workflow


@activity.define
def process(record: int) -> None:
    print(f"record {record}")


@workflow.define
async def one_record(record: int, batch: str) -> None:
    await workflow.sleep_ms(100 * (record % 3))
    try:
        await workflow.execute_activity(process, record, on_exhausted="fail")
    finally:
        workflow.external(batch).signal("done", record)


@workflow.define
async def batch(
    upto: int, window: int, page: int, offset: int = 0, taken_over: tuple[int, ...] = ()
) -> int:
    under_way = set(taken_over)

    @workflow.signal
    def done(record: int) -> None:
        under_way.discard(record)

    @workflow.query
    def progress() -> dict[str, int]:
        return {"done": offset - len(under_way), "under_way": len(under_way)}

    me, end = workflow.info().workflow_id, min(upto, offset + page)
    while offset < end:
        await workflow.wait_condition(lambda: len(under_way) < window)
        under_way.add(offset)
        await workflow.start_child(
            one_record, offset, me, workflow_id=f"{me}/{offset}", parent_close="abandon"
        )
        offset += 1
    if offset < upto:
        workflow.continue_as_new(upto, window, page, offset, sorted(under_way))
    await workflow.wait_condition(lambda: not under_way)
    return offset
