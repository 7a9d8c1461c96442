"""Node ids of task items: built and taken apart here alone.

A node id is ``PATH::TASK[CANDIDATE]``. PATH is relative to the root folder, or begins with ``tasks`` for an installed
task: it is the same wherever the package is installed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pytest_passbench.core.paths import INSTALLED
from pytest_passbench.suite import find


class NodeId(NamedTuple):
    """The parts of a task item's node id."""

    path: str
    task: str
    candidate: str

    @property
    def item(self) -> str:
        """The name of the item: the node id without its path."""
        return f"{self.task}[{self.candidate}]"

    def __str__(self) -> str:
        return f"{self.path}::{self.item}"


def parse(text: str) -> NodeId:
    """Return the parts of a node id that :class:`NodeId` made. A part that ``text`` lacks is empty."""
    path, item = split(text)
    task, _, candidate = item.partition("[")
    return NodeId(path, task, candidate.removesuffix("]"))


def split(text: str) -> tuple[str, str]:
    """Return the path and the item of a node id, or of an argument of the command line that may have no item."""
    path, _, item = text.partition("::")
    return path, item


def node_path(path: Path, base: Path, rootpath: Path) -> str:
    """Return the path of a task file in node ids. ``base`` is the path through which the file was found."""
    installed = find.installed_tasks()
    if path.is_relative_to(installed):
        return (Path(INSTALLED) / path.relative_to(installed)).as_posix()
    if path.is_relative_to(rootpath):
        return path.relative_to(rootpath).as_posix()
    return Path(os.path.relpath(path, base.parent)).as_posix()
