"""The engine's library for sandboxed processes, as sealed memory."""

from __future__ import annotations

from functools import cache

from pytest_passbench.core.paths import ENGINE
from pytest_passbench.judge.native_library import NoLibrary, compiled
from pytest_passbench.judge.sealing import sealed


@cache
def descriptor() -> int | None:
    """Return a descriptor of the compiled engine, which stays open. Return None if it cannot be compiled here."""
    try:
        with compiled(ENGINE) as path:
            return sealed(path.read_bytes())
    except NoLibrary:
        return None
