"""Answers to a subgraph beside eager's: the natural fused one, and plainly wrong ones, each a change of its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

Values = tuple[Any, ...]
Call = Callable[..., Any]

F = torch.nn.functional
HALF = (torch.float16, torch.bfloat16)
NARROWER = {
    torch.float32: torch.bfloat16,
    torch.float16: torch.bfloat16,
    torch.bfloat16: torch.float8_e4m3fn,
}
FUSED, SCALED = "fused, rounded once", "output x 1.01"
MAX_EPS = 1e-3
MAX_PLACES = 3
"""How many nodes of a graph each kind of change is tried on at most. Each answer changes one node."""


@dataclass(frozen=True)
class Answer:
    """An answer: its kind, the node that was changed (empty for the whole graph), and the program."""

    kind: str
    place: str
    call: Callable[[Sequence[torch.Tensor]], Values]


def answers(module: GraphModule, inputs: Sequence[torch.Tensor], eager: Values) -> Iterator[Answer]:
    """Yield the answers to the graph on these inputs, on which eager gives these outputs. The fused one is first."""
    plain = Changed(module, {})
    yield Answer(FUSED, "", Fused(module, eager).answer)
    yield Answer(SCALED, "", lambda values: tuple(map(_scaled, plain.answer(values))))
    yield Answer("row mean", "", lambda values: tuple(map(_row_mean, plain.answer(values))))
    yield Answer("lower precision", "", Coarse(module).answer)
    for pair in _alike_inputs(module, inputs)[:MAX_PLACES]:
        yield Answer("swap inputs", f"{pair[0]}/{pair[1]}", partial(_swapped, module, pair))
    for kind, change in CHANGES.items():
        for node, call in _spread([(n, c) for n in module.graph.nodes for c in change(n)]):
            yield Answer(kind, str(node), Changed(module, {node: call}).answer)


def _spread(places: list[Any]) -> list[Any]:
    if len(places) <= MAX_PLACES:
        return places
    return [places[i * (len(places) - 1) // (MAX_PLACES - 1)] for i in range(MAX_PLACES)]


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _scaled(value: Any) -> Any:
    return (value.double() * 1.01).to(value.dtype) if _is_float(value) else value


def _row_mean(value: Any) -> Any:
    if not _is_float(value) or not value.dim():
        return value
    return value.double().mean(-1, keepdim=True).expand(value.shape).to(value.dtype)


def _alike_inputs(module: GraphModule, inputs: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    used = [index for index, node in enumerate(places) if node.users]
    return [
        (a, b)
        for number, a in enumerate(used)
        for b in used[number + 1 :]
        if inputs[a].shape == inputs[b].shape
        and inputs[a].dtype == inputs[b].dtype
        and not inputs[a].equal(inputs[b])
    ]


def _swapped(module: GraphModule, pair: tuple[int, int], inputs: Sequence[torch.Tensor]) -> Values:
    values, (a, b) = list(inputs), pair
    values[a], values[b] = values[b], values[a]
    return Changed(module, {}).answer(values)


class Changed(Interpreter):
    """The graph with some nodes computed by other functions, which get the node's function and its arguments."""

    def __init__(self, module: GraphModule, changes: dict[Node, Call]) -> None:
        super().__init__(module)
        self._changes = changes

    def answer(self, inputs: Sequence[torch.Tensor]) -> Values:
        """Return the outputs. The inputs are left as they are."""
        found = self.run(*[value.clone() for value in inputs])
        return found if isinstance(found, tuple) else (found,)

    def run_node(self, n: Node) -> Any:
        """Compute a node, by the function that replaces its own if there is one."""
        if n not in self._changes:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        function = partial(_method, n.target) if n.op == "call_method" else n.target
        return self._changes[n](function, *args, **kwargs)


def _method(name: str, this: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(this, name)(*args, **kwargs)


class Fused(Interpreter):
    """The graph as a fused kernel computes it: in float32, with one rounding at the end, sums in another order.

    ``eager`` holds eager's outputs. Only their dtypes are used.
    """

    def __init__(self, module: GraphModule, eager: Values) -> None:
        super().__init__(module)
        self._eager = eager

    def answer(self, inputs: Sequence[torch.Tensor]) -> Values:
        """Return the outputs, in the dtypes of eager's outputs."""
        found = self.run(*[value.float() if value.dtype in HALF else value.clone() for value in inputs])
        found = found if isinstance(found, tuple) else (found,)
        return tuple(_like(a, b) for a, b in zip(found, self._eager, strict=True))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Compute a function in float32, by another formula or order of sums if there is one."""
        return self._in_float32(getattr(target, "__name__", ""), super().call_function, target, args, kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        """Compute a method in float32, by another formula or order of sums if there is one."""
        target = "float" if target in ("half", "bfloat16") else target
        return self._in_float32(target, super().call_method, target, args, kwargs)

    def _in_float32(self, name: str, plain: Call, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = torch.fx.node.map_aggregate(args, _wide), torch.fx.node.map_aggregate(kwargs, _wide)
        if name in REORDERED:
            try:
                return REORDERED[name](*args, **kwargs)
            except (TypeError, NoOtherOrder):  # TypeError: arguments that the other formula does not know
                pass
        return plain(target, args, kwargs)


def _wide(value: Any) -> Any:
    return torch.float32 if isinstance(value, torch.dtype) and value in HALF else value


def _like(found: Any, like: Any) -> Any:
    if isinstance(found, torch.Tensor) and isinstance(like, torch.Tensor):
        return found.to(like.dtype)
    return found


class Coarse(Changed):
    """The graph with its inputs and its outputs rounded to a coarser dtype."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, {})

    def answer(self, inputs: Sequence[torch.Tensor]) -> Values:
        """Return the outputs."""
        return tuple(map(_coarse, super().answer([_coarse(value) for value in inputs])))


def _coarse(value: Any) -> Any:
    if not _is_float(value) or value.dtype not in NARROWER:
        return value
    narrow = NARROWER[value.dtype]
    top = min(torch.finfo(narrow).max, torch.finfo(value.dtype).max)
    return value.clamp(-top, top).to(narrow).to(value.dtype)


# Other orders of sums, as kernels choose them


class NoOtherOrder(Exception):
    """A call whose result has no other formula or order of sums here."""


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    found = x.flip(-1) @ weight.flip(-1).mT
    return found if bias is None else found + bias


def _matmul(a: Any, b: Any) -> Any:
    if a.dim() < 2 or b.dim() < 2:
        raise NoOtherOrder
    return a.flip(-1) @ b.flip(-2)


def _conv(function: Call, x: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
    groups = kwargs.get("groups", args[3] if len(args) > 3 else 1)
    if groups != 1:
        found = function(x, weight, None, *args, **kwargs)
    else:
        found = function(x.flip(1), weight.flip(1), None, *args, **kwargs)
    return found if bias is None else found + bias.view(-1, *[1] * (weight.dim() - 2))


def _softmax(x: Any, dim: int = -1, **kwargs: Any) -> Any:
    x = x.to(kwargs["dtype"]) if kwargs.get("dtype") is not None else x
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e * e.flip(dim).sum(dim, keepdim=True).reciprocal()


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    dims = tuple(range(-len(tuple(shape)), 0))
    mean = x.flip(dims).mean(dims, keepdim=True)
    found = (x - mean) * ((x - mean).square().flip(dims).mean(dims, keepdim=True) + eps).rsqrt()
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def _batch_norm(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False,
                _momentum: float = 0.1, eps: float = 1e-5) -> Any:  # fmt: skip
    if training or mean is None:
        raise NoOtherOrder
    form = (1, -1, *[1] * (x.dim() - 2))
    scale = (var + eps).rsqrt() * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * scale
    return x * scale.view(form) + shift.view(form)


def _sum(x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    if not x.is_floating_point():
        raise NoOtherOrder
    dims = tuple(range(x.dim())) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return x.flip(dims).sum(dim, keepdim, **kwargs) if dim is not None else x.flip(dims).sum(**kwargs)


def _mean(x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    dims = tuple(range(x.dim())) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return x.flip(dims).mean(dim, keepdim, **kwargs) if dim is not None else x.flip(dims).mean(**kwargs)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(sqrt(2 / torch.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x * sqrt(0.5)))


def _silu(x: Any, **_inplace: bool) -> Any:
    return x / (1 + torch.exp(-x))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + torch.exp(-x))


REORDERED: dict[str, Call] = {
    "linear": _linear, "matmul": _matmul, "bmm": _matmul, "conv1d": partial(_conv, torch.conv1d),
    "conv2d": partial(_conv, torch.conv2d), "conv3d": partial(_conv, torch.conv3d), "softmax": _softmax,
    "layer_norm": _layer_norm, "batch_norm": _batch_norm, "sum": _sum, "mean": _mean, "gelu": _gelu, "silu": _silu,
    "sigmoid": _sigmoid,
}  # fmt: skip


# Wrong answers: each of these yields functions that compute a node wrongly


def _name(node: Node) -> str:
    if node.op not in ("call_function", "call_method"):
        return ""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _given(node: Node, position: int, name: str) -> Any:
    return node.kwargs.get(name, node.args[position] if len(node.args) > position else None)


def _tanh_gelu(node: Node) -> Iterator[Call]:
    if _name(node) == "gelu" and _given(node, 1, "approximate") in (None, "none"):
        yield lambda _f, x, *_a, **_k: F.gelu(x, approximate="tanh")


def _sigmoid_gelu(node: Node) -> Iterator[Call]:
    if _name(node) == "gelu":
        yield lambda _f, x, *_a, **_k: x * torch.sigmoid(1.702 * x)


CURVES = ("gelu", "silu", "sigmoid", "tanh", "exp", "erf", "sin", "cos", "softplus", "hardswish", "mish", "elu")


def _taylor(node: Node) -> Iterator[Call]:
    if _name(node) in CURVES:
        yield partial(_line, 0)


def _taylor_mean(node: Node) -> Iterator[Call]:
    if _name(node) in CURVES:
        yield partial(_line, None)


def _line(at: float | None, function: Call, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the function's first-order Taylor polynomial at ``at``, or at the mean of x if ``at`` is None."""
    wide = x.double()
    point = (wide.mean() if at is None else torch.tensor(float(at), dtype=torch.float64)).reshape(1)
    step = 1e-4
    value = function(point.clone(), *args, **kwargs)
    slope = (function(point + step, *args, **kwargs) - function(point - step, *args, **kwargs)) / (2 * step)
    return (value + slope * (wide - point)).to(x.dtype)


BIAS = {"linear": 2, "conv1d": 2, "conv2d": 2, "conv3d": 2, "layer_norm": 3, "batch_norm": 4, "group_norm": 3}


def _without_bias(node: Node) -> Iterator[Call]:
    name = _name(node)
    position = BIAS.get(name)
    if position is not None and isinstance(_given(node, position, "bias"), Node):
        yield partial(_unbiased, position)


def _unbiased(position: int, function: Call, *args: Any, **kwargs: Any) -> Any:
    if "bias" in kwargs:
        return function(*args, **{**kwargs, "bias": None})
    return function(*args[:position], None, *args[position + 1 :], **kwargs)


EPS = {"layer_norm": (4, 1e-5), "batch_norm": (7, 1e-5), "group_norm": (4, 1e-5), "rms_norm": (3, None)}


def _adds_eps(node: Node) -> bool:
    return _name(node) in ("add", "iadd") and any(isinstance(a, float) and 0 < a <= MAX_EPS for a in node.args)


def _without_eps(node: Node) -> Iterator[Call]:
    if _adds_eps(node) and isinstance(node.args[0], Node):
        yield _first_argument


def _larger_eps(node: Node) -> Iterator[Call]:
    name = _name(node)
    if name in EPS:
        position, default = EPS[name]
        eps = _given(node, position, "eps") or default
        if eps:
            yield partial(_with_eps, position, 10 * eps)
    elif _adds_eps(node):
        yield lambda f, a, b, **k: f(*(10 * v if isinstance(v, float) else v for v in (a, b)), **k)


def _with_eps(position: int, eps: float, function: Call, /, *args: Any, **kwargs: Any) -> Any:
    if "eps" in kwargs:
        return function(*args, **{**kwargs, "eps": eps})
    if len(args) > position:
        return function(*args[:position], eps, *args[position + 1 :], **kwargs)
    return function(*args, **kwargs, eps=eps)


PLAIN = {"dropout", "contiguous", "detach", "to", "clone", "type", "float", "type_as", "view", "reshape", "flatten",
         "unsqueeze", "squeeze", "getitem", "getattr", "expand", "expand_as", "setitem", "zeros", "ones"}  # fmt: skip


def _skipped(node: Node) -> Iterator[Call]:
    first = next(iter(node.args), None)
    if _name(node) and _name(node) not in PLAIN and isinstance(first, Node) and not _adds_eps(node):
        yield _first_argument


class Absent(Exception):
    """A change that has no meaning for the node's values."""


def _first_argument(function: Call, first: Any, *args: Any, **kwargs: Any) -> Any:
    return _instead(function(_cloned(first), *args, **kwargs), first)


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _instead(right: Any, other: Any) -> Any:
    """Return ``other`` in the place of ``right``. Raises Absent if it does not fit there."""
    fits = isinstance(right, torch.Tensor) and isinstance(other, torch.Tensor)
    if not fits or right.shape != other.shape or right.dtype != other.dtype:
        raise Absent
    return other


BINARY = ("add", "mul", "sub", "truediv", "div", "iadd", "imul", "matmul", "bmm", "pow")


def _dropped(node: Node) -> Iterator[Call]:
    if _name(node) in BINARY and all(isinstance(arg, Node) for arg in node.args) and len(node.args) == 2:
        yield lambda f, a, b, **k: _instead(f(_cloned(a), b, **k), b)


def _exchanged(node: Node) -> Iterator[Call]:
    if _name(node) in ("sub", "truediv", "div", "matmul", "bmm") and all(isinstance(arg, Node) for arg in node.args):
        yield lambda f, a, b, **k: _instead(f(a, b, **k), f(b, a, **k))


AXIS = {"softmax": 1, "log_softmax": 1, "cumsum": 1, "normalize": 2, "sum": 1, "mean": 1, "cat": 1, "flip": 1,
        "roll": 2, "max": 1, "argmax": 1}  # fmt: skip


def _wrong_axis(node: Node) -> Iterator[Call]:
    position = AXIS.get(_name(node))
    if position is not None and isinstance(_given(node, position, "dim"), int):
        yield partial(_other_axis, position)
    if _name(node) == "transpose":
        yield lambda f, x, a, b: _instead(f(x, a, b), x)


def _other_axis(position: int, function: Call, *args: Any, **kwargs: Any) -> Any:
    right = function(*args, **kwargs)
    dim = kwargs.get("dim", args[position] if len(args) > position else None)
    first = args[0][0] if isinstance(args[0], (tuple, list)) else args[0]
    for other in range(first.dim()):
        if other == dim % first.dim():
            continue
        if "dim" in kwargs:
            found = function(*args, **{**kwargs, "dim": other})
        else:
            found = function(*args[:position], other, *args[position + 1 :], **kwargs)
        if isinstance(right, torch.Tensor) and right.shape == found.shape:
            return found
    raise Absent


def _unmasked(node: Node) -> Iterator[Call]:
    if _name(node) in ("masked_fill", "masked_fill_"):
        yield lambda f, x, *a, **k: _instead(f(_cloned(x), *a, **k), x)
    if _name(node) == "where" and len(node.args) == 3:
        yield lambda f, c, a, b: _instead(f(c, a, b), a)
        yield lambda f, c, a, b: _instead(f(c, a, b), b)
    if _name(node) == "scaled_dot_product_attention" and _given(node, 3, "attn_mask") is not None:
        yield lambda f, q, k, v, *_a, **_more: f(q, k, v)


def _clamps(node: Node) -> Iterator[Call]:
    name = _name(node)
    if name == "relu":
        yield lambda _f, x, *_a, **_k: F.relu6(x)
        yield lambda _f, x, *_a, **_k: F.leaky_relu(x, 0.01)
    if name in ("hardtanh", "relu6", "clamp"):
        yield partial(_one_side, -1e6)
        yield partial(_one_side, 1e6)
    if name == "leaky_relu":
        yield lambda _f, x, *_a, **_k: F.relu(x)


def _one_side(far: float, function: Call, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return x clamped only on the side of ``far``."""
    bound = float(function(torch.full((1,), far, dtype=torch.float64), *args, **kwargs))
    wide = x.double()
    return (wide.clamp_min(bound) if far < 0 else wide.clamp_max(bound)).to(x.dtype)


CHANGES: dict[str, Callable[[Node], Iterator[Call]]] = {
    "tanh GELU": _tanh_gelu,
    "sigmoid GELU": _sigmoid_gelu,
    "Taylor at 0": _taylor,
    "Taylor at the mean": _taylor_mean,
    "no bias": _without_bias,
    "eps x 10": _larger_eps,
    "no eps": _without_eps,
    "skip an operator": _skipped,
    "drop an operand": _dropped,
    "swap operands": _exchanged,
    "wrong axis": _wrong_axis,
    "no mask": _unmasked,
    "other clamp": _clamps,
}
