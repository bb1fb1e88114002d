"""What workflows say through logging, among the lines of their worker."""

from __future__ import annotations

import logging

from perdure import logs
from perdure.log_names import LogName

WORKFLOWS = "perdure.workflow"
FIELDS = ("workflow_id", "run")
_NUMBERS = {"debug": 0, "info": 20, "warning": 30, "error": 40}


def speak_for_workflows() -> None:
    """Have what `workflow.logger` says appear here, from the level that is asked for on, where the
    application has not set up logging by itself.
    """
    theirs = logging.getLogger(WORKFLOWS)
    if theirs.hasHandlers():
        return
    theirs.addHandler(_Relay())
    if theirs.level == logging.NOTSET:
        theirs.setLevel(logs.level().upper())


class _Relay(logging.Handler):
    """Passes lines of the standard library's logging on to ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line; none where the application has set up logging since."""
        if logging.getLogger().handlers:
            return
        fields = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        word = next(one for one in reversed(logs.LEVELS) if record.levelno >= _NUMBERS[one])
        try:
            said = record.getMessage()
            getattr(logs.logger(), word)(LogName.WORKFLOW_SAID, message=said, **fields)
        except Exception:  # noqa: BLE001 - as every handler: a line that can't be made ends nothing
            self.handleError(record)
