"""The console script ``passbench``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line, printable

COMMANDS = (
    "run",
    "try",
    "tasks",
    "new",
    "explain",
    "show",
    "compare",
    "board",
    "profile",
    "merge",
    "verify",
    "doctor",
    "forge",
)  # fmt: skip
"""The modules of :mod:`pytest_passbench.commands`, in the order of the help.

Each has ``add(subparsers)``, which sets ``run`` as its parser's default. Heavy modules are imported in ``run`` only.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code: 1 if the user's input is at fault, 2 for wrong usage.

    After Ctrl+C it is 130, as a shell says.
    """
    args = parser().parse_args(argv)
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"passbench: error: {printable(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("passbench: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reading program (head, less) has ended, which is not an error. Python must not flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _CommandParser(argparse.ArgumentParser):
    """A parser whose errors are short and inert, whatever words they quote. Subcommands get the same."""

    def error(self, message: str) -> NoReturn:
        super().error(line(message, 500))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with every subcommand."""
    top = _CommandParser(prog="passbench", description="Judge tensor-compiler passes.")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"pytest_passbench.commands.{name}").add(subparsers)
    return top
