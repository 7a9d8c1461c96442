"""Rows added into the rows that an index names: the aggregation of messages in graph networks."""

import math

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include <string.h>
#include "passbench.h"
template <class T> void run(const T* rows, const int64_t* index, T* out, float* sums, int64_t count, int64_t width,
                            int64_t n) {
  memset(sums, 0, n * width * sizeof(float));
  for (int64_t row = 0; row < count; row++) {
    if (index[row] < 0 || index[row] >= n) continue;
    float* sum = sums + index[row] * width;
    const T* x = rows + row * width;
    int64_t i = 0;
    for (; i + pb::L <= width; i += pb::L) pb::store(sum + i, pb::load(sum + i) + pb::load(x + i));
    int64_t rest = width - i;
    if (rest) pb::store(sum + i, pb::load(sum + i, rest) + pb::load(x + i, rest), rest);
  }
  if ((void*)out != (void*)sums) pb::map(n * width, out, [](pb::vec sum) { return sum; }, sums);
}
extern "C" void scatter_rows(pb::in rows, const int64_t* index, pb::out out, pb::out sums, int64_t count,
                             int64_t width, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(rows, index, out, sums, count, width, n); });
}
""")
MANY = 32768
"""From so many elements on, eager sums halves in float32. It rounds each sum of fewer."""
ADDS = ("scatter_add", "scatter_add_")


def name(node):
    return getattr(node.target, "__name__", node.target)


def adds_rows(node):
    """Return True for a call that adds whole rows to zeros, by an index that is expanded along them."""
    if name(node) not in ADDS or len(node.args) != 4 or name(node.args[0]) != "new_zeros":
        return False
    zeros, dim, index, rows = node.args
    sums, places, values = (value.meta["val"] for value in (zeros, index, rows))
    along = zip(places.shape[1:], places.stride()[1:], strict=True)
    return (
        dim == 0
        and sums.dim() > 1
        and all(size == 1 or stride == 0 for size, stride in along)
        and places.shape == values.shape
        and sums.shape[1:] == values.shape[1:]
        and sums.dtype == values.dtype
        and values.is_contiguous()
        and (values.dtype == torch.float32 or values.numel() >= MANY)
        and set(zeros.users) <= {node}
    )


def supported(node):
    return adds_rows(node) or (name(node) == "new_zeros" and any(map(adds_rows, node.users)))


def scatter_rows(region, *values):
    """Return the sums of a region, which is a call with its zeros."""
    placeholders = [node for node in region.graph.nodes if node.op == "placeholder"]
    tensors = dict(zip(placeholders, values, strict=True))
    calls = [node for node in region.graph.nodes if name(node) in ADDS]
    if len(calls) != 1:
        raise NotImplementedError("more than one call")
    zeros, _, index, rows = calls[0].args
    index, rows = tensors[index], tensors[rows]
    while index.dim() > 1:
        index = index.select(-1, 0)
    out = torch.empty(zeros.meta["val"].shape, dtype=rows.dtype)
    sums = out if out.dtype == torch.float32 else torch.empty(out.shape, dtype=torch.float32)
    count, width = rows.shape[0], math.prod(rows.shape[1:])
    lib.scatter_rows(rows, index, out, sums, count, width, out.shape[0], rows.dtype)
    return (out,)


def replacement_func():
    return scatter_rows
