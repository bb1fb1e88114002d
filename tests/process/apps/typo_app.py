"""An application with a name that is misspelt where it is used."""

from __future__ import annotations

from perdure import activity, workflow


@activity.define
def charge() -> str:
    return "charged"


@workflow.define
async def checkout() -> str:
    return await workflow.execute_activity("chrage", activity_id="pay")
