"""A saga: what was booked is given back, in reverse, when a later booking fails or is cancelled.

The compensation is noted before the booking is tried: whether a booking that failed has had an
effect is not known, so giving back has to be harmless where there is nothing to give back.
"""

from collections.abc import Callable

from perdure import RetryPolicy, activity, workflow

trip_desk: dict[str, str] = {}
"""Stands for the booking systems: what is booked, by kind and trip."""


def book(kind: str, trip: str) -> str:
    trip_desk[f"{kind} {trip}"] = activity.idempotency_key()
    return f"{kind} of {trip}"


@activity.define
def book_car(trip: str) -> str:
    return book("car", trip)


@activity.define
def book_hotel(trip: str) -> str:
    return book("hotel", trip)


@activity.define(retry=RetryPolicy(max_attempts=2), on_exhausted="fail")
def book_flight(trip: str) -> str:
    if trip == "overbooked":
        raise activity.Error("NoSeats", "the flight is full")
    return book("flight", trip)


@activity.define
def give_back(kind: str, trip: str) -> None:
    trip_desk.pop(f"{kind} {trip}", None)


@workflow.define
async def trip(name: str) -> list[str]:
    plan: list[tuple[str, Callable[[str], str]]] = [
        ("car", book_car),
        ("hotel", book_hotel),
        ("flight", book_flight),
    ]
    tried: list[str] = []
    booked: list[str] = []
    try:
        for kind, how in plan:
            tried.append(kind)
            booked.append(await workflow.execute_activity(how, name, activity_id=f"book-{kind}"))
            await workflow.sleep_ms(60_000)
    except (workflow.ActivityFailed, workflow.Cancelled):
        for kind in reversed(tried):
            await workflow.execute_activity(give_back, kind, name, activity_id=f"undo-{kind}")
        raise
    return booked
