"""Chance, by name: each component has a stream of its own, so that what one draws shifts no other's
draws, and a plan that is shrunk stays what it was elsewhere.
"""

from __future__ import annotations

import hashlib
import random


class Chance:
    """The streams of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        """The generator of this name, the same one at every call."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = fresh(self.seed, name)
        return found

    def hex(self, name: str, digits: int = 10) -> str:
        """A fresh name part, as incarnations have."""
        return f"{self.stream(name).getrandbits(4 * digits):0{digits}x}"


def fresh(seed: int, name: str) -> random.Random:
    """A generator that begins anew, whatever was drawn before."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return random.Random(int.from_bytes(digest[:16], "big"))
