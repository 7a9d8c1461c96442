"""Fused elementwise chains: a formula in C++ becomes a kernel wrapper for every dtype, with broadcasting.

A formula is the body of a function of `pb::vec`s a, b, c, ... that ends in `return`. `R(...)` stands where eager
stores a tensor between two operators, and rounds as that store does.
"""

import ctypes

import torch

from pytest_passbench.kernels import cpp

from .layout import layout

SOURCE = """
#include "passbench.h"
using namespace pb;
template <class T> struct Formula {
  static vec R(vec x) { return round<T>(x); }
  static vec f(%(vecs)s) { %(formula)s }
};
template <class T> void same(%(typed)s, T* out, int64_t n) { map(n, out, Formula<T>::f, %(names)s); }
extern "C" void run(%(ins)s, pb::out out, int64_t n, pb::dtype dtype) {
  dispatch(dtype, [&](auto t) { same<decltype(t)>(%(names)s, out, n); });
}
// s: 4 sizes, then 4 strides per input; along the last dimension they are 0 or 1, or -1 for a float.
template <class T> struct Operand {
  const T* p;
  bool moves;
  vec fixed;
  Operand(const T* p, int64_t step) : p(p), moves(step == 1), fixed{} {
    if (!moves) fixed = all(step < 0 ? *reinterpret_cast<const float*>(p) : get(p));
  }
  vec operator()(int64_t i) const { return moves ? load(p + i) : fixed; }
  vec operator()(int64_t i, int64_t count) const { return moves ? load(p + i, count) : fixed; }
};
template <class T> void broadcast(%(typed)s, T* out, const int64_t* s) {
  int64_t n = s[3];
  for (int64_t i = 0; i < s[0]; i++) for (int64_t j = 0; j < s[1]; j++) for (int64_t k = 0; k < s[2]; k++, out += n) {
    %(rows)s
    int64_t m = 0;
    for (; m + L <= n; m += L) store(out + m, Formula<T>::f(%(whole)s));
    if (m < n) store(out + m, Formula<T>::f(%(part)s), n - m);
  }
}
extern "C" void run_broadcast(%(ins)s, pb::out out, const int64_t* sizes, pb::dtype dtype) {
  dispatch(dtype, [&](auto t) { broadcast<decltype(t)>(%(names)s, out, sizes); });
}
"""


def fused(formula, arity):
    """A wrapper that takes `arity` tensors of one dtype; a number may stand for any but all."""
    names = [chr(ord("a") + i) for i in range(arity)]
    each = [(n, f"(s + {4 * i + 4})") for i, n in enumerate(names)]
    lib = cpp.load(SOURCE % {
        "formula": formula,
        "vecs": ", ".join(f"vec {n}" for n in names),
        "typed": ", ".join(f"const T* {n}" for n in names),
        "names": ", ".join(names),
        "ins": ", ".join(f"pb::in {n}" for n in names),
        "rows": " ".join(f"Operand<T> {n}_({n} + i * {s}[0] + j * {s}[1] + k * {s}[2], {s}[3]);" for n, s in each),
        "whole": ", ".join(f"{n}_(m)" for n in names),
        "part": ", ".join(f"{n}_(m, n - m)" for n in names),
    })  # fmt: skip

    def wrapper(*inputs):
        first = inputs[0]
        shape = getattr(first, "shape", None)
        for x in inputs:
            if getattr(x, "shape", None) != shape or not x.is_contiguous():
                return broadcast(*inputs)
        out = torch.empty_like(first)
        lib.run(*inputs, out, first.numel(), first.dtype)
        return out

    def broadcast(*inputs):
        """Any shapes and strides, and numbers among them: a literal of the graph matches where a tensor does."""
        plain = [x if hasattr(x, "shape") else None for x in inputs]
        dtypes = {x.dtype for x in plain if x is not None}
        if len(dtypes) != 1:
            raise ValueError(f"no kernel for dtypes {dtypes}")
        shape, sizes = layout(4, False, *[x if x is None else (x.shape, x.stride()) for x in plain])
        out = torch.empty(shape, dtype=dtypes.pop())
        numbers = [ctypes.c_float(x) if p is None else None for x, p in zip(inputs, plain, strict=True)]
        places = [x.data_ptr() if n is None else ctypes.addressof(n) for x, n in zip(inputs, numbers, strict=True)]
        lib.run_broadcast(*places, out, ctypes.addressof(sizes), out.dtype)
        return out

    return wrapper
