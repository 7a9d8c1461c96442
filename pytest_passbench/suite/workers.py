"""Work on many tasks, in this process or in several of its own."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from pytest_passbench.core.errors import UserError
from pytest_passbench.suite import find

MIN_TASKS = 100
"""The least tasks for each process by default: with fewer, its start takes longer than its checks."""

Member = tuple[Path, find.Kind]
Item = TypeVar("Item")
Result = TypeVar("Result")


def default_processes(tasks: int) -> int:
    """Return how many processes check this many tasks: one for each usable core at most."""
    return max(1, min(len(os.sched_getaffinity(0)), tasks // MIN_TASKS))


def in_order(
    work: Callable[[Item], Result], items: Sequence[Item], processes: int, needs: str, chunk: int = 1
) -> Iterator[Result]:
    """Yield the result of each item, in order. ``processes`` processes work at a time, and get ``chunk`` items each.

    ``needs`` is the module that the work takes longest to import. Raises UserError if a process ends by itself.
    """
    if processes == 1:
        yield from map(work, items)
        return
    context = mp.get_context("forkserver")  # it imports torch once, for all processes
    context.set_forkserver_preload(["torch._dynamo", needs])
    pool = ProcessPoolExecutor(processes, context, _begin)
    try:
        yield from pool.map(work, items, chunksize=chunk)
    except BrokenProcessPool:
        remedy = "--processes=1 shows the task at which it ends"
        raise UserError("a process that checked tasks ended by itself", remedy=remedy) from None
    finally:
        pool.shutdown(cancel_futures=True)


def problems_of(member: Member) -> list[UserError]:
    """Return the problems of the task at a path of a kind. If it cannot be read, that is the only problem."""
    from pytest_passbench.suite.validate import problems

    try:
        return list(problems(find.read(*member)))
    except UserError as error:
        return [error]


def _begin() -> None:
    """Prepare a process: one thread, and Ctrl+C is left to the process that started it."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
