"""The run's secret: drawn anew for every run, committed to in the header, revealed at the end.

Each purpose has a key of its own: nobody can tell one purpose's draws from another's, nor later draws from earlier
ones.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from typing import Any, NoReturn

SEED_BYTES = 32
_BUFFER = 1024  # bytes of a stream that are made at a time
_FRACTION = 53  # bits of a float


def draw() -> bytes:
    """A fresh secret."""
    return secrets.token_bytes(SEED_BYTES)


def commitment(seed: bytes) -> str:
    """What the header prints: the SHA-256 of the secret, in hex."""
    return hashlib.sha256(b"passbench seed:" + seed).hexdigest()


class Secret:
    """The part of the run's secret for one matter (a subgraph of a task and a candidate), by purpose."""

    def __init__(self, seed: bytes, *names: str) -> None:
        self._seed, self._names = seed, names
        self._streams: dict[str, Stream] = {}

    def key(self, purpose: str) -> bytes:
        """The purpose's key: SHA-256 of the seed, the purpose and the names, each with its length."""
        digest = hashlib.sha256()
        for part in (self._seed, *(name.encode() for name in (purpose, *self._names))):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.digest()

    def stream(self, purpose: str) -> Stream:
        """The purpose's draws. Whoever asks again goes on where the others are: nothing is drawn twice."""
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
        """An integer of the next ``count`` bytes."""
        if self._used + count > len(self._bytes):
            self._refill(count)
        begin = self._used
        self._used = end = begin + count
        return int.from_bytes(self._bytes[begin:end], "little")

    def _refill(self, count: int) -> None:
        block = hashlib.shake_256(self._key + self._counter.to_bytes(8, "little")).digest(max(_BUFFER, count))
        self._counter += 1
        self._bytes, self._used = block, 0

    def random(self) -> float:
        """A float in [0, 1)."""
        return (self._take(7) >> 3) * 2.0**-_FRACTION

    def getrandbits(self, k: int, /) -> int:
        """An integer of ``k`` random bits."""
        if k < 0:
            raise ValueError("the number of bits must not be negative")
        count = (k + 7) // 8
        return self._take(count) >> (8 * count - k)

    def seed(self, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing: the key says everything. ``random.Random`` calls this when it is made."""

    def getstate(self) -> NoReturn:
        """A stream has no state to hand out."""
        raise NotImplementedError("a stream of the judge's is drawn from, not copied")

    def setstate(self, state: Any) -> NoReturn:
        """A stream has no state to take over."""
        raise NotImplementedError("a stream of the judge's is drawn from, not copied")
