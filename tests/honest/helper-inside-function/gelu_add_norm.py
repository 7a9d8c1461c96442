"""A helper imported inside replacement_func."""

import torch


def pattern(x, y, w, b):
    added = torch.nn.functional.gelu(x) + y
    return torch.nn.functional.layer_norm(added, (256,), w, b, 1e-05)


def replacement_args(x, y, w, b):
    return (x, y, w, b)


def replacement_func():
    from pass_dir.helper import compute

    return compute
