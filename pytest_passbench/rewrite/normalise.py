"""The canonical form of a call: an operator's name, and its arguments by parameter name.

``x.softmax(-1)``, ``torch.softmax(x, dim=-1)``, ``F.softmax(x, -1)`` and ``torch.ops.aten.softmax.int(x, -1)`` all
become ``CanonicalCall("softmax", {"input": x, "dim": -1})``. Parameter names come from the ATen schemas. If an
operator has no schema they come from the Python signature. :mod:`pytest_passbench.rewrite.names` lists names that
neither has.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.rewrite import names

Signature = inspect.Signature


@dataclass(frozen=True)
class CanonicalCall:
    """A canonical call.

    ``args`` maps parameter names to nodes, literals, or tuples of them, with defaults filled in. ``inplace`` is True
    if the call changes its input. ``dropped`` are the arguments that cannot change a value, which nobody compares.
    ``x.T`` is a transposition unless ``x`` has a recorded value of another rank than 2.
    """

    op: str
    args: dict[str, Any] = field(default_factory=dict)
    inplace: bool = False
    dropped: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """Return the argument, or the value that an absent argument has."""
        return self.args.get(name, names.ABSENT.get(name))


def canonical(node: Node) -> CanonicalCall:
    """Return the canonical form of an operator node (``call_function`` or ``call_method``)."""
    args, kwargs = list(plain(tuple(node.args))), {k: plain(v) for k, v in node.kwargs.items()}
    if node.op == "call_method":
        return _method(str(node.target), args, kwargs)
    return _function(node.target, args, kwargs)


def _function(target: Any, args: list[Any], kwargs: dict[str, Any]) -> CanonicalCall:
    if target in (operator.getitem, operator.setitem):
        return _index(args, target is operator.setitem)
    if target in names.INPLACE_OPERATORS:
        return _named(names.INPLACE_OPERATORS[target], args, kwargs, inplace=True)
    if target in names.OPERATORS:
        return _named(names.OPERATORS[target], args, kwargs)
    if target is getattr:
        return _attribute(args[0], str(args[1]))
    if isinstance(target, torch._ops.OpOverload):
        return _overload(target, args, kwargs)
    name = target_name(target)
    inplace = _is_inplace_name(name)
    return _named(name.rstrip("_") if inplace else name, args, kwargs, target, inplace)


def _method(name: str, args: list[Any], kwargs: dict[str, Any]) -> CanonicalCall:
    if name in names.CONVERSIONS:
        return CanonicalCall("to", {"input": args[0], "dtype": names.CONVERSIONS[name]})
    if name in ("to", "type"):
        return _converted(args, kwargs)
    if name == "where":  # x.where(condition, other) is torch.where(condition, x, other)
        return CanonicalCall("where", _bind_names(["input", "condition", "other"], args, kwargs))
    if name in ("type_as", "view_as", "reshape_as"):
        return CanonicalCall(name, {"input": args[0], "other": args[1] if len(args) > 1 else kwargs.get("other")})
    if name.startswith("__"):
        return _dunder(name.strip("_"), args, kwargs)
    inplace = _is_inplace_name(name)
    return _named(name[:-1] if inplace else name, args, kwargs, getattr(torch.Tensor, name, None), inplace)


def _converted(args: list[Any], kwargs: dict[str, Any]) -> CanonicalCall:
    """Return the call of ``to`` or ``type``. A node that may be a dtype, device or tensor gets the name ``other``."""
    result: dict[str, Any] = {"input": args[0]}
    result.update({_conversion_name(value): value for value in args[1:] if not isinstance(value, bool)})
    result.update({k: v for k, v in kwargs.items() if k not in names.IRRELEVANT})
    return CanonicalCall("to", result, dropped={k: v for k, v in kwargs.items() if k in names.IRRELEVANT})


def _conversion_name(value: Any) -> str:
    if isinstance(value, Node):
        return "other"
    return "dtype" if isinstance(value, torch.dtype) else "device"


def _dunder(name: str, args: list[Any], kwargs: dict[str, Any]) -> CanonicalCall:
    if name in ("getitem", "setitem"):
        return _index(args, name == "setitem")
    if name in names.DUNDERS:
        return _named(names.DUNDERS[name], args, kwargs)
    if name[0] == "r" and name[1:] in names.DUNDERS:
        return _named(names.DUNDERS[name[1:]], args[::-1], kwargs)
    if name[0] == "i" and name[1:] in names.DUNDERS:
        return _named(names.DUNDERS[name[1:]], args, kwargs, inplace=True)
    return CanonicalCall(name, _bind_names([], args, kwargs))


def _index(args: list[Any], assigns: bool) -> CanonicalCall:
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    bound = {"input": args[0], "index": tuple(_plain_slice(item) for item in index)}
    if assigns:
        return CanonicalCall("setitem", {**bound, "value": args[2]}, inplace=True)
    return CanonicalCall("getitem", bound)


def _plain_slice(item: Any) -> Any:
    if not isinstance(item, slice):
        return item
    stop = None if isinstance(item.stop, int) and item.stop >= 2**63 - 1 else item.stop
    return slice(0 if item.start is None else item.start, stop, 1 if item.step is None else item.step)


def _attribute(value: Any, name: str) -> CanonicalCall:
    fields = {"values": 0, "indices": 1}  # of the named tuples that max, topk, sort return
    if name in fields:
        return CanonicalCall("getitem", {"input": value, "index": (fields[name],)})
    described = value.meta.get("passbench") if isinstance(value, Node) else None
    reversed_all = name == "T" and isinstance(described, torch.Tensor) and described.dim() != 2
    if name in ("T", "mT") and not reversed_all:
        return CanonicalCall("transpose", {"input": value, "dim0": -2, "dim1": -1})
    return CanonicalCall("getattr", {"input": value, "name": name})


def _overload(target: Any, args: list[Any], kwargs: dict[str, Any]) -> CanonicalCall:
    name = target._schema.name.split("::")[-1]
    inplace = _is_inplace_name(name)
    stem = name[:-1] if inplace else name
    op = names.ALIASES.get(stem, stem)
    signature = overload_signature(target)
    bound = bind(signature, args, kwargs) if signature else None
    if bound is None:
        return CanonicalCall(op, _bind_names([], args, kwargs), inplace)
    return _finish(op, bound, inplace)


def target_name(target: Any) -> str:
    """Return a callable's operator name.

    It is ``gelu`` for ``torch._C._nn.gelu``, and ``linalg_norm`` for ``torch.linalg.norm``.
    """
    if isinstance(target, torch._ops.OpOverloadPacket):
        return str(target._qualified_op_name).split("::")[-1]
    return str(getattr(target, "__name__", None) or type(target).__name__)


def _is_inplace_name(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _named(
    name: str, args: list[Any], kwargs: dict[str, Any], target: Any = None, inplace: bool = False
) -> CanonicalCall:
    op = names.ALIASES.get(name, name)
    if op in names.OPERATORS.values() and not kwargs and len(args) <= 2:
        keys = ("input", names.RENAMED_IN.get(op, {}).get("other", "other"))
        return CanonicalCall(op, dict(zip(keys, args, strict=False)), inplace)
    for signature in signatures(name, target):
        bound = bind(signature, args, kwargs)
        if bound is not None:
            return _finish(op, bound, inplace)
    return _finish(op, _bind_names([], args, kwargs), inplace)


def _finish(op: str, bound: dict[str, Any], inplace: bool) -> CanonicalCall:
    args, dropped = _rename(op, bound)
    if op == "rsub":
        args["input"], args["other"] = args["other"], args["input"]
        op = "sub"
    elif op == "square":
        op, args = "pow", {"input": args["input"], "exponent": 2}
    elif op == "t":
        op, args = "transpose", {"input": args["input"], "dim0": -2, "dim1": -1}
    elif op in ("std", "var", "std_mean", "var_mean"):
        if not isinstance(args.get("unbiased"), Node):  # a pattern's argument, which Search compares
            unbiased = int(args.pop("unbiased", True))
            args["correction"] = args["correction"] if args.get("correction") is not None else unbiased
    elif op == "arange":
        args = {"start": 0, "step": 1, **args}
    if type(args.get("reduction")) is int:  # of a loss: ATen's number for what functions of torch.nn name by a word
        args["reduction"] = names.REDUCTIONS.get(args["reduction"], args["reduction"])
    return CanonicalCall(op, args, inplace or dropped.get("inplace") is True, dropped)


def _rename(op: str, bound: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments under their canonical names: those that count, and those that cannot change a value."""
    renamed, irrelevant = names.RENAMED_IN.get(op, {}), names.IRRELEVANT | names.IRRELEVANT_IN.get(op, frozenset())
    result: dict[str, Any] = {}
    dropped: dict[str, Any] = {}
    for name, value in bound.items():
        name = names.RENAMED.get(name, name)
        name = renamed.get(name, name)
        (dropped if name in irrelevant else result)[name] = value
    return result, dropped


def _bind_names(order: list[str], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    labels = order or ["input"]
    bound = {labels[i] if i < len(labels) else f"arg{i}": value for i, value in enumerate(args)}
    return {**bound, **kwargs}


def plain(value: Any) -> Any:
    """Return FX's immutable lists, tuples, sizes and slices as plain tuples and slices, recursively."""
    if isinstance(value, (list, tuple)):
        return tuple(plain(item) for item in value)
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value


def signatures(name: str, target: Any) -> Iterator[Signature]:
    """Yield the signatures that a call of this operator may have: those of its overloads, then Python's."""
    yield from _schema_signatures(name)
    python_signature = _python_signature(target) if callable(target) else None
    if python_signature is not None:
        yield python_signature


@cache
def _schema_signatures(name: str) -> tuple[Signature, ...]:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads() if "out" not in overload]
    tensors = [s for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)]
    signatures = (_from_schema(schema) for schema in tensors or schemas)
    return tuple(s for s in signatures if s is not None)


@cache
def overload_signature(target: Any) -> Signature | None:
    """Return the signature of an ATen overload, or None if it cannot be a signature of Python's."""
    return _from_schema(target._schema)


def _from_schema(schema: Any) -> Signature | None:
    kinds = inspect.Parameter
    parameters = [
        kinds(
            a.name + "_" if a.name in ("from", "is", "in") else a.name,  # Python's keywords cannot be parameters
            kinds.KEYWORD_ONLY if a.kwarg_only else kinds.POSITIONAL_OR_KEYWORD,
            default=a.default_value if a.has_default_value() else kinds.empty,
            annotation=str(a.real_type),
        )
        for a in schema.arguments
    ]
    try:
        return Signature(parameters)
    except ValueError:
        return None


@cache
def _python_signature(target: Callable[..., Any]) -> Signature | None:
    dispatched = torch._jit_internal.boolean_dispatched.get(target)
    try:
        return inspect.signature(dispatched["if_false"] if dispatched else target)
    except (TypeError, ValueError):
        return None


def bind(signature: Signature, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments by name with defaults, or None if the call does not fit the signature."""
    args, kwargs = _gather(signature, args), _aliased(signature, kwargs)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    arguments = dict(bound.arguments)
    for name, value in arguments.items():
        annotation = signature.parameters[name].annotation
        if isinstance(annotation, str) and not _fits(annotation, value):
            return None
    bound.apply_defaults()
    return {name: _widen(signature, name, value) for name, value in bound.arguments.items()}


def _aliased(signature: Signature, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments under the names that the signature uses (axis for dim, input for self)."""
    result = {}
    for name, value in kwargs.items():
        if name not in signature.parameters:
            parameters = [p for p in signature.parameters if names.RENAMED.get(p, p) == names.RENAMED.get(name, name)]
            name = parameters[0] if parameters else name
        result[name] = value
    return result


def _gather(signature: Signature, args: list[Any]) -> list[Any]:
    """Return ``x.view(2, 3)`` as ``x.view((2, 3))``: trailing integers become the list that the signature ends with.

    Like torch, it leaves a call alone whose list is not the last positional parameter.
    """
    positional = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    first = len(positional) - 1
    listed = bool(positional) and _is_list(positional[first].annotation)
    if listed and len(args) > len(positional) and all(_is_size(value) for value in args[first:]):
        return [*args[:first], tuple(args[first:])]
    return args


def _is_list(annotation: Any) -> bool:
    return isinstance(annotation, str) and "List[" in annotation


def _is_size(value: Any) -> bool:
    return isinstance(value, Node) or (isinstance(value, int) and not isinstance(value, bool))


def _widen(signature: Signature, name: str, value: Any) -> Any:
    """Return an integer for a list as a tuple, as in ``expand(4)``. One for all axes stays, as in ``stride=2``."""
    annotation = signature.parameters[name].annotation
    listed = _is_list(annotation) and "Tensor" not in annotation and name not in names.WIDENED
    if listed and isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    return plain(value)


def _fits(annotation: str, value: Any) -> bool:
    """Return True if a literal fits a schema type such as ``Optional[List[int]]``. A node fits all types."""
    if isinstance(value, Node):
        return True
    if value is None:
        return annotation.startswith("Optional[")
    inner = annotation.removeprefix("Optional[")
    if isinstance(value, tuple):
        return inner.startswith("List[") and all(_fits(inner[5:], item) for item in value)
    for kind, prefixes in _LITERAL_TYPES:
        if isinstance(value, kind):
            return inner.removeprefix("List[").startswith(prefixes)
    return True


_LITERAL_TYPES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (bool, ("bool", "number", "Scalar]", "int")),
    (int, ("int", "number", "float", "SymInt", "complex", "Tensor")),
    (float, ("float", "number", "complex", "Tensor")),
    (str, ("str", "Device", "Dimname")),
    (torch.dtype, ("ScalarType",)),
    (torch.device, ("Device",)),
    (torch.memory_format, ("MemoryFormat",)),
)
