"""The judge's own C++ libraries, each compiled at its first use and kept for this user.

There are two: the generator of inputs, which the judge loads, and the engine, which sandboxed processes load.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pytest_passbench.core.paths import ENGINE, user_cache
from pytest_passbench.judge.scratch import Scratch, sealed
from pytest_passbench.kernels import toolchain
from pytest_passbench.kernels.toolchain import CompileError

FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-w")
TIMEOUT_SECONDS = 120


@contextlib.contextmanager
def compiled(main: Path) -> Iterator[Path]:
    """Give the library of the C++ file ``main`` within this context: from the cache, if it is there.

    Headers in the same folder belong to the source. Raises CompileError.
    """
    compiler, cache = toolchain.compiler(), user_cache("judge")
    with contextlib.ExitStack() as stack:
        try:
            folder = toolchain.writable([cache] if cache is not None and toolchain.is_private(cache) else [])
        except CompileError:  # a temporary one will do, since the file may go once it is loaded
            folder = stack.enter_context(Scratch())
        path = folder / f"{_key(compiler, main.parent)}.so"
        if not path.is_file():
            toolchain.build([compiler, *FLAGS, str(main)], path, str(main), timeout=TIMEOUT_SECONDS)
        yield path


def _key(compiler: str, sources: Path) -> str:
    """Return a hash of everything that the compiler's output depends on: sources, flags, compiler, CPU."""
    files = sorted(path for path in sources.iterdir() if path.suffix in (".h", ".cpp"))
    parts = [part for path in files for part in (path.name, path.read_text())]
    return toolchain.key("\0".join(parts), FLAGS, compiler)


@cache
def descriptor() -> int | None:
    """Return a descriptor of the compiled engine, which stays open. Return None if it cannot be compiled here."""
    try:
        with compiled(ENGINE) as path:
            return sealed(path.read_bytes())
    except CompileError:
        return None
