"""Every night a report: a workflow on a schedule, with what it found as search attributes."""

from datetime import UTC, datetime

from perdure import Client, activity, workflow


@activity.define
def count_orders(day: str) -> int:
    return len(day)


@workflow.define
async def report(region: str) -> str:
    day = datetime.fromtimestamp(workflow.now_ms() / 1000, UTC).date().isoformat()
    orders = await workflow.execute_activity(count_orders, day)
    workflow.set_search_attributes({"region": region, "orders": orders})
    return f"{region} {day}: {orders}"


def every_night(client: Client, region: str) -> None:
    """Start it at 02:30 Vienna time; a run that still goes on is not joined by a second."""
    client.create_schedule(
        f"report-{region}",
        report,
        region,
        cron="30 2 * * *",
        time_zone="Europe/Vienna",
        overlap="skip",
    )
