"""The places on disk of the package and of this user's caches, and the rooms that the untrusted side may see.

Only the rooms that are named here are mounted into a sandbox: a new one is hidden from candidates.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
IMPORTED_FROM = PACKAGE.parent
"""The folder that has to be on ``sys.path`` for ``import pytest_passbench``."""

ENGINE = PACKAGE / "runner" / "native" / "engine.cpp"
"""The source of the engine, which executes launch plans in measured processes. The judge compiles it."""

INSTALLED = "tasks"
"""The name of the installed tasks' folder in the paths that pytest prints, wherever that folder is."""

_UNTRUSTED = (
    "__init__.py", "protocol.py", "compiling", "core", "fusion", "kernels", "plans", "reader", "rewrite", "runner",
    "suite", "walls",
)  # fmt: skip


def visible() -> list[Path]:
    """Return the files and folders of the package that processes in a sandbox import from."""
    return [PACKAGE / name for name in _UNTRUSTED]


def user_cache(name: str) -> Path | None:
    """Return this user's cache folder of a name, which need not exist; None if the user has no home.

    It lies in ``$XDG_CACHE_HOME``, or else in ``~/.cache``.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or (f"{os.environ['HOME']}/.cache" if os.environ.get("HOME") else None)
    return Path(caches) / "passbench" / name if caches is not None else None
