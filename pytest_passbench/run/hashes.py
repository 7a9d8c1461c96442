"""What a run was made with, as hashes: the tasks' contents and the harness's own code. Imports no torch."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from pytest_passbench.core.task import Task

_PACKAGE = Path(__file__).parent


def of_task(task: Task) -> str:
    """SHA-256 (hex) of a task's contents in their canonical spelling, wherever it was read from."""
    from pytest_passbench.suite.taskfile import dump_task

    return hashlib.sha256(dump_task(task).encode()).hexdigest()


@functools.cache
def of_harness() -> str:
    """SHA-256 (hex) over the names and contents of this package's Python and C++ files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in _PACKAGE.rglob("*") if path.suffix in (".py", ".cpp", ".h")):
        for part in (path.relative_to(_PACKAGE).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
