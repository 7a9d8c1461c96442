"""The identity of this code. It distinguishes its results and cached files from those of another version."""

from __future__ import annotations

import functools
import hashlib

from pytest_passbench.core.paths import PACKAGE


@functools.cache
def harness_hash() -> str:
    """Return the SHA-256 (hex) of the names and contents of this package's Python and C++ files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".cpp", ".h")):
        for part in (path.relative_to(PACKAGE).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
