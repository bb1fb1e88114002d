"""The tree of errors and the codes that stand for it on the wire."""

from __future__ import annotations

import pickle

import pytest

from perdure import errors
from perdure.failures import Failure

FIXED = {
    "InvalidArgument": "INVALID_ARGUMENT",
    "NotFound": "NOT_FOUND",
    "AlreadyExists": "ALREADY_EXISTS",
    "FailedPrecondition": "FAILED_PRECONDITION",
    "ResourceExhausted": "RESOURCE_EXHAUSTED",
    "Unauthenticated": "UNAUTHENTICATED",
    "Unavailable": "UNAVAILABLE",
    "DeadlineExceeded": "DEADLINE_EXCEEDED",
    "Internal": "INTERNAL",
    "WorkflowFailed": "WORKFLOW_FAILED",
    "UpdateFailed": "UPDATE_FAILED",
    "UpdateRejected": "UPDATE_REJECTED",
}


@pytest.mark.parametrize(("name", "code"), FIXED.items())
def test_every_error_has_the_code_of_its_name(name, code):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.PerdureError)
    assert kind("it").code == code
    assert errors.CODES[code] is kind


def test_no_code_is_without_a_fixed_name():
    assert errors.CODES.keys() == set(FIXED.values())


@pytest.mark.parametrize("code", FIXED.values())
def test_an_answer_becomes_the_error_that_was_raised(code):
    error = errors.from_code(code, "why", field="n")
    assert type(error) is errors.CODES[code]
    assert (error.code, error.message, str(error), error.field) == (code, "why", "why", "n")


def test_a_failed_workflow_carries_its_status_and_its_failure():
    failure = Failure("Boom", "no")
    error = errors.from_code("WORKFLOW_FAILED", "ended", status="Cancelled", failure=failure)
    assert isinstance(error, errors.WorkflowFailed)
    assert (error.status, error.failure) == ("Cancelled", failure)


def test_an_unknown_code_is_internal_and_stays_readable():
    error = errors.from_code("OUT_OF_CHEESE", "more")
    assert type(error) is errors.Internal
    assert "OUT_OF_CHEESE" in error.message
    assert "more" in error.message


def test_errors_can_be_rebuilt_in_another_process():
    error = errors.WorkflowFailed("ended", "Failed", Failure("Boom", "no"), field="x")
    again = pickle.loads(pickle.dumps(error))
    assert (again.message, again.status, again.failure, again.field) == (
        "ended",
        "Failed",
        Failure("Boom", "no"),
        "x",
    )
