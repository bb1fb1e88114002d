"""A long activity that goes on where the attempt before it had come to.

Its heartbeats carry the row; the next attempt begins there, whatever ended the last one.
"""

import time

from perdure import RetryPolicy, activity, workflow

imported: list[int] = []
"""Stands for a database."""
breaks_at: set[int] = set()
"""Rows at which an attempt fails, once."""


@activity.define(heartbeat_ms=1_000, retry=RetryPolicy(initial_ms=100, max_attempts=5))
def import_rows(rows: int, row_ms: int) -> int:
    start: int = activity.heartbeat_details(int) or 0
    for row in range(start, rows):
        if row in breaks_at:
            breaks_at.discard(row)
            raise ConnectionError(f"row {row}")
        time.sleep(row_ms / 1000)
        imported.append(row)
        activity.record_heartbeat(row + 1)
    return rows - start


@workflow.define
async def import_file(rows: int, row_ms: int = 0) -> int:
    return await workflow.execute_activity(import_rows, rows, row_ms, activity_id="import")
