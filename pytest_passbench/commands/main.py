"""The console script ``passbench``."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line, printable

COMMANDS = {
    "run": "judge candidates, on one machine or many",
    "try": "judge a whole model with a candidate's passes",
    "tasks": "list, show, validate or check tasks",
    "new": "write a first pass for a task",
    "explain": "show what passes match, what not, and what is refused",
    "show": "print the tables of a stored run again",
    "compare": "show what changed between two results files",
    "board": "compare the candidates of several runs",
    "profile": "show how TorchInductor fares beside eager",
    "merge": "make one results file of several shards",
    "verify": "check a results file, and judge some of it anew",
    "doctor": "find what will hurt timings on this machine",
    "forge": "make tasks from models",
    "dataset": "a data set of graphs",
    "agent": "have a model write passes, and judge them",
    "trajectories": "write what models did, to train from",
    "serve": "serve environments for models over HTTP",
}
"""The modules of :mod:`pytest_passbench.commands`, in the order of the help, and the help's text on each.

Each has its ``HELP``, ``add(parser)`` for its arguments, and ``run(args)``. Only the one that is called is imported.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code: 1 if the user's input is at fault, 2 for wrong usage.

    After Ctrl+C the exit code is 130, as in a shell.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        args = _parsed(arguments)
        if sys.stdout is None:
            return _failed("standard output is closed")
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except UserError as error:
        return _failed(printable(str(error)))
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and "failed to map segment" not in str(error):
            raise
        return _failed("there is not enough memory for this (`ulimit -v` shows the limit of a process)")
    except KeyboardInterrupt:
        print("passbench: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        _leave_output()  # the reading program (head, less) has ended, which is not an error
        return 0
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT:
            raise
        _leave_output()
        return _failed(f"standard output cannot be written: {error.strerror}")


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    top = parser(arguments)
    for argument in arguments:
        if argument.startswith("--") and argument.endswith("=--"):  # argparse makes an empty list of it
            top.error(f"argument {argument.removesuffix('=--')}: '--' is no value")
    return top.parse_args(arguments)


def _failed(message: str) -> int:
    print(f"passbench: error: {message}", file=sys.stderr)
    return 1


def _leave_output() -> None:
    """Send standard output to /dev/null: Python would flush to it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


#: Errors of writing to standard output. An error about another file has the file's name.
_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class _CommandParser(argparse.ArgumentParser):
    """A parser whose errors are short and inert, whatever words they quote. Subcommands get the same.

    Options cannot be shortened: once more options exist, a shortened one could mean another.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        super().error(line(message, 500))


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a command line. Only the module of the subcommand that it names is imported."""
    top = _CommandParser(prog="passbench", description="Judge tensor-compiler passes.")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    command = next((word for word in arguments if not word.startswith("-")), "")
    for name, text in COMMANDS.items():
        sub = subparsers.add_parser(name, help=text)
        if name == command:
            module = import_module(f"pytest_passbench.commands.{name}")
            sub.description = module.HELP
            sub.set_defaults(run=module.run)
            module.add(sub)
    return top
