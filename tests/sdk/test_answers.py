from __future__ import annotations

import copy
import json
import pickle

import pytest

from perdure.answers import Answer, Page, to_answer

FIELDS = {
    "workflow_id": "w",
    "pending": [{"attempt": 1, "last_failure": {"type": "E"}}],
    "result": {"mine": {"deep": 1}},
}


def test_fields_are_attributes_and_items():
    answer = Answer(FIELDS)
    assert answer.workflow_id == answer["workflow_id"] == "w"
    assert answer.pending[0].last_failure.type == "E"
    assert type(answer.pending) is list


def test_a_users_own_value_stays_what_it_is():
    assert type(Answer(FIELDS).result) is dict


def test_an_answer_equals_its_dict_and_gives_it_back():
    answer = Answer(FIELDS)
    assert answer == FIELDS
    assert json.loads(json.dumps(answer.to_dict())) == FIELDS


def test_an_answer_is_read_only_and_names_what_there_is():
    answer = Answer(FIELDS)
    with pytest.raises(AttributeError, match="read-only"):
        answer.status = 1
    with pytest.raises(AttributeError, match="workflow_id"):
        answer.workflowid  # noqa: B018


def test_an_answer_can_be_copied_and_pickled():
    answer = Answer(FIELDS)
    assert copy.deepcopy(answer) == answer == pickle.loads(pickle.dumps(answer))


def test_a_page_is_a_list_with_the_next_page():
    page = Page([{"a": 1}], "next")
    assert page == page.workflows == page.dead_letters == [{"a": 1}]
    assert (page[0].a, page.next_page) == (1, "next")


def test_other_values_pass():
    assert to_answer([1, "a", None]) == [1, "a", None]
