"""Calls of a graph printed as Python, with names that a person would choose."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from pytest_passbench.first_pass.forms import GraphForm
from pytest_passbench.rewrite.normalise import CanonicalCall, canonical
from pytest_passbench.suite.printing import GraphPrinter

# Names for an operator's result, and for an argument from outside by the parameter that it is.
_RESULTS = {
    "add": "total", "sub": "difference", "mul": "scaled", "div": "quotient", "neg": "negated", "pow": "power",
    "relu": "activated", "gelu": "activated", "silu": "activated", "leaky_relu": "activated", "hardtanh": "clamped",
    "sigmoid": "gate", "tanh": "squashed", "exp": "exponential", "softmax": "probabilities", "mean": "mean",
    "sum": "sums", "var": "variance", "sqrt": "root", "rsqrt": "scale", "reciprocal": "inverse", "to": "cast",
    "layer_norm": "normed", "rms_norm": "normed", "group_norm": "normed", "batch_norm": "normed",
    "instance_norm": "normed", "normalize": "normed", "linear": "projected", "matmul": "product", "bmm": "product",
    "baddbmm": "product", "conv1d": "convolved", "conv2d": "convolved", "conv3d": "convolved", "dropout": "kept",
    "cat": "joined", "stack": "stacked", "transpose": "transposed", "permute": "permuted", "reshape": "reshaped",
    "view": "reshaped", "flatten": "flat", "unsqueeze": "raised", "squeeze": "squeezed", "getitem": "part",
    "chunk": "chunks", "split": "parts", "unbind": "parts", "expand": "expanded", "contiguous": "dense",
    "masked_fill": "masked", "where": "chosen", "clamp": "clamped", "softplus": "softened", "erf": "error_function",
    "index_select": "taken", "embedding": "embedded", "gather": "gathered", "detach": "detached", "pad": "padded",
    "scatter_add": "scattered", "new_zeros": "zeros", "avg_pool2d": "pooled", "max_pool2d": "pooled",
    "adaptive_avg_pool2d": "pooled", "adaptive_avg_pool1d": "pooled", "adaptive_max_pool2d": "pooled",
}  # fmt: skip
_ROLES = {
    "weight": "weight", "bias": "bias", "running_mean": "mean", "running_var": "variance", "mask": "mask",
    "index": "index", "indices": "index", "condition": "condition", "eps": "eps", "negative_slope": "slope",
    "normalized_shape": "size", "dtype": "dtype", "size": "n", "value": "value", "dim": "dim", "p": "p",
    "groups": "groups", "num_groups": "groups", "exponent": "exponent", "min": "low", "max": "high",
    "stride": "stride", "padding": "padding", "kernel_size": "kernel_size", "output_size": "output_size",
    "fill_value": "value", "momentum": "momentum", "sections": "parts",
}  # fmt: skip
NOT_FINITE = {"inf": 'float("inf")', "-inf": '-float("inf")', "nan": 'float("nan")'}
"""Numbers without a literal in Python."""
_PLAIN = ("x", "y", "z", "u", "v", "w", "q", "k")
_RESERVED = {
    "torch", "cpp", "lib", "math", "inf", "nan", "out", "rows", "n", "i", "j", "r", "operator", "windows", "batched",
    "moved", "join", "padded", "pattern", "replacement_args", "replacement_func", "triton", "tl", "width", "height",
    "SPAN", "at", "inside", "row"}  # fmt: skip


class Names:
    """The names of a run's values: those of arguments by their parameters, those of results by their operators."""

    def __init__(self) -> None:
        self._used = set(_RESERVED)

    def fresh(self, wish: str) -> str:
        """Return ``wish``, with a number after it if the name is taken."""
        wish = re.sub(r"\W", "_", wish) or "value"
        wish = f"{wish}_" if keyword.iskeyword(wish) or wish[0].isdigit() else wish
        name, number = wish, 2
        while name in self._used:
            name, number = f"{wish}{'' if not wish[-1].isdigit() else '_'}{number}", number + 1
        self._used.add(name)
        return name

    def plain(self) -> str:
        """Return the next of x, y, z, ..."""
        return self.fresh(next((name for name in _PLAIN if name not in self._used), "x1"))


def named(form: GraphForm, arguments: Iterable[Node], nodes: Iterable[Node]) -> dict[Node, str]:
    """Return a name for each argument and each result of a run."""
    names, result = Names(), dict[Node, str]()
    calls = {node: canonical(node) for node in nodes}
    arguments = list(arguments)
    for argument in arguments:
        result[argument] = _argument(form, argument, calls, names)
    for node, call in calls.items():
        result[node] = names.fresh(_RESULTS.get(call.op, f"{call.op}_result"))
    return result


def _argument(form: GraphForm, argument: Node, calls: dict[Node, CanonicalCall], names: Names) -> str:
    hole = argument in form.literals
    if hole and all(isinstance(value, torch.dtype) for value in form.literals[argument]):
        return names.fresh("dtype")
    for call in calls.values():
        for role, value in call.args.items():
            if _holds(value, argument):
                if role in _ROLES and role != "input":
                    return names.fresh(_ROLES[role])
                if hole:
                    wish = {"mul": "scale", "div": "divisor", "add": "offset", "getitem": "place"}.get(call.op, role)
                    return names.fresh("number" if wish in ("input", "other") else wish)
                kinds = form.dtypes(argument)
                if kinds == {torch.bool}:
                    return names.fresh("mask")
                if call.op == "getitem" and role == "index":
                    return names.fresh("index")
                return names.plain()
    return names.plain()


def _holds(value: Any, node: Node) -> bool:
    """Return True if a value is a node, or has it as an item."""
    nodes: list[Node] = []
    map_arg(value, nodes.append)
    return node in nodes


class Python(GraphPrinter):
    """A printer of single calls as Python statements. ``names`` are the variables."""

    def __init__(self, names: dict[Node, str]) -> None:
        super().__init__()
        self.names = names

    def value(self, value: Any) -> str:
        """Return a value. Every device is written as "cuda", which stands for the one that the subgraph runs on."""
        if isinstance(value, torch.device):
            return 'torch.device("cuda")'
        text = super().value(value)
        return NOT_FINITE.get(text, text)
