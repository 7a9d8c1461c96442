"""Trace ``pattern`` and ``replacement_args`` into graphs. No tensor with data is made, and no operator computes."""

from __future__ import annotations

import contextlib
import inspect
import operator
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, Proxy, Tracer
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode

from pytest_passbench.plans.graphs import Traced
from pytest_passbench.rewrite.meta import metadata_nodes
from pytest_passbench.rewrite.passes import PassError

#: Checks of torch that return nothing. They refuse a symbol.
_CHECKS = (
    "_check", "_check_is_size", "_check_index", "_check_value", "_check_type", "_check_not_implemented",
    "_check_tensor_all", "_check_with",
)  # fmt: skip
#: The folders of torch and of this package. A frame in them is not code of a pass's author.
_FOREIGN_FOLDERS = (Path(torch.__file__).parent, Path(__file__).parents[1])
#: Functions of torch that take sizes one by one, and refuse symbols among them.
_SIZED = ("zeros", "ones", "empty", "rand", "randn")


class _Factories(TorchFunctionMode):
    """A mode in which calls without a symbol that make a tensor (``torch.arange(8)``) become nodes.

    They run on the meta device only.
    """

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _has_proxy((args, kwargs)):
            return func(*args, **kwargs)
        elsewhere = {**kwargs, "device": "meta"} if "device" in kwargs else kwargs
        with torch.device("meta"):
            result = func(*args, **elsewhere)
        if isinstance(result, torch.Tensor):
            return self._tracer.create_proxy("call_function", func, args, kwargs)
        return result  # torch.device("cuda"), torch.get_default_dtype(), ...


def _has_proxy(value: Any) -> bool:
    leaves = list[Any]()
    map_aggregate(value, leaves.append)
    return any(isinstance(leaf, Proxy) for leaf in leaves)


class _InPlaceProxy(Proxy):
    """A symbol that keeps ``x += y`` for a tensor, since its views change too. FX would make it ``x = x + y``."""


def _augmented(name: str) -> Callable[..., Any]:
    in_place, plain = getattr(operator, f"i{name.rstrip('_')}"), getattr(operator, name)

    def method(self: _InPlaceProxy, other: Any) -> Any:
        number = self.node in metadata_nodes(self.node.graph)
        return self.tracer.create_proxy("call_function", plain if number else in_place, (self, other), {})

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "xor"):
    setattr(_InPlaceProxy, f"__i{_name}__", _augmented(_name))
_InPlaceProxy.__iand__, _InPlaceProxy.__ior__ = _augmented("and_"), _augmented("or_")


class _Tracer(Tracer):
    """A tracer for which each function and method of torch is a leaf."""

    def __init__(self) -> None:
        super().__init__(param_shapes_constant=False)
        self.graph = Graph(tracer_cls=_Tracer)
        self.root = torch.nn.Module()
        self.tensor_attrs: dict[Any, str] = {}

    def proxy(self, node: Node) -> Proxy:
        return _InPlaceProxy(node, self)


def as_function(value: Any) -> Any:
    """Return the function of a ``torch.fx.Graph``, a GraphModule or another module. Return anything else as it is."""
    if isinstance(value, Graph):
        value = GraphModule(value.owning_module or torch.nn.Module(), value)
    return value.forward if isinstance(value, torch.nn.Module) else value


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the argument names of a function. Raises ValueError for ``*args`` or ``**kwargs``."""
    parameters_ = inspect.signature(function).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters_):
        raise ValueError("takes *args or **kwargs; name every argument")
    return [p.name for p in parameters_]


def trace(name: str, label: str, function: Callable[..., Any], arguments: list[str]) -> Traced:
    """Return the trace of ``function`` on symbols.

    Raises PassError, with the pass and ``label``, if the function raises an exception.
    """
    tracer = _Tracer()
    proxies = [tracer.create_proxy("placeholder", arg, (), {}) for arg in arguments]
    try:
        with _without_effects(), _Factories(tracer):
            returned = function(*proxies)
        result = tracer.create_arg(returned)
    except PassError:
        raise
    except Exception as error:
        file, line = place_in(error, lambda path: not any(map(path.is_relative_to, _FOREIGN_FOLDERS)))
        place = f" ({file}:{line})" if file else ""
        raise PassError(name, f"{label} cannot be traced: {type(error).__name__}: {error}{place}") from error
    tracer.graph.output(result)
    return Traced(tracer.graph)


@contextlib.contextmanager
def _without_effects() -> Iterator[None]:
    """Switch torch's checks off, let functions take symbols as sizes, and restore the gradient mode at the end."""
    replaced: dict[str, Callable[..., Any]] = {
        name: lambda *_args, **_kwargs: None for name in _CHECKS if hasattr(torch, name)
    }
    replaced |= {name: _sized(getattr(torch, name)) for name in _SIZED}
    originals = {name: getattr(torch, name) for name in replaced}
    grad = torch.is_grad_enabled()
    try:
        for name, function in replaced.items():
            setattr(torch, name, function)
        yield
    finally:
        for name, function in originals.items():
            setattr(torch, name, function)
        torch.set_grad_enabled(grad)


def _sized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes sizes one by one, symbols as well, and hands them on as a tuple."""

    def call(*size: Any, **options: Any) -> Any:
        return function(size, **options) if len(size) > 1 and _has_proxy(size) else function(*size, **options)

    return call


def place_in(error: BaseException, is_looked_for: Callable[[Path], bool]) -> tuple[str, int]:
    """Return the file and line of the deepest frame in a file that is looked for, or an empty file and 0."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    return next((place for place in reversed(frames) if is_looked_for(Path(place[0]))), ("", 0))
