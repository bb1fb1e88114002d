"""What workflows say appears in the log of their worker."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import structlog

from perdure import workflow
from perdure.worker.speaking import WORKFLOWS, speak_for_workflows


@contextlib.contextmanager
def nobodys() -> Iterator[logging.Logger]:
    """The logger of workflows, of a process in which nobody has set up logging."""
    found, root = logging.getLogger(WORKFLOWS), logging.getLogger()
    before = (found.propagate, found.level, list(found.handlers))
    others, root.handlers = root.handlers, []
    found.propagate, found.handlers = False, []
    try:
        yield found
    finally:
        root.handlers = others
        found.propagate, level, found.handlers = before
        found.setLevel(level)


def test_what_workflows_say_appears_once_among_ours_where_nobody_has_set_up_logging():
    with nobodys() as theirs, structlog.testing.capture_logs() as lines:
        for _ in range(2):
            speak_for_workflows()
        workflow.logger.info("%d of them", 2)
        workflow.logger.debug("details")
        theirs.error("bad", extra={"workflow_id": "w", "run": 3})
    assert lines == [
        {"event": "workflow.said", "message": "2 of them", "log_level": "info"},
        {
            "event": "workflow.said",
            "message": "bad",
            "workflow_id": "w",
            "run": 3,
            "log_level": "error",
        },
    ]


def test_an_application_that_has_set_up_logging_is_left_alone():
    own = logging.NullHandler()
    with nobodys() as theirs:
        theirs.addHandler(own)
        speak_for_workflows()
        assert theirs.handlers == [own]


def test_what_sets_up_logging_later_has_the_lines_to_itself():
    with nobodys(), structlog.testing.capture_logs() as lines:
        speak_for_workflows()
        logging.getLogger().addHandler(logging.NullHandler())
        workflow.logger.info("once")
    assert lines == []
