"""The command line of a run, stored for its user, so that ``--passbench-resume`` alone goes on with the run."""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import read_text, write_text
from pytest_passbench.core.jsontext import parse
from pytest_passbench.core.options import OPTIONS
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.typed import Data
from pytest_passbench.plugin import options
from pytest_passbench.run import journal

MAX_BYTES = 1 << 20
STANDALONE = ("resume", "report_dir", "budget")
"""Options that say which run is resumed and how long it may take, but not what it judges."""
_ARGUMENTS = pytest.StashKey[tuple[str, ...]]()


@dataclass(frozen=True)
class CommandLine(Data):
    """The arguments of a run of pytest, and the directory in which it was begun."""

    directory: str
    arguments: tuple[str, ...]


def complete(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Put the command line of an interrupted run into ``args``, if these say no more than which run to resume.

    It comes before the present arguments, so these win. A worker of pytest-xdist has its options from the controller.

    Raises pytest.UsageError if no run was interrupted, or if its command line cannot be read.
    """
    arguments = config.invocation_params.args
    namespace = parser.parse_known_args(arguments, namespace=copy.copy(config.option))
    if not _is_standalone(namespace) or "no:terminal" in namespace.plugins:
        return
    base = config.invocation_params.dir
    try:
        folder = journal.interrupted_folder(namespace.passbench_resume, options.report_dir(config, namespace), base)
        earlier = _read(folder, base)
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
    place = len(args) - len(arguments)  # behind those of the ini file and the environment
    args[place:place] = earlier
    config.stash[_ARGUMENTS] = (*earlier, *arguments)
    config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(config.option))


def _is_standalone(namespace: argparse.Namespace) -> bool:
    """Return True if the command line resumes a run and has no path and no option that decides what is judged."""
    deciding = [option.dest for option in OPTIONS if option.key not in STANDALONE and not option.ini_only]
    values = (getattr(namespace, name) for name in (*deciding, *options.FLAGS) if name != "passbench")
    return (
        namespace.passbench_resume is not None
        and not namespace.file_or_dir
        and all(value is None for value in values)
    )


def _read(folder: Path, directory: Path) -> tuple[str, ...]:
    """Return the arguments of the run in a folder, which was begun in ``directory``."""
    journal.check_open(folder)
    path, remedy = journal.command_file(folder), "give the run's whole command with --passbench-resume"
    if path is None or not path.exists():
        raise UserError("was begun by a command that is not stored for this user", where=folder, remedy=remedy)
    try:
        command = CommandLine.from_data(parse(read_text(path, MAX_BYTES), path))
    except Rejected as error:
        raise UserError(f"has another form: {error}", where=path, remedy=remedy) from None
    except UserError as error:
        raise UserError(error.what, where=path, remedy=remedy) from None
    if Path(command.directory) != directory:
        raise UserError(f"was begun in {command.directory}", where=folder, remedy="go on in that directory")
    return command.arguments


def store(config: pytest.Config, folder: Path) -> None:
    """Store the command line of the run in ``folder``, unless the user's cache cannot be written to."""
    path = journal.command_file(folder)
    if path is None:
        return
    arguments = config.stash.get(_ARGUMENTS, config.invocation_params.args)
    command = CommandLine(str(config.invocation_params.dir), tuple(map(str, arguments)))
    with contextlib.suppress(UserError):
        write_text(path, json.dumps(command.to_data(), indent=1) + "\n")
