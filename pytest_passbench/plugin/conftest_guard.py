"""The guard that keeps a candidate's Python out of the judge's process.

pytest imports ``conftest.py`` files and, through ini files, other modules of the folders it is pointed at.
A candidate's folder is kept out of all of that, and a run from inside one is refused: its ini file, or with
``python -m pytest`` any of its modules, would be loaded before this plugin could prevent it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_SHIELDED = pytest.StashKey[bool]()


def inside(path: Path, folders: Sequence[Path]) -> Path | None:
    """Return the folder, out of ``folders``, that ``path`` is or lies in; None if there is none."""
    resolved = path.resolve()
    return next((folder for folder in folders if resolved == folder or folder in resolved.parents), None)


def shield(config: pytest.Config, folders: Sequence[Path]) -> None:
    """Refuse a run from inside a candidate, and keep every candidate's ``conftest.py`` from being imported.

    Called before pytest looks for the first of them. Raises pytest.UsageError.
    """
    _refuse_from_inside(config, folders)
    manager: Any = config.pluginmanager
    considered = manager._is_in_confcutdir

    def consider(path: Path) -> bool:
        return inside(path, folders) is None and bool(considered(path))

    # pytest has no public switch for single folders; it asks this predicate about each conftest.py.
    manager._is_in_confcutdir = consider
    config.stash[_SHIELDED] = True


def check_shielded(config: pytest.Config, folders: Sequence[Path]) -> None:
    """Shield a run whose plugin was loaded late, by a ``conftest.py``.

    Raises pytest.UsageError if something of a candidate was imported by then.
    """
    if config.stash.get(_SHIELDED, False):
        return
    shield(config, folders)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and inside(Path(file), folders):
            raise pytest.UsageError(f"{file} is a candidate's and was imported by pytest, which must not be: "
                                    "give no path inside a candidate, or load the plugin with "
                                    "-p pytest_passbench.plugin")  # fmt: skip


def _refuse_from_inside(config: pytest.Config, folders: Sequence[Path]) -> None:
    places = {"the working folder": config.invocation_params.dir, "pytest's rootdir": config.rootpath}
    if config.inipath is not None:
        places["pytest's configuration file"] = config.inipath
    for what, path in places.items():
        if inside(path, folders):
            raise pytest.UsageError(f"{what}, {path}, is inside the candidate, whose files would be loaded "
                                    "into the judge (run pytest from outside of it)")  # fmt: skip
    for entry in sys.path:
        if entry and inside(Path(entry), folders):
            raise pytest.UsageError(f"{entry} is on sys.path (PYTHONPATH?) and inside the candidate: its "
                                    "modules could be imported by the judge (take it off)")  # fmt: skip
