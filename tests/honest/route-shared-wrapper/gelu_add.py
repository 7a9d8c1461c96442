"""The shorter chain."""

import torch
from pass_dir.routes import dispatch


def pattern(x, y):
    return torch.nn.functional.gelu(x) + y


def replacement_args(x, y):
    return (x, y, "add")


def replacement_func():
    return dispatch
