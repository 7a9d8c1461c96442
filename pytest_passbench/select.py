"""Which tasks a run is about, when pytest itself was given no paths to walk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.settings import Settings

if TYPE_CHECKING:
    from pytest_passbench.suite.find import TaskRef

INSTALLED = "tasks"
"""What node ids call the folder of the installed tasks, wherever that is."""


@dataclass(frozen=True)
class Chosen:
    """A task to collect: its node id's path, and which of its items (None: all of them)."""

    ref: TaskRef
    node: str
    item: str | None = None


@dataclass(frozen=True)
class Selection:
    """The tasks found by this plugin. ``given``: pytest walks the paths of the command line instead."""

    chosen: tuple[Chosen, ...] = ()
    total: int = 0
    given: bool = False
    costs: dict[str, int] = field(default_factory=dict)

    def describe(self, suite: str) -> str:
        """The selection in words, for the header."""
        if self.given:
            return "suite: the paths given" + ("" if suite == "all" else f", those tagged {suite}")
        hint = "; --passbench-suite=full for all" if suite == "lite" else ""
        return f"suite: {suite} ({len(self.chosen)} of {self.total} tasks{hint})"


def select(settings: Settings, rootpath: Path, args: Sequence[str], invocation: Path) -> Selection:
    """Find the tasks. ``args`` are the paths on the command line, if any.

    Node ids of installed tasks (``tasks/...``) are understood though they are no paths from here. Raises
    UserError where a path of ``--passbench-tasks`` has no tasks.
    """
    if args and not _are_installed_ids(args, invocation):
        return Selection(given=True)
    from pytest_passbench.suite import find

    bases = [find.installed_tasks()] if args or not settings.tasks else list(settings.tasks)
    refs = [(ref, base) for base in bases for ref in find.discover(base)]
    found = [Chosen(ref, node_path(ref.path, base, rootpath)) for ref, base in refs]
    wanted = _matching(found, args) if args else _tagged(found, settings.suite)
    costs = {chosen.node: chosen.ref.header.subgraphs for chosen in wanted}
    return Selection(tuple(wanted), len(found), costs=costs)


def _tagged(found: Sequence[Chosen], suite: str) -> list[Chosen]:
    from pytest_passbench.suite import find

    kept = {id(ref) for ref in find.select([chosen.ref for chosen in found], suite)}
    return [chosen for chosen in found if id(chosen.ref) in kept]


def node_path(path: Path, base: Path, rootpath: Path) -> str:
    """What node ids call ``path``, found through ``base``: the same wherever the package is installed."""
    from pytest_passbench.suite import find

    installed = find.installed_tasks()
    if path.is_relative_to(installed):
        return (Path(INSTALLED) / path.relative_to(installed)).as_posix()
    if path.is_relative_to(rootpath):
        return path.relative_to(rootpath).as_posix()
    relative = Path(os.path.relpath(path, base.parent))
    return relative.as_posix()


def _are_installed_ids(args: Iterable[str], invocation: Path) -> bool:
    paths = [arg.partition("::")[0] for arg in args]
    return all(Path(path).parts[:1] == (INSTALLED,) and not (invocation / path).exists() for path in paths)


def _matching(found: Sequence[Chosen], args: Sequence[str]) -> list[Chosen]:
    chosen = []
    for arg in args:
        path, _, item = arg.partition("::")
        prefix = Path(path)
        hits = [task for task in found if Path(task.node).is_relative_to(prefix)]
        if not hits:
            from pytest_passbench.errors import UserError

            raise UserError("no such path, and no such installed task", where=arg,
                            remedy="`passbench tasks list` names them")  # fmt: skip
        chosen += [Chosen(hit.ref, hit.node, item or None) for hit in hits]
    return chosen
