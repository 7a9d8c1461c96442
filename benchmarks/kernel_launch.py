"""What a C++ kernel costs before it computes anything: building, loading from the cache, launching.

Run: python benchmarks/kernel_launch.py   (times of the best of several repeats, on an otherwise idle core)
"""

from __future__ import annotations

import os
import tempfile
import timeit
from collections.abc import Callable
from functools import partial

import torch

from pytest_passbench.kernels import cpp

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


def _load(source: str) -> cpp.Library:
    cpp.load.cache_clear()
    return cpp.load(source).build()


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
        print(f"for comparison, x + x of 16 elements: {_best(lambda: x + x, 100_000) * 1e6:.2f} us")


if __name__ == "__main__":
    main()
