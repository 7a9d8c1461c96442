"""The audit runner's call: freed memory poisoned before it, operators inside replacements noted.

It is made in the fork, before the candidate's code regains control, and the wrapper is told nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from ...rewrite.targets import replace_targets
from .load import Recorder

POISON = 0xFF  # every byte: NaN in each floating-point type, -1 or the greatest value in integers
OBSERVED_CALLS = 3
MOST_POISON = 64 << 20  # bytes at once
Call = Callable[..., Any]


def audited(call: Call, modules: Sequence[GraphModule], sizes: Sequence[int], recorder: Recorder) -> Call:
    """``call`` with poisoned memory, and with the operators of every kernel wrapper noted.

    ``sizes``: bytes of each output.
    """
    observer = Observer(recorder)
    replace_targets(modules, observer.around)

    def poisoned(*inputs: Any) -> Any:
        poison(sizes)
        return call(*inputs)

    return poisoned


def poison(sizes: Sequence[int]) -> None:
    """Let go of memory as large as the outputs that is full of NaN: what is returned unwritten then shows."""
    total = min(sum(sizes) * 2, MOST_POISON)
    wanted = [size for size in (*sizes, *sizes, total) if 0 < size <= MOST_POISON]
    held = [torch.full((size,), POISON, dtype=torch.uint8) for size in wanted]
    held.clear()


class Observer:
    """Notes the ATen operators of every thread while a kernel wrapper runs (torch's execution trace observer)."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._calls = recorder, 0

    def around(self, wrapper: Call) -> Call:
        """A callable that does what ``wrapper`` does, its operators noted in the first few calls."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls += 1
            if self._calls > OBSERVED_CALLS:
                return wrapper(*args, **kwargs)
            with self._observing():
                return wrapper(*args, **kwargs)

        return call

    @contextlib.contextmanager
    def _observing(self) -> Iterator[None]:
        profiler = torch._C._profiler
        path = Path(f"/tmp/.{os.getpid()}-{self._calls}")
        with _quiet():
            profiler._add_execution_trace_observer(str(path))
            profiler._enable_execution_trace_observer()
        try:
            yield
        finally:
            with _quiet():
                profiler._disable_execution_trace_observer()
                profiler._remove_execution_trace_observer()
            self._note(path)

    def _note(self, path: Path) -> None:
        nodes = json.loads(path.read_bytes())["nodes"]
        path.unlink()
        names = {str(node.get("name", "")) for node in nodes}
        found = {name for name in names if "::" in name and not name.startswith("[")}
        self._recorder.operators = sorted(found | set(self._recorder.operators))[:200]
        self._recorder.write()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the observer's own log lines: what a candidate prints is shown to its author."""
    kept, nothing = os.dup(2), os.open("/dev/null", os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
