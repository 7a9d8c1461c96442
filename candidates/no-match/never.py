"""A pass whose pattern occurs nowhere: what a miss looks like in a report, with the nearest place it came to."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
extern "C" void run(const float* x, float* out, int64_t n) {
  pb::map(n, out, [](pb::vec a) { return pb::tanh(pb::tanh(pb::tanh(a))); }, x);
}
""")


def pattern(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


def replacement_args(x):
    return (x,)


def thrice(x):
    out = torch.empty_like(x)
    lib.run(x, out, x.numel())
    return out


def replacement_func():
    return thrice
