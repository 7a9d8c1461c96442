"""What a C++ kernel costs before it computes anything: building, loading from the cache, launching.

Run: python benchmarks/kernel_launch.py   (times of the best of several repeats, on an otherwise idle core)
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import timeit
from collections.abc import Callable
from functools import partial

import torch

from pytest_passbench.core.paths import ENGINE
from pytest_passbench.core.task import TensorSpec
from pytest_passbench.judge.inputs.pages import Pages, plan_layout
from pytest_passbench.judge.native_library import compiled
from pytest_passbench.kernels import cpp
from pytest_passbench.plans.launch import Allocate, Argument, Launch, LaunchPlan, Operand, contiguous
from pytest_passbench.runner.engine import Engine
from pytest_passbench.runner.native_graph import native_graph
from pytest_passbench.runner.output_tables import OutputTables
from pytest_passbench.runner.pages import MappedPages
from pytest_passbench.runner.replay import Replayed, cpp_function, replay

EMPTY = 'extern "C" void run(const float* x, const float* y, float* out, long n, double eps) {}\n'
WITH_HEADER = """#include "passbench.h"
template <class T> void run(const T* x, const T* y, T* out, int64_t n) {
  pb::map(n, out, [](pb::vec a, pb::vec b) { return pb::gelu(pb::round<T>(a + b)); }, x, y);
}
extern "C" void add_gelu(pb::in x, pb::in y, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, y, out, n); });
}
"""


def _best(call: Callable[[], object], number: int, repeat: int = 7) -> float:
    return min(timeit.repeat(call, number=number, repeat=repeat)) / number


def _load(source: str) -> cpp.CppLibrary:
    cpp.load.cache_clear()
    return cpp.load(source).build()


def _plan(launches: int, engine: Engine | None) -> Replayed:
    """Return the plan of so many launches of the empty kernel, with one allocation."""
    form = contiguous("float32", (16,))
    x, out = Operand("argument", 0, 0, form), Operand("buffer", 0, 0, form)
    steps = Allocate(form), *[Launch(0, (x, x, out, 16, 1e-5))] * launches
    library = ctypes.CDLL(str(cpp.CppLibrary(EMPTY, cpp.BASE_FLAGS).build().path))
    kernel = cpp_function(library, "run", ["pointer", "pointer", "pointer", "int64", "float64"])
    plan = LaunchPlan((Argument(form),), (), (None,), steps, (out,))  # type: ignore[arg-type]
    return replay(plan, [kernel], "cpu", False, [], engine=engine)


def _block(replayed: Replayed, engine: Engine) -> float:
    """Return the seconds of a call in a block that the engine makes."""
    pages = Pages(plan_layout([TensorSpec("x", (16,), "float32")]))
    graph = torch.fx.Graph()
    graph.output((graph.call_function(replayed.call, (graph.placeholder("x"),)),))
    block, calls = native_graph(graph, [replayed], engine, pages.layout), pages.layout.slots
    mapped, tables = MappedPages(os.dup(pages.fd), pages.layout), OutputTables(calls, 1)
    block.place(mapped.address, tables)

    return _best(partial(block.run, calls), 100, 30) / calls


def _plans() -> None:
    """Print what the harness spends on a call and on a launch: by generated Python, and by the engine."""
    x = torch.randn(16)
    with compiled(ENGINE) as path:
        engine = Engine(str(path))
    for name, maker in (("Python", None), ("the engine", engine)):
        single, many = (_best(partial(_plan(count, maker).call, x), 20_000, 15) for count in (1, 11))
        print(f"plan by {name}: {(many - single) * 1e5:.2f} us a launch, {single * 1e6:.2f} us a call of one launch")
    single, many = (_block(_plan(count, engine), engine) for count in (1, 11))
    print(f"block by the engine: {(many - single) * 1e5:.3f} us a launch, {single * 1e6:.3f} us a call of one launch")


def main() -> None:
    """Print one line per cost."""
    torch.set_num_threads(1)
    x, out = torch.randn(16), torch.empty(16)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[cpp.CACHE_VARIABLE] = folder
        for name, source in (("empty source", EMPTY), ("passbench.h, three dtypes", WITH_HEADER)):
            print(f"build, {name}: {timeit.timeit(partial(_load, source), number=1) * 1e3:.0f} ms")
        print(f"load from the cache: {_best(lambda: _load(EMPTY), 100) * 1e3:.2f} ms")
        run = cpp.load(EMPTY).run
        print(f"launch, 3 tensors, 2 numbers: {_best(lambda: run(x, x, out, 16, 1e-5), 100_000) * 1e6:.2f} us")
        at = x.data_ptr()
        print(f"launch, 3 addresses, 2 numbers: {_best(lambda: run(at, at, at, 16, 1e-5), 100_000) * 1e6:.2f} us")
        _plans()
        print(f"for comparison, x + x of 16 elements: {_best(lambda: x + x, 100_000) * 1e6:.2f} us")


if __name__ == "__main__":
    main()
