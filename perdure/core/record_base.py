"""What every record is built from."""

from __future__ import annotations

from typing import Annotated

import msgspec

Payload = bytes
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that happened to one workflow execution."""
