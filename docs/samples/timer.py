"""A timer that can be put forward or back while it runs."""

from perdure import workflow


@workflow.define
async def alarm(at_ms: int) -> int:
    """Wait until the wake-up time, whatever it is by then; when it rang."""
    moved = 0

    @workflow.signal
    def move(to_ms: int) -> None:
        nonlocal at_ms, moved
        at_ms = to_ms
        moved += 1

    @workflow.query
    def wakes_at_ms() -> int:
        return at_ms

    while (left_ms := at_ms - workflow.now_ms()) > 0:
        seen = moved
        try:
            await workflow.wait_condition(lambda seen=seen: moved != seen, timeout_ms=left_ms)
        except TimeoutError:
            break
    return workflow.now_ms()
