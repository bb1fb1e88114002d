from __future__ import annotations

import pytest

from perdure.errors import InvalidArgument
from perdure.outbox.places import Place, place_of


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("sqlite:///app.db", "/home/me/app.db"),
        ("sqlite:///data/app.db", "/home/me/data/app.db"),
        ("sqlite:////var/app.db", "/var/app.db"),
        ("app.db", "/home/me/app.db"),
        ("/var/app.db", "/var/app.db"),
    ],
)
def test_a_file_is_named_by_a_url_or_a_path(text, path):
    assert place_of(text, "/home/me") == Place("sqlite", path)
    assert place_of(str(place_of(text, "/home/me")), "/elsewhere") == Place("sqlite", path)


def test_a_slash_too_few_is_told_and_not_guessed(tmp_path):
    with pytest.raises(InvalidArgument, match=f"takes four: sqlite:///{tmp_path}/app.db"):
        place_of(f"sqlite://{tmp_path}/app.db", "/usr")


@pytest.mark.parametrize(
    "text",
    ["mysql://h/db", "sqlite://app.db", "sqlite:///", "sqlite:app.db", "postgresql:shop", ""],
)
def test_what_is_no_place_is_refused(text):
    with pytest.raises(InvalidArgument, match="outbox"):
        place_of(text, "/")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:secret@h:5/db", "postgresql://me:***@h:5/db"),
        ("postgresql://me@h/db", "postgresql://me@h/db"),
        ("postgres:///db?user=me&password=secret", "postgres:///db?user=me&password=***"),
    ],
)
def test_a_password_is_not_shown(text, shown):
    place = place_of(text, "/")
    assert (place.kind, place.address, str(place)) == ("postgres", text, shown)
