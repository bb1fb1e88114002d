"""What the auditor once took for a violation and is none: keys of later runs, a gate set twice."""

from __future__ import annotations

import pytest

from chaos.auditor import effects, names
from chaos.auditor.pauses import Gates
from perdure.core.ids import execution_id, idempotency_key

GATE = names.TAGS["GateSet"]


@pytest.mark.parametrize("workflow_id", ["w", "w/1", "a%2F#2", "x#y"])
@pytest.mark.parametrize("run", [1, 2, 12])
@pytest.mark.parametrize("activity_id", ["a1", "@1", "b/c#d%"])
def test_a_key_names_one_activity_of_one_run(workflow_id, run, activity_id):
    execution = execution_id(workflow_id, run)
    key = idempotency_key(execution, activity_id)
    assert effects.key_of(execution, activity_id) == key
    assert effects.parts_of(key) == (execution, activity_id)
    assert effects.parts_of(f"{key}#second") == (execution, activity_id)


@pytest.mark.parametrize("text", ["", "w", "w/a/b", "w#x/a", "w#/a"])
def test_a_text_of_another_form_is_no_key(text):
    assert effects.parts_of(text) is None


def gate(paused):
    return [GATE, 5, "queue", "q", paused, "", None]


@pytest.mark.parametrize("last", [True, False])
def test_the_last_word_of_a_commit_about_a_gate_counts_after_it(last):
    gates = Gates()
    records = [gate(not last), gate(last)]
    gates.take(records, before=True)
    assert gates.paused("q", "t") == ""  # What it opens at any point is open for all of it.
    gates.take(records, before=False)
    assert gates.paused("q", "t") == ("queue q" if last else "")
