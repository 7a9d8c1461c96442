"""The run's secret: drawn anew for every run, committed to in the header, revealed at the end."""

from __future__ import annotations

import hashlib
import random
import secrets

SEED_BYTES = 32


def draw() -> bytes:
    """A fresh secret."""
    return secrets.token_bytes(SEED_BYTES)


def commitment(seed: bytes) -> str:
    """What the header prints: the SHA-256 of the secret, in hex."""
    return hashlib.sha256(b"passbench seed:" + seed).hexdigest()


def derive(seed: bytes, *names: str) -> random.Random:
    """A generator for one purpose (a task, a subgraph, the inputs, …), independent of every other."""
    label = "\0".join(names).encode()
    return random.Random(int.from_bytes(hashlib.sha256(seed + label).digest(), "big"))
