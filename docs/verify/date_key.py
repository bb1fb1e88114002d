"""The key has the date in it: an attempt after midnight mails once more."""

from datetime import date

from perdure import activity, verify, workflow


@activity.define
def mail(customer: str) -> None:
    verify.effect("mail", f"{customer}-{date.today()}")


@workflow.define
async def reminder(customer: str = "c-7") -> None:
    await workflow.execute_activity(mail, customer, activity_id="mail")
