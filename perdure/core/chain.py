"""The link between commits: each hash covers its commit and all commits before."""

from __future__ import annotations

import hashlib

HASH_BYTES = 32
GENESIS = bytes(HASH_BYTES)  # What the first commit of a store follows.


def next_hash(previous: bytes, body: bytes) -> bytes:
    """The hash of the commit `body` that follows the commit with hash `previous`: 32 bytes."""
    digest = hashlib.blake2b(previous, digest_size=HASH_BYTES)
    digest.update(body)
    return digest.digest()
