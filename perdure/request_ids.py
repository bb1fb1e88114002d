"""Request ids: what makes a request that is sent again the same request."""

from __future__ import annotations

import os


def new_request_id() -> str:
    """A request id that nobody else has."""
    return os.urandom(12).hex()
