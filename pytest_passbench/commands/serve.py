"""``passbench serve``: environments for models that write passes, over HTTP."""

from __future__ import annotations

import argparse
import re
import signal
from pathlib import Path

from pytest_passbench.agents.http_server import EnvironmentServer
from pytest_passbench.agents.service import Service
from pytest_passbench.agents.shared_judge import SharedJudge
from pytest_passbench.api.arguments import TaskShelf
from pytest_passbench.api.evaluator import Evaluator
from pytest_passbench.core.checks import whole
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import read_text
from pytest_passbench.core.plurals import counted

HELP = """Serve environments over HTTP: clients reset a task, call tools (write_file, new_pass, explain, judge, ...)
and get feedback and a reward. One warm judge serves all, one judging after the other. Every request needs the token
of the file. It is sent in clear: across machines, use a tunnel. Ctrl+C ends the server."""

MAX_TOKEN_BYTES, MIN_TOKEN = 4096, 16


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--port", type=whole(0, 65535), required=True, metavar="P", help="0: any that is free")
    parser.add_argument("--token-file", type=Path, required=True, metavar="F",
                        help=f"a file with the token: {MIN_TOKEN} letters, digits or signs at least")  # fmt: skip
    parser.add_argument("--tasks", action="append", metavar="TASKS", help="a suite, a task's id or file, or a folder "
                        "of tasks; may be given again (default: lite)")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS",
                        help="judge on the Ray cluster at ADDRESS, or that of RAY_ADDRESS")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl+C or SIGTERM, and return the exit code."""
    token = _token(args.token_file)
    tasks = {task.id: str(task.path) for task in TaskShelf().named(args.tasks or ["lite"])}
    backend = "local" if args.ray is None else "ray"
    with (
        SharedJudge(Evaluator(pipeline="direct", backend=backend, address=args.ray or None)) as judge,
        EnvironmentServer(Service(judge, tasks), token, args.host, args.port) as server,
    ):
        try:
            for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores the first one
                signal.signal(number, signal.default_int_handler)
            print(f"serving {counted(len(tasks), 'task')} on http://{args.host}:{server.server_port}", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print("ending: a judging that is under way ends with its next subgraph", flush=True)
    return 0


def _token(path: Path) -> str:
    """Return the token of a file. Raises UserError if it has none that a header can carry."""
    token = read_text(path, MAX_TOKEN_BYTES).strip()
    if not re.fullmatch(rf"[!-~]{{{MIN_TOKEN},}}", token):
        remedy = "openssl rand -hex 32 prints one"
        raise UserError(
            f"is no token: {MIN_TOKEN} visible characters or more, without spaces", where=path, remedy=remedy
        )
    return token
