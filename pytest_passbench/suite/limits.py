"""The limits of tasks: how large their files, graphs and inputs may be. They are checked before anything else.

The largest task of the suite has 42 KB, graphs of 35 lines, and inputs of some million elements.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import ELEMENT_BYTES, Subgraph

MAX_FILE_BYTES = 16 << 20
MAX_HEADER_BYTES = 1 << 20
MAX_SOURCE_BYTES = 8 << 20  # of a Python text
MAX_TOKENS = 1_000_000  # words and signs of a Python text
MAX_FOLDERS = 20_000  # folders and task files below a path that is searched for tasks
MAX_FOLDER_DEPTH = 32  # folders in each other
MAX_SUBGRAPHS = 10_000  # of a task

MAX_NODES = 200_000  # values of a YAML or JSON document
MAX_DEPTH = 50  # of lists and mappings in each other
MAX_PLAIN = 10_000  # characters of a YAML value without quotes, which may be a number

MAX_STATEMENTS = 20_000  # of a graph
MAX_SYNTAX_DEPTH = 100  # levels of the syntax tree of Python text: each is several calls of the interpreter
MAX_LENGTH = 1_000  # of a list that a graph makes by ``*`` or ``+``
MAX_BITS = 256  # of an integer that a graph writes down or computes from others

MAX_DIMENSIONS = 64  # torch's own limit
MAX_ELEMENTS = 1 << 40  # of a subgraph's inputs


def too_long(value: object) -> bool:
    """Return True for an integer that is longer than a graph may have."""
    return isinstance(value, int) and value.bit_length() > MAX_BITS


def shape_problem(shape: Sequence[int]) -> str | None:
    """Return what is wrong with the size of a shape, or None."""
    if len(shape) > MAX_DIMENSIONS:
        return f"{len(shape)} dimensions, more than {MAX_DIMENSIONS}"
    count = 1
    for size in shape:
        count *= size
        if size > MAX_ELEMENTS or count > MAX_ELEMENTS:
            return f"a shape of more than {MAX_ELEMENTS:,} elements"
    return None


def check_memory(subgraph: Subgraph, where: Path | None = None) -> None:
    """Raise UserError if a subgraph's inputs alone take more memory than the machine has."""
    # A model's own graph may have a dtype that no task file has.
    total_bytes = sum(math.prod(spec.shape) * ELEMENT_BYTES.get(spec.dtype, 1) for spec in subgraph.inputs)
    present = machine_bytes()
    if total_bytes > present:
        sizes = f"{total_bytes / 2**30:,.0f} GiB, and the machine has {present / 2**30:,.0f} GiB"
        what = f"the inputs of subgraph {subgraph.id} take {sizes}"
        raise UserError(what, where=where, remedy="choose smaller shapes, or a machine with more memory")


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit this process's address space to its present size plus half of the machine's memory.

    A graph that is run for its shapes may ask for any amount: torch then raises, and the process is not killed.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    most = used + machine_bytes() // 2
    if before[0] != resource.RLIM_INFINITY:
        most = min(most, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def machine_bytes() -> int:
    """Return the size of the machine's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
