"""Two passes share one wrapper by a route constant."""

import torch
from pass_dir.routes import dispatch


def pattern(x, y, w, b):
    added = torch.nn.functional.gelu(x) + y
    return torch.nn.functional.layer_norm(added, (256,), w, b, 1e-05)


def replacement_args(x, y, w, b):
    return (x, y, w, b, "norm")


def replacement_func():
    return dispatch
