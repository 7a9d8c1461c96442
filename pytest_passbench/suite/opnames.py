"""Names of operators, and their nature: whether they work on elements, draw random numbers, or do nothing."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from pytest_passbench.suite.allowlist import spelling, words
from pytest_passbench.suite.batching import is_batching

_WITHOUT_EFFECT = frozenset({
    "torch.autograd.function.FunctionCtx",  # the context of a backward pass, which no graph here has
    "torch._C._log_api_usage_once",
    "torch._C._set_grad_enabled",  # no graph here records gradients
    "torch.set_grad_enabled",
    "torch._functorch.predispatch.lazy_load_decompositions",
    "torch._functorch.vmap.lazy_load_decompositions",
    "torch.amp.autocast_mode._exit_autocast",
})  # fmt: skip
_ENTER_AUTOCAST = "torch.amp.autocast_mode._enter_autocast"

_SYNONYMS = dict(
    pair.split("=")
    for pair in words("""
    truediv=div true_divide=div divide=div itruediv=div rtruediv=div floordiv=floor_divide
    ifloordiv=floor_divide iadd=add radd=add isub=sub subtract=sub imul=mul rmul=mul multiply=mul
    imatmul=matmul ipow=pow rpow=pow imod=remainder mod=remainder and=bitwise_and iand=bitwise_and
    rand=bitwise_and or=bitwise_or ior=bitwise_or ror=bitwise_or xor=bitwise_xor ixor=bitwise_xor
    inv=bitwise_not invert=bitwise_not lshift=bitwise_left_shift ilshift=bitwise_left_shift
    rshift=bitwise_right_shift irshift=bitwise_right_shift negative=neg absolute=abs clip=clamp
    greater=gt greater_equal=ge less=lt less_equal=le not_equal=ne concat=cat concatenate=cat
    swapaxes=transpose swapdims=transpose arccos=acos arcsin=asin arctan=atan arctan2=atan2
    arccosh=acosh arcsinh=asinh arctanh=atanh moveaxis=movedim row_stack=vstack fix=trunc
    special_expit=sigmoid special_erf=erf special_expm1=expm1 logsigmoid=log_sigmoid not=logical_not
    nelement=numel ndimension=dim ndim=dim shape=size expand_as=expand view_as=view reshape_as=reshape
    T=t mT=transpose H=adjoint mH=adjoint type_as=to float=to half=to bfloat16=to double=to long=to
    int=to bool=to short=to char=to byte=to type=to cuda=to cpu=to
    """)
)

METADATA_OPS = words("""
    size dim numel item dtype device layout stride storage_offset is_contiguous is_complex is_floating_point
    is_signed element_size itemsize nbytes is_cuda is_cpu is_sparse len is_quantized is_leaf
    requires_grad is_tensor result_type promote_types can_cast getattr get_device is_same_size _check
    _check_is_size _check_value _check_index _check_tensor_all _assert _assert_async sym_float sym_int
    sym_ite sym_max sym_min sym_not sym_sqrt sym_sum sym_constrain_range sym_constrain_range_for_size
    sym_size broadcast_shapes
    """)
"""Operators that do no work on elements: reading sizes and types, checks, symbolic arithmetic."""

_TUPLES = words("""
    split chunk unbind tensor_split hsplit vsplit dsplit unsafe_split unsafe_chunk topk split_with_sizes
    sort var_mean std_mean meshgrid broadcast_tensors native_layer_norm native_group_norm
    native_batch_norm svd kthvalue mode cummax cummin aminmax frexp lstm gru rnn_tanh rnn_relu
    multi_head_attention_forward linalg_eigh linalg_eig linalg_qr linalg_svd linalg_slogdet linalg_lu
    linalg_lu_factor linalg_lstsq qr slogdet unique unique_consecutive unique2 max_pool1d_with_indices
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d_with_indices
    adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices histogram geqrf triangular_solve
    lu_unpack gradient embedding_bag fused_rms_norm native_multi_head_attention
    """)
_SAMPLERS = words("""
    rand rand_like randn randn_like randint randint_like randperm bernoulli multinomial normal poisson
    binomial uniform exponential geometric cauchy log_normal random gumbel_softmax native_dropout
    fused_dropout fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices
    fractional_max_pool3d_with_indices pca_lowrank svd_lowrank
    """)


def op_name(node: torch.fx.Node) -> str:
    """Return the canonical short name of a node's operator.

    In-place and reflected forms, methods, functions, overloads and synonyms of one operator share a name. So
    ``add`` stands for ``operator.add``, ``operator.iadd``, ``torch.add``, ``Tensor.add_`` and ``aten.add``.
    Placeholders and outputs are called "placeholder" and "output".
    """
    if node.op == "call_method":
        return _canonical(str(node.target))
    if node.op != "call_function":
        return str(node.op)
    if node.target is getattr:
        return _canonical(str(node.args[1]))
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        name = str(node.target).removeprefix("aten.").split(".")[0]
        return _canonical(name if name == "index_copy" else name.removesuffix("_copy"))
    return _canonical(_function_name(node.target))


def _function_name(target: Any) -> str:
    prefix, _, name = (spelling(target) or str(getattr(target, "__name__", target))).rpartition(".")
    is_family = prefix in ("torch.fft", "torch.linalg", "torch.special")
    return f"{prefix.removeprefix('torch.')}_{name}" if is_family else name


def _canonical(name: str) -> str:
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        return _SYNONYMS.get(name, name)
    base = name.rstrip("_")
    if not base.startswith(("_check", "_assert")):
        base = base.lstrip("_")
    return base if base in _SAMPLERS else _SYNONYMS.get(base, base)


def yields_tuple(node: torch.fx.Node) -> bool:
    """Return True if a node's value is a tuple or list, judged by its operator and arguments."""
    while (name := op_name(node)) == "getitem":  # a slice of a tuple is one too
        source, index = node.args[0], node.args[1]
        if not isinstance(source, torch.fx.Node) or not isinstance(index, slice):
            return False
        node = source
    if name in ("max", "min", "median", "nanmedian"):
        second = _argument(node, 1, "dim", None)
        return second is not None and not isinstance(second, torch.fx.Node)
    if name in ("size", "stride"):
        return node.target is getattr or (len(node.args) == 1 and not node.kwargs)
    if name in ("where", "nonzero"):
        return (name == "where" and len(node.args) == 1) or bool(node.kwargs.get("as_tuple"))
    return name in _TUPLES


def is_metadata(node: torch.fx.Node) -> bool:
    """Return True if a node does no work on elements: metadata, items of tuples, arithmetic on sizes alone."""
    by_form = _metadata_by_form(node)
    if by_form is not None:
        return by_form
    waiting, visited = list(node.all_input_nodes), set()
    while waiting:  # a loop, since a chain of sums may be longer than calls can nest
        source = waiting.pop()
        if source in visited:
            continue
        visited.add(source)
        if not _may_be_number(source):
            return False
        if _metadata_by_form(source) is None:
            waiting += source.all_input_nodes
    return True


def _metadata_by_form(node: torch.fx.Node) -> bool | None:
    """Return whether a node is metadata; None for plain arithmetic, which is metadata if all operands are numbers."""
    if node.op not in ("call_function", "call_method"):
        return True
    name, source = op_name(node), node.args[0] if node.args else None
    if name in METADATA_OPS or is_batching(node):
        return True
    if (name == "getitem" or node.target is getattr) and isinstance(source, torch.fx.Node):
        return yields_tuple(source)
    arithmetic = getattr(node.target, "__module__", "") in ("_operator", "math", "builtins")
    return None if node.op == "call_function" and arithmetic else False


def _may_be_number(node: torch.fx.Node) -> bool:
    """Return True if a node's form allows it to be a number: a size, or arithmetic."""
    if node.op == "placeholder" or is_batching(node) or _metadata_by_form(node) is False:
        return False
    source = node.args[0] if node.args else None
    is_item = op_name(node) == "getitem" and isinstance(source, torch.fx.Node)
    return not is_item or op_name(source) in METADATA_OPS


def operator_names(nodes: Iterable[torch.fx.Node]) -> list[str]:
    """Return the names of the operators that work on elements, in order. Tuple items are left out."""
    return [op_name(node) for node in nodes if not is_metadata(node)]


def operator_sequence(gm: torch.fx.GraphModule) -> tuple[str, ...]:
    """Return the names of a graph's operators that work on elements, as ``ops`` in a task's header."""
    return tuple(operator_names(gm.graph.nodes))


def is_random(node: torch.fx.Node) -> bool:
    """Return True if a node draws random numbers: samplers, and dropout and similar operators while training."""
    name = op_name(node)
    if node.op not in ("call_function", "call_method"):
        return False
    if name in _SAMPLERS:
        return True
    if name == "scaled_dot_product_attention":
        return bool(_argument(node, 4, "dropout_p", 0.0) != 0.0)
    if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        place = 5 if len(node.args) > 3 and isinstance(node.args[3], bool) else 6  # packed ones have sizes too
        return len(node.args) > place + 1 and node.args[place] != 0.0 and node.args[place + 1] is not False
    return ("dropout" in name or name == "rrelu") and _is_training(node, name)


def _is_training(node: torch.fx.Node, name: str) -> bool:
    # torch.nn.functional's dropouts train by default; its alpha_dropout, feature_alpha_dropout and rrelu do not.
    # The native functions have no default.
    by_default = isinstance(node.target, types.FunctionType) and "alpha" not in name and name != "rrelu"
    position = 3 if name == "rrelu" else 2
    flag = node.kwargs.get("train", _argument(node, position, "training", by_default))
    probability = 1.0 if name == "rrelu" else _argument(node, 1, "p", 0.5)
    return flag is not False and probability != 0


def _argument(node: torch.fx.Node, position: int, keyword: str, default: Any) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(keyword, default)


def has_no_effect(dotted: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True for a call that changes no value. Entering autocast is one if it is not enabled."""
    if dotted != _ENTER_AUTOCAST:
        return dotted in _WITHOUT_EFFECT
    return kwargs.get("enabled", args[2] if len(args) > 2 else True) is False
