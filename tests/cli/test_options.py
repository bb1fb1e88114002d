from __future__ import annotations

import pytest
import typer

from perdure.cli import options
from perdure.cli.options import json_or_text, merged_input, split_fields

KNOWN = {"--id": True, "--input": True, "--wait": False, "--timeout": True}


@pytest.mark.parametrize(
    ("args", "rest", "fields"),
    [
        (["T", "--fail-rate", "0.5"], ["T"], {"fail_rate": 0.5}),
        (["T", "--fail-rate=0.5", "--wait"], ["T", "--wait"], {"fail_rate": 0.5}),
        (["--fail-rate", "0.5", "T"], ["T"], {"fail_rate": 0.5}),
        (["T", "--dry", "--wait"], ["T", "--wait"], {"dry": True}),
        (["T", "--dry", "--fast", "--id", "a"], ["T", "--id", "a"], {"dry": True, "fast": True}),
        (["T", "--offset", "-5"], ["T"], {"offset": -5}),
        (["T", "--name", "o-42"], ["T"], {"name": "o-42"}),
        (["T", "--name", '"5"'], ["T"], {"name": "5"}),
        (["T", "--tags", "[1,2]"], ["T"], {"tags": [1, 2]}),
        (["T", "--name="], ["T"], {"name": ""}),
        (["T", "--ratio", "NaN"], ["T"], {"ratio": "NaN"}),
        (["T", "--id", "--fail-rate"], ["T", "--id", "--fail-rate"], {}),
        (["T", "--input", "--x", "--y", "1"], ["T", "--input", "--x"], {"y": 1}),
        (["T", "--", "--x", "1"], ["T", "--", "--x", "1"], {}),
    ],
)
def test_unknown_options_become_fields_wherever_they_stand(args, rest, fields):
    assert split_fields(args, KNOWN) == (rest, fields)


def test_a_field_that_is_given_twice_is_refused():
    with pytest.raises(typer.BadParameter, match="--x is given twice"):
        split_fields(["T", "--x", "1", "--x", "2"], KNOWN)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("true", True), ("null", None), ("o-42", "o-42"), ("{", "{")]
)
def test_a_value_is_json_if_it_parses_and_a_text_otherwise(text, value):
    assert json_or_text(text) == value


def test_input_and_fields_go_together_where_the_input_is_an_object():
    assert merged_input('{"timeout": 3}', {"x": 1}) == (True, {"timeout": 3, "x": 1})
    assert merged_input("[1, 2]", {}) == (True, [1, 2])
    assert merged_input(None, {"x": 1}) == (True, {"x": 1})
    assert merged_input(None, {}) == (False, {})


@pytest.mark.parametrize(
    ("given", "fields", "message"),
    [
        ("{x", {}, "--input: this is no JSON"),
        ("NaN", {}, "--input: this is no JSON"),
        ("[1]", {"x": 1}, "must be a JSON object"),
        ('{"x": 2}', {"x": 1}, "x is given both"),
    ],
)
def test_an_input_that_can_not_be_meant_is_refused_by_name(given, fields, message):
    with pytest.raises(typer.BadParameter, match=message):
        merged_input(given, fields)


def test_an_endpoint_of_a_node_that_is_not_for_everybody_is_told_with_the_likely_one():
    assert options.wrong_door("ipc:///srv/run/node/workers").endswith("ipc:///srv/run/node/public")
    assert "its own processes" in options.wrong_door("ipc:///srv/run/node/root")
    assert options.wrong_door("ipc:///srv/run/node/public") == options.wrong_door(None) == ""
