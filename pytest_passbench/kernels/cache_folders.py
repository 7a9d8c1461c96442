"""The folders in which compiled kernels are kept."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from pytest_passbench.core.cache import user_cache
from pytest_passbench.kernels.errors import CompileError

CACHE_VARIABLE = "PASSBENCH_KERNEL_CACHE"


def private() -> list[Path]:
    """Return the folders: $PASSBENCH_KERNEL_CACHE or else the user's cache, then one in the temporary folder.

    A sandbox may have the first read-only, or no home at all. A folder that others can write is left out, since
    libraries in it are loaded. A folder named by the variable is not checked: it is its user's choice.
    """
    temporary = Path(tempfile.gettempdir()) / f"passbench-kernels-{os.getuid()}"
    if named := os.environ.get(CACHE_VARIABLE):
        return [Path(named), *filter(is_private, [temporary])]
    cache = user_cache("kernels")
    return [folder for folder in (cache, temporary) if folder is not None and is_private(folder)]


def is_private(folder: Path) -> bool:
    """Return True if only this user can write to a folder, or if it does not exist yet."""
    try:
        state = folder.lstat()
    except OSError:
        return True
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


def writable(folders: list[Path]) -> Path:
    """Return the first folder that can be written; it is made if it does not exist. Raises :class:`CompileError`."""
    problems = []
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            problems.append(str(error))
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
        problems.append(f"{folder} is not writable")
    what = f"no folder for compiled kernels: {'; '.join(problems) or 'others can write to all of them'}"
    raise CompileError(what, where=f"${CACHE_VARIABLE}", remedy="name a folder that can be written")
