"""The judge's own process of an evaluator on this machine.

The caller's process may train a model. Its threads would take the interpreter from the judge's clock. If one of them
had started a sandbox, that would end with it. So the judge has a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from multiprocessing.connection import Connection

from pytest_passbench.api.backend import EvaluatorCall, JudgeWorker
from pytest_passbench.core.errors import UserError

DONE = None
"""The message after the last report of a call."""


def main() -> None:
    """Serve calls on the connection whose descriptor is the first argument, until the caller's process ends.

    The second argument is the process id of the caller's process. The first message has the settings.
    """
    channel = Connection(int(sys.argv[1]))
    _end_with(int(sys.argv[2]))
    with contextlib.suppress(EOFError, OSError):  # the caller has hung up
        _serve_calls(channel)


def _serve_calls(channel: Connection) -> None:
    settings, thorough = channel.recv()
    try:
        engine = JudgeWorker(settings, thorough)
    except UserError as error:
        channel.send(error)
        return
    with contextlib.closing(engine):
        channel.send(DONE)
        while True:
            _serve(channel, engine, channel.recv())


def _serve(channel: Connection, engine: JudgeWorker, call: EvaluatorCall) -> None:
    try:
        engine.begin(call.seed, call.subgraphs)
        for task in call.tasks:
            for report in engine.judge(task, call.candidates):
                channel.send(report)
            channel.send(engine.machine())
    except UserError as error:
        channel.send(error)
    else:
        channel.send(DONE)


def _end_with(parent: int) -> None:
    """End this process when the caller's ends, however it ends: a thread waits for that and does nothing else.

    The kernel's signal for a parent's death would come when the *thread* ends that has started this process.
    """
    try:
        handle = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(1)
    if os.getppid() != parent:
        os._exit(1)

    def wait() -> None:
        select.select([handle], [], [])
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="end with the caller").start()
