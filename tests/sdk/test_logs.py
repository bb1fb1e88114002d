from __future__ import annotations

import pytest

from perdure import logs


@pytest.mark.parametrize("level", logs.LEVELS)
def test_the_environment_says_how_much_is_logged(monkeypatch, level):
    monkeypatch.setenv(logs.LEVEL_VARIABLE, level)
    assert logs.level() == level


def test_without_a_word_it_is_info(monkeypatch):
    monkeypatch.delenv(logs.LEVEL_VARIABLE, raising=False)
    assert logs.level() == "info"


@pytest.mark.parametrize("level", ["", "loud", "DEBUG"])
def test_another_level_is_refused_with_those_that_there_are(monkeypatch, level):
    monkeypatch.setenv(logs.LEVEL_VARIABLE, level)
    with pytest.raises(ValueError, match="debug, info, warning, error"):
        logs.level()
