"""Softmax over the last dimension of a formula (see elementwise.py) of tensors that broadcast to each other."""

import ctypes

import torch

from pytest_passbench.kernels import cpp

from .layout import layout

SOURCE = """
#include "passbench.h"
using namespace pb;
template <class T> struct Formula {
  static vec R(vec x) { return round<T>(x); }
  static vec f(float p, %(vecs)s) { %(formula)s }
};
// s: 5 sizes, then 5 strides per input; every input has whole rows.
template <class T, class Y> void rows(%(typed)s, Y* out, const int64_t* s, float p) {
  int64_t n = s[4];
  buffer row(n);
  float* r = row.data;
  for (int64_t i = 0; i < s[0]; i++) for (int64_t j = 0; j < s[1]; j++) for (int64_t k = 0; k < s[2]; k++)
    for (int64_t l = 0; l < s[3]; l++, out += n) {
      float top = map_greatest(n, r, [=](%(vecs)s) { return Formula<T>::f(p, %(names)s); }, %(at)s);
      float inverse = 1 / map_sum(n, r, [=](vec x) { return exp(x - top); }, r);
      map(n, out, [=](vec x) { return x * inverse; }, r);
    }
}
extern "C" void run(%(ins)s, pb::out out, const int64_t* sizes, double p, pb::dtype dtype, bool wide) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    if (wide) rows<T, float>(%(names)s, out, sizes, p);
    else rows<T, T>(%(names)s, out, sizes, p);
  });
}
"""


def softmax_of(formula, arity):
    """A wrapper of (number, dtype, `arity` tensors). The formula knows the number as p; dtype is the result's.

    `sizes`, where given, is the shape that the result is viewed in.
    """
    names = [chr(ord("a") + i) for i in range(arity)]
    each = [
        (n, f"s[{5 * i + 5}]", f"s[{5 * i + 6}]", f"s[{5 * i + 7}]", f"s[{5 * i + 8}]") for i, n in enumerate(names)
    ]
    lib = cpp.load(SOURCE % {
        "formula": formula,
        "vecs": ", ".join(f"vec {n}" for n in names),
        "typed": ", ".join(f"const T* {n}" for n in names),
        "names": ", ".join(names),
        "ins": ", ".join(f"pb::in {n}" for n in names),
        "at": ", ".join(f"{n} + i * {s} + j * {t} + k * {u} + l * {v}" for n, s, t, u, v in each),
    })  # fmt: skip

    def wrapper(number, dtype, *tensors, sizes=None):
        kind = tensors[0].dtype
        shape, table = layout(5, True, *[(x.shape, x.stride()) for x in tensors])
        for x in tensors:
            if x.shape[-1] != shape[-1] or x.dtype != kind or dtype not in (None, kind, torch.float32):
                raise ValueError(f"softmax: no kernel for {x.dtype}{list(x.shape)} in {kind}{list(shape)} to {dtype}")
        out = torch.empty(sizes or shape, dtype=dtype or kind)
        wide = out.dtype != kind
        lib.run(*[x.data_ptr() for x in tensors], out, ctypes.addressof(table), number, kind, wide)
        return out

    return wrapper


plain = softmax_of("return R(a * p);", 1)
masked = softmax_of("return R(R(a * p) + b);", 2)
biased = softmax_of("return R(R(a + b) + c);", 3)
capped = softmax_of("return R(R(p * R(tanh(R(a / p)))) + b);", 2)
