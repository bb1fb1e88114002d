"""The receiver knows no key, so that it can't tell a repeat: the mail is doubled."""

from perdure import activity, verify, workflow


@activity.define
def mail(customer: str) -> None:
    with verify.effect("mail"):
        pass  # smtp.send_message(…)


@workflow.define
async def reminder(customer: str = "c-7") -> None:
    await workflow.execute_activity(mail, customer, activity_id="mail")
