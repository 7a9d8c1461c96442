"""The allow-list: the names that a subgraph may use, and the functions that they stand for.

A dotted name resolves only if a rule below lists it. The rules take whole namespaces of pure tensor functions
from the installed torch. They leave out by name the functions that read, write, alias foreign memory, or run
code. The short name of an operator is in :mod:`pytest_passbench.suite.opnames`.
"""

from __future__ import annotations

import builtins
import math
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.plurals import words
from pytest_passbench.suite import batching

Function = Callable[..., Any]

# Functions that touch files, foreign memory, autograd state or callables, or that newer releases of torch lack.
_DENIED = words("""
    from_file from_numpy frombuffer is_vulkan_available is_distributed dsmm hsmm
    fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix fbgemm_linear_quantize_weight
    assert_int_or_pair resize_ resize resize_as resize_as_ resize_as_sparse_ set_ set_data record_stream
    data_ptr const_data_ptr pin_memory requires_grad_ triplet_margin_with_distance_loss apply_ map_
    map2_ numpy backward register_hook new storage storage_type register_post_accumulate_grad_hook
    untyped_storage share_memory_ is_shared as_subclass module_load reinforce is_set_to retain_grad name
    eig lstsq solve symeig sparse_resize_ sparse_resize_and_clear_ ipu xpu mtia
    """)
# Prefixes of torch.ops.aten's operators that print, pin, act on the process, or belong to torch's own tests.
_DENIED_ATEN = ("__", "_print", "_cufft", "_test", "_foobar", "_debug", "_pin_memory", "_resize_output", "_use_")
_TORCH_EXTRA = words("""
    sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum is_tensor _check _check_is_size
    _check_tensor_all _check_value _check_index _assert _assert_async _softmax _log_softmax
    _safe_softmax _shape_as_tensor _int_mm _scaled_mm _grouped_mm _weight_norm _fused_rms_norm _add_relu
    _addmm_activation _is_all_true _is_any_true _unsafe_index _unsafe_index_put _adaptive_avg_pool2d
    _adaptive_avg_pool3d _native_batch_norm_legit _native_batch_norm_legit_no_training _convolution
    _prelu_kernel _embedding_bag _fft_c2c _fft_c2r _fft_r2c _trilinear _unique2 _masked_softmax _stack
    _native_multi_head_attention
    """)
_OPERATOR = words("""
    abs add and_ eq floordiv ge getitem gt iadd iand ifloordiv ilshift imatmul imod imul inv invert ior
    ipow irshift isub itruediv ixor le lshift lt matmul mod mul ne neg not_ or_ pos pow rshift setitem
    sub truediv truth xor
    """)
_MATH = words("""
    acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh exp exp2 expm1 fabs floor fmod gcd
    hypot isfinite isinf isnan lcm log log10 log1p log2 pow prod sin sinh sqrt tan tanh trunc
    """)
_BUILTINS = words("abs bool float getattr int len max min pow round sum")
_DUNDERS = words("""
    add and eq floordiv ge getitem gt iadd iand ilshift imul invert ior irshift isub ixor le len lshift
    lt matmul mod mul ne neg or pow radd rand rmul ror rpow rshift rsub rtruediv setitem sub truediv xor
    """)

ATTRIBUTES = words("""
    shape dtype device ndim layout itemsize nbytes T mT H mH real imag data is_cuda is_cpu is_sparse
    is_leaf is_quantized requires_grad values indices Q R U S Vh L V LU P eigenvalues eigenvectors sign
    logabsdet min max mantissa exponent solution bin_edges hist
    """)
"""Attributes of tensors and of named results that a graph may read."""


def _plain(module: Any, names: Iterable[str]) -> dict[str, Function]:
    return {n: getattr(module, n) for n in sorted(names) if callable(getattr(module, n, None))}


def _public(module: Any) -> dict[str, Function]:
    """Return the module's public builtin functions, less the denied ones."""
    functions = _plain(module, (n for n in dir(module) if not n.startswith("_") and n not in _DENIED))
    return {n: f for n, f in functions.items() if isinstance(f, types.BuiltinFunctionType)}


def _functional(native: Iterable[Function]) -> dict[str, Function]:
    """Return the functions of torch.nn.functional: its own ones, and native ones under their functional name."""
    module, native_names = torch.nn.functional, set(native)
    public = {n: f for n, f in vars(module).items() if not n.startswith("_") and n not in _DENIED}
    python_function = types.FunctionType
    return {
        n: f
        for n, f in public.items()
        if (isinstance(f, types.BuiltinFunctionType) and f in native_names)
        or (isinstance(f, python_function) and f.__module__ == module.__name__)
    }


def _family(name: str) -> dict[str, Function]:
    """Return the functions of torch.fft, torch.linalg or torch.special by their public names."""
    # The denied names are those of torch's removed solvers, not torch.linalg's: the native names decide here.
    native = set(_public(getattr(torch._C, f"_{name}")).values())
    public = {n: f for n, f in vars(getattr(torch, name)).items() if not n.startswith("_")}
    return {n: f for n, f in public.items() if isinstance(f, types.BuiltinFunctionType) and f in native}


@cache
def namespaces() -> Mapping[str, Mapping[str, Function]]:
    """Return the allowed functions: prefix -> name -> function. A function's first name is its canonical spelling."""
    variable = {n: getattr(torch, n) for n in _public(torch._C._VariableFunctions) if hasattr(torch, n)}
    native = _public(torch._C._nn)
    families = ("fft", "linalg", "special")
    arithmetic = _plain(operator, _OPERATOR)
    return {
        "torch": variable | _plain(torch, (*_TORCH_EXTRA, *torch.functional.__all__)),
        "torch.nn.functional": _functional((*variable.values(), *native.values())),
        **{f"torch.{name}": _family(name) for name in families},
        "torch.functional": _plain(torch.functional, torch.functional.__all__),
        "torch._C._nn": native,
        **{f"torch._C._{name}": _public(getattr(torch._C, f"_{name}")) for name in families},
        "torch._C._VariableFunctions": _public(torch._C._VariableFunctions),
        "torch._VF": _public(torch._C._VariableFunctions),
        "torch._functorch.predispatch": _plain(getattr(torch._functorch, "predispatch", None), batching.CALLS),
        "torch._C._functorch": _plain(torch._C._functorch, batching.CALLS),
        "operator": arithmetic,
        "_operator": arithmetic,
        "math": _plain(math, _MATH),
        "": _plain(builtins, _BUILTINS),
    }


METHODS = frozenset(
    n for n in dir(torch.Tensor) if not n.startswith("_") and n not in _DENIED and callable(getattr(torch.Tensor, n))
) | {f"__{n}__" for n in _DUNDERS}
"""Tensor methods that a graph may call."""


def resolve(dotted: str) -> Function:
    """Return the function that an allowed dotted name stands for. Raises UserError, without a place, for others."""
    if dotted.startswith("torch.ops."):
        return _aten(dotted)
    prefix, _, name = dotted.rpartition(".")
    function = namespaces().get(prefix, {}).get(name)
    if function is None:
        raise UserError(f"operator {dotted!r} is not allowed", remedy="only pure tensor functions of torch are")
    return function


@cache
def _aten_names() -> frozenset[str]:
    """Return the names of the tensor operators of ``torch.ops.aten``.

    That namespace also has operators of TorchScript alone (``save``, ``manual_seed``, ``set_grad_enabled``).
    They are not registered with the dispatcher, so they are not among these names.
    """
    registered = (n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    names = {name.split(".")[0] for name in registered}
    return frozenset(n for n in names if n not in _DENIED and not n.startswith(_DENIED_ATEN))


def _aten(dotted: str) -> Function:
    parts = dotted.split(".")[2:]
    if parts[0] != "aten" or len(parts) not in (2, 3) or parts[1] in _DENIED:
        raise UserError(f"operator {dotted!r} is not allowed", remedy="of torch.ops only torch.ops.aten.<op> is")
    packet: Any = getattr(torch.ops.aten, parts[1], None) if parts[1] in _aten_names() else None
    if packet is None or (len(parts) == 3 and parts[2] not in packet.overloads()):
        raise UserError(f"this torch has no tensor operator {dotted!r}", remedy="check its spelling")
    overload: Function = packet if len(parts) == 2 else getattr(packet, parts[2])
    return overload


@cache
def _spellings() -> Mapping[Function, str]:
    names: dict[Function, str] = {}
    for prefix, functions in namespaces().items():
        for name, function in functions.items():
            names.setdefault(function, f"{prefix}.{name}" if prefix else name)
    return names


def spelling(target: Any) -> str | None:
    """Return the canonical dotted name of a function, or None if it is not allowed."""
    if not isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return _spellings().get(target)
    dotted = f"torch.ops.{target}"
    try:
        return dotted if resolve(dotted) is target else None
    except UserError:
        return None
