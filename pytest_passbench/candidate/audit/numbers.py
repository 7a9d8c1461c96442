"""Which parameters of a pattern are numbers: those that stand only where an operator takes no tensor."""

from __future__ import annotations

import ast

from pytest_passbench.candidate.audit.tables import words

_KEYWORDS = words("""
    eps p dim dims inplace training alpha beta negative_slope approximate keepdim size normalized_shape padding
    stride dilation groups num_groups scale_factor dtype threshold upper lower min_val max_val shape momentum
    dim0 dim1 start_dim end_dim dropout_p is_causal scale correction unbiased""")
# Methods whose arguments are sizes and dimensions, never tensors.
_METHODS = words("""
    view reshape expand permute transpose flatten unflatten unsqueeze squeeze chunk split repeat narrow roll
    size to type softmax log_softmax mean sum""")
# Of functions: from which positional argument on there are only numbers.
_FROM = {
    "dropout": 1, "softmax": 1, "log_softmax": 1, "layer_norm": 4, "group_norm": 4, "batch_norm": 5, "rms_norm": 3,
    "conv1d": 3, "conv2d": 3, "conv3d": 3, "gelu": 1, "leaky_relu": 1, "elu": 1, "hardtanh": 1, "softplus": 1,
    "relu": 1, "silu": 1, "cat": 1, "stack": 1, "transpose": 1, "permute": 1, "reshape": 1, "flatten": 1,
    "unsqueeze": 1, "squeeze": 1, "mean": 1, "sum": 1, "rsqrt": 1, "max_pool2d": 1, "avg_pool2d": 1,
    "adaptive_avg_pool2d": 1, "interpolate": 1, "pad": 1, "split": 1, "chunk": 1, "roll": 1, "dropout2d": 1,
    "normalize": 1,
}  # fmt: skip
_SECOND = words("layer_norm group_norm rms_norm")  # normalized_shape, num_groups


def only_numbers(pattern: ast.AST) -> set[str]:
    """Names of ``pattern``'s parameters that it uses, and uses only as numbers."""
    numeric = {id(name) for place in _places(pattern) for name in ast.walk(place) if isinstance(name, ast.Name)}
    uses = [node for node in ast.walk(pattern) if isinstance(node, ast.Name)]
    return {use.id for use in uses if id(use) in numeric} - {use.id for use in uses if id(use) not in numeric}


def _places(pattern: ast.AST) -> list[ast.AST]:
    """The parts of ``pattern`` where only a number, a shape or a dtype can stand."""
    found: list[ast.AST] = []
    for node in ast.walk(pattern):
        if isinstance(node, ast.Slice):
            found.append(node)
        elif isinstance(node, ast.keyword) and node.arg in _KEYWORDS:
            found.append(node.value)
        elif isinstance(node, ast.Call):
            found += _arguments(node)
    return found


def _arguments(node: ast.Call) -> list[ast.expr]:
    if not isinstance(node.func, ast.Attribute):
        return []
    name = node.func.attr
    if _is_library(node.func.value):
        start = _FROM.get(name)
        rest = node.args[start:] if start is not None else []
        return [*rest, *(node.args[1:2] if name in _SECOND else [])]
    return node.args if name in _METHODS else []


def _is_library(node: ast.expr) -> bool:
    """Is this ``torch``, ``torch.nn.functional``, ``F``, rather than a value of the pattern?"""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "F", "nn")
