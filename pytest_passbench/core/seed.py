"""The run's secret: drawn anew for every run, committed to in the header, revealed at the end.

Each purpose has a key of its own. So the draws for one purpose tell nothing of those for another, and earlier draws
tell nothing of later ones.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from typing import Any

SEED_BYTES = 32
_BUFFER_BYTES = 1024  # of a stream, made at a time
_FRACTION_BITS = 53  # of a float


def draw() -> bytes:
    """Return a fresh secret."""
    return secrets.token_bytes(SEED_BYTES)


def commitment(seed: bytes) -> str:
    """Return the SHA-256 of the secret, in hex: a run publishes it in its header before it judges."""
    return hashlib.sha256(b"passbench seed:" + seed).hexdigest()


class Secret:
    """The part of the run's secret for one subgraph of a task and one candidate, with a key for each purpose."""

    def __init__(self, seed: bytes, *names: str) -> None:
        self._seed, self._names = seed, names
        self._streams: dict[str, Stream] = {}

    def key(self, purpose: str) -> bytes:
        """Return the purpose's key: SHA-256 of the seed, the purpose and the names, each with its length."""
        digest = hashlib.sha256()
        for part in (self._seed, *(name.encode() for name in (purpose, *self._names))):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.digest()

    def stream(self, purpose: str) -> Stream:
        """Return the purpose's draws: the same stream in every call, so that nothing is drawn twice."""
        if purpose not in self._streams:
            self._streams[purpose] = Stream(self.key(purpose))
        return self._streams[purpose]


class Stream(random.Random):
    """Draws from a key: the bytes of SHAKE-256 over the key and a counter."""

    def __init__(self, key: bytes) -> None:
        self._key, self._counter = key, 0
        self._bytes, self._used = b"", 0
        super().__init__()

    def _take(self, count: int) -> int:
        if self._used + count > len(self._bytes):
            block = hashlib.shake_256(self._key + self._counter.to_bytes(8, "little"))
            self._bytes, self._used = block.digest(max(_BUFFER_BYTES, count)), 0
            self._counter += 1
        begin = self._used
        self._used = end = begin + count
        return int.from_bytes(self._bytes[begin:end], "little")

    def random(self) -> float:
        """Return a float in [0, 1)."""
        return (self._take(7) >> 3) * 2.0**-_FRACTION_BITS

    def getrandbits(self, k: int, /) -> int:
        """Return an integer of ``k`` random bits."""
        count = (k + 7) // 8
        return self._take(count) >> (8 * count - k)

    def seed(self, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing: all draws follow from the key. ``random.Random`` calls this when it is made."""
