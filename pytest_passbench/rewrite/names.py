"""The spellings of PyTorch's operators and parameters, as tables to their canonical names.

They cover Python operators, aliases, methods and parameter names. Nothing here is computed.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

# Canonical names of Python's operators.
OPERATORS: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div",
    operator.floordiv: "floor_divide", operator.mod: "remainder", operator.pow: "pow", operator.neg: "neg",
    operator.pos: "positive", operator.abs: "abs", operator.matmul: "matmul", operator.and_: "bitwise_and",
    operator.or_: "bitwise_or", operator.xor: "bitwise_xor", operator.invert: "bitwise_not",
    operator.lshift: "bitwise_left_shift", operator.rshift: "bitwise_right_shift",
    operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge", operator.eq: "eq", operator.ne: "ne",
}  # fmt: skip
_STEMS = {function.__name__.strip("_"): name for function, name in OPERATORS.items()}
# Canonical names of the operators that change their left operand in place (``+=``).
INPLACE_OPERATORS: dict[Any, str] = {
    getattr(operator, f"i{stem}"): name for stem, name in _STEMS.items() if hasattr(operator, f"i{stem}")
}
DUNDERS = {**_STEMS, "div": "div"}  # of methods: ``x.__add__(y)``, ``x.__radd__(y)``, ``x.__iadd__(y)``

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}  # of losses: ATen's numbers, and the words of torch.nn.functional

# Aliases that take the same parameters as their operator.
ALIASES = {
    "concat": "cat", "concatenate": "cat", "swapaxes": "transpose", "swapdims": "transpose",
    "multiply": "mul", "divide": "div", "true_divide": "div", "subtract": "sub", "negative": "neg",
    "absolute": "abs", "clip": "clamp", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "not_equal": "ne", "arccos": "acos", "arcsin": "asin", "arctan": "atan",
    "arctan2": "atan2", "fix": "trunc", "moveaxis": "movedim", "special_expit": "sigmoid",
    "special_erf": "erf", "special_softmax": "softmax", "special_log_softmax": "log_softmax",
    "__rsub__": "rsub", "_unsafe_view": "view", "orgqr": "linalg_householder_product",
    "linalg_matmul": "matmul", "nelement": "numel", "ndimension": "dim", "split_with_sizes": "split",
    "_to_copy": "to",
}  # fmt: skip

# Methods that convert: ``x.float()`` is ``x.to(dtype=torch.float32)``.
CONVERSIONS = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
    "int": torch.int32, "long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip

# Parameter names that mean the same in all operators (RENAMED), in one operator (RENAMED_IN), and parameters that
# cannot change a value here (IRRELEVANT).
RENAMED = {
    "self": "input", "axis": "dim", "keepdims": "keepdim", "train": "training", "axis0": "dim0", "axis1": "dim1",
    "split_size": "sections", "split_size_or_sections": "sections", "split_sizes": "sections", "x2": "other",
}  # fmt: skip
RENAMED_IN: dict[str, dict[str, str]] = {
    "embedding": {"indices": "input"}, "pow": {"other": "exponent"}, "matmul": {"tensor2": "other"},
    "mm": {"mat2": "other"}, "bmm": {"mat2": "other"}, "cat": {"input": "tensors"}, "reshape": {"shape": "size"},
    "repeat": {"repeats": "size"}, "tile": {"dims": "size"},
}  # fmt: skip
IRRELEVANT = frozenset({
    "inplace", "_stacklevel", "cudnn_enable", "cudnn_enabled", "sparse", "scale_grad_by_freq", "non_blocking",
    "pin_memory", "requires_grad", "generator", "implicit", "check_reduction",
})  # fmt: skip
IRRELEVANT_IN = {"embedding": frozenset({"padding_idx"})}

# Values of absent parameters. None, False and () also mean that a parameter is absent.
ABSENT: dict[str, Any] = {"alpha": 1, "beta": 1}
# Operators for which ``dim=()`` names no dimension, while an absent one means all.
NO_DIMENSIONS = frozenset({"all", "any", "squeeze"})

COMMUTATIVE = frozenset({
    "add", "mul", "maximum", "minimum", "eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and",
    "logical_or", "logical_xor",
})  # fmt: skip

# Integer parameters that PyTorch widens to a list: ``kernel_size=3`` is ``kernel_size=(3, 3)``.
WIDENED = frozenset({
    "kernel_size", "stride", "padding", "dilation", "output_padding", "output_size", "dim", "dims",
    "normalized_shape", "scale_factor", "scale_factors", "shifts",
})  # fmt: skip
DIM_NAMES = frozenset({"dim", "dims", "dim0", "dim1", "start_dim", "end_dim", "source", "destination"})

# Methods and attributes that only describe a tensor. Patterns and targets have literals in their place.
METADATA_METHODS = frozenset({
    "size", "dim", "ndimension", "numel", "nelement", "stride", "element_size", "is_floating_point",
    "is_complex", "get_device", "storage_offset", "is_contiguous",
})  # fmt: skip
METADATA_ATTRIBUTES = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "layout", "itemsize", "nbytes"})
