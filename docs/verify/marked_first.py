"""A note that the mail is sent is made before it is: the mail is lost."""

from perdure import activity, verify, workflow

# Stands for a table in a database: the death of a worker does not empty it.
sent: set[str] = verify.outside(set())


@activity.define
def mail(customer: str) -> None:
    key = activity.idempotency_key()
    if key in sent:
        return
    sent.add(key)
    verify.effect("mail", key)


@workflow.define
async def reminder(customer: str = "c-7") -> None:
    await workflow.execute_activity(mail, customer, activity_id="mail")
