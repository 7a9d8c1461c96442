"""The place of this user's caches."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path | None:
    """Return this user's cache folder of a name, which need not exist; None if the user has no home.

    It lies in ``$XDG_CACHE_HOME``, or else in ``~/.cache``.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or (f"{os.environ['HOME']}/.cache" if os.environ.get("HOME") else None)
    return Path(caches) / "passbench" / name if caches is not None else None
