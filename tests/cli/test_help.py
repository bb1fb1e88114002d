from __future__ import annotations

import re

import pytest
import typer

from perdure.cli.main import app, run
from perdure.cli.options import first_sentence


def commands(group, path=()):
    """The words of every command there is, groups too."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


ALL = sorted(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_names_what_an_option_takes_cuts_no_sentence_and_has_an_example(words, capsys):
    assert run([*words, "--help"]) == 0
    said = capsys.readouterr().out
    assert not re.search(r"<\w+( range)?>|INTEGER|FLOAT", said)
    assert not re.search(r"\w\.\.\.\n", said.partition("Commands:")[2])
    assert re.search(r"Examples?:", said)


def test_no_option_takes_a_number_that_is_not_finite():
    numbers = []
    for words in ALL:
        command = typer.main.get_command(app)
        for word in words:
            command = command.commands[word]
        numbers += [it for it in command.params if "float" in it.type.name]
    assert len(numbers) > 40
    for option in numbers:
        with pytest.raises(typer.BadParameter, match="no finite number"):
            option.callback(None, option, float("nan"))


def test_a_first_sentence_ends_at_its_full_stop_or_with_its_paragraph():
    assert first_sentence("Run it, so that\n    it runs. More of it.") == "Run it, so that it runs."
    assert first_sentence("Run it\n\nMore.") == "Run it."


def test_what_is_missing_is_explained(capsys):
    assert run(["drill", "run"]) == 2
    assert "perdure drill list" in capsys.readouterr().err


def test_a_module_that_is_not_there_is_told_before_a_node_that_is_not(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERDURE_ENDPOINT", raising=False)
    assert run(["worker", "--app", "no_such_module_here"]) == 2
    assert "no_such_module_here" in capsys.readouterr().err


def test_the_node_that_does_not_answer_is_named_in_plain_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERDURE_ENDPOINT", raising=False)
    assert run(["wf", "list", "--timeout", "0.01"]) == 4
    assert "no node of ./.perdure answers: start one" in capsys.readouterr().err
