"""What every command is built from."""

from __future__ import annotations

import msgspec


class Command(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something asked of history about one workflow execution."""
