"""The folder in which readers find a candidate's files. One sandbox serves several candidates in turn."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path


def show(archive: int, folder: Path) -> bool:
    """Remove all that the readers of the candidate before have written, and unpack another candidate's files.

    ``archive`` is the descriptor of a tar file, which is closed. Return False if something cannot be removed or
    written. The sandbox is of no further use then.
    """
    try:
        folder.mkdir(exist_ok=True)
        shared = [Path("/dev/shm")] if os.getpid() == 1 else []  # behind weak walls it is everybody's
        for place in (folder, Path(os.environ["TMPDIR"]), *shared):
            _empty(place)
        folder.mkdir(exist_ok=True)  # behind weak walls it is within the second one
        with open(archive, "rb") as file, tarfile.open(fileobj=file, mode="r:") as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 to 3.11.3 has none
            packed.extractall(folder)
    except (OSError, RecursionError):
        return False
    return True


def _empty(folder: Path) -> bool:
    """Remove all that is in a folder, except what is mounted there. Return True if nothing is left."""
    left = False
    for entry in list(folder.iterdir()):
        if entry.is_symlink() or not entry.is_dir():
            entry.unlink()
        elif not entry.is_mount() and _empty(entry):
            entry.rmdir()
        else:  # this package or Python, whose folders may lie below /tmp
            left = True
    return not left
