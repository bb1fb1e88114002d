"""The workflow that is to be started, and its arguments, as a request names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure import values, wire
from perdure.errors import InvalidArgument


def target(
    workflow: str | Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, msgspec.Raw]:
    """The type's name and the input. InvalidArgument for what is neither function nor name."""
    if isinstance(workflow, str):
        return workflow, wire.raw_payload(values.encode_input(None, args, kwargs))
    definition = getattr(workflow, "__perdure_workflow__", None)
    name: object = getattr(definition, "name", None) or getattr(workflow, "__name__", None)
    if not isinstance(name, str):
        text = f"type must be a workflow function or its name, not a {type(workflow).__name__}"
        raise InvalidArgument(text, field="type")
    return name, wire.raw_payload(values.encode_input(workflow, args, kwargs))
