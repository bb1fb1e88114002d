from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.audit.chain import Chain, as_data, parse_chain
from perdure.audit.example import CHECKOUT
from perdure.audit.imports.kinds import Said, chain
from perdure.audit.review import Review, audit
from perdure.cli.main import run


@pytest.fixture
def chain_file(tmp_path):
    """Writes a chain (data, or text as it is) to a file; its path as text."""

    def write(data: Any, name: str = "chain.json") -> str:
        path = tmp_path / name
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def policy(capsys):
    """Runs `perdure policy …`: (exit code, standard output, standard error)."""

    def call(*args: str) -> tuple[int, str, str]:
        code = run(["policy", *args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def checkout() -> dict[str, Any]:
    return json.loads(json.dumps(CHECKOUT))


@pytest.fixture
def review_of():
    """Audits layers given as maps."""

    def review(*layers: dict[str, Any], **over: Any) -> Review:
        return audit(parse_chain({"layers": list(layers), **over}))

    return review


@pytest.fixture
def codes_of(review_of):
    """The codes found in layers given as maps."""

    def codes(*layers: dict[str, Any], **over: Any) -> set[str]:
        return {each.code for each in review_of(*layers, **over).findings}

    return codes


@pytest.fixture
def sound():
    """A layer without a finding, changed as said."""

    def layer(**over: Any) -> dict[str, Any]:
        return {
            "attempts": 3,
            "base_delay_ms": 100,
            "max_delay_ms": 1000,
            "jitter": "full",
            "per_try_timeout_ms": 1000,
            "deadline_ms": 4000,
            "respect_retry_after": True,
        } | over

    return layer


@pytest.fixture
def imported(tmp_path):
    """The chain of a text of some kind; it has passed through JSON as `check` reads it."""

    def read(kind: str, text: str, name: str = "settings.yaml", **said: Any) -> Chain:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        found = chain(kind, str(path), Said(**said))
        assert parse_chain(json.loads(json.dumps(as_data(found)))) == found
        return found

    return read


@pytest.fixture
def codes_in():
    """The codes found in one layer of a chain."""

    def codes(found: Chain, index: int = 0) -> set[str]:
        return {each.code for each in audit(found).of(index)}

    return codes
