from __future__ import annotations

import json

import pytest
import typer

from perdure import errors
from perdure.answers import Answer
from perdure.cli import output


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (0, "0 ms"),
        (-5, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (59_900, "59.9 s"),
        (60_000, "1m"),
        (200_000, "3m 20s"),
        (90_061_000, "1d 1h"),
    ],
)
def test_lengths_are_said_in_the_unit_that_people_use(length_ms, text):
    assert output.duration(length_ms) == text


def test_instants_are_said_from_now():
    assert output.when(1_000, 4_200) == "3.2 s ago"
    assert output.when(4_200, 1_000) == "in 3.2 s"
    assert output.when(None, 1_000) == "-"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.WorkflowFailed("x"), 1),
        (errors.InvalidArgument("x"), 2),
        (errors.Unavailable("x"), 4),
        (errors.NotFound("x"), 5),
        (errors.AlreadyExists("x"), 6),
        (errors.FailedPrecondition("x"), 6),
        (errors.ResourceExhausted("x"), 6),
    ],
)
def test_each_error_has_the_exit_code_of_the_contract(error, code, capsys):
    with pytest.raises(typer.Exit) as exit_, output.reported():
        raise error
    assert exit_.value.exit_code == code
    assert capsys.readouterr() == ("", "perdure: x\n")


def test_every_code_of_the_library_has_an_exit_code():
    assert set(output.EXIT_CODES) == set(errors.CODES)


def test_an_error_stays_one_line(capsys):
    output.fail("first\nsecond\x1b[31m\tthird", 2)
    assert capsys.readouterr().err == "perdure: first second [31m third\n"


def test_json_has_answers_bytes_and_no_infinities():
    value = {"a": Answer({"x": [Answer({"y": b"\x00\xff"})]}), "n": float("inf")}
    assert json.loads(output.json_line(value)) == {"a": {"x": [{"y": "AP8="}]}, "n": None}


def test_a_table_that_nobody_sees_has_no_padding_and_cuts_nothing(capsys):
    output.show(output.table(("A", "B"), [("x" * 150, "y"), ("z", "")]))
    assert capsys.readouterr().out.splitlines() == [
        "A" + " " * 151 + "B",
        "x" * 150 + "  y",
        "z",
    ]


def test_a_table_takes_values_for_what_they_are_and_not_for_markup(capsys):
    output.show(output.table(("A",), [("[red]x[/red]",)]))
    assert "[red]x[/red]" in capsys.readouterr().out
