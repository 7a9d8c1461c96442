"""Traced functions as data: a list of calls, in which a call refers to the results of earlier ones by number."""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, Node

from pytest_passbench.core.schema import Anything, Fields, Items, Row, Text, Word, refusal
from pytest_passbench.core.typed import schema_of
from pytest_passbench.plans.values import MAX_ITEMS, MAX_NAME_CHARACTERS, Identifier, decode, encode
from pytest_passbench.suite.allowlist import resolve, spelling

MAX_CALLS = 2000
_MODULES = (("torch", torch), ("torch.nn.functional", torch.nn.functional), ("operator", operator), ("math", math))
_IDENTIFIER = schema_of(Identifier)
_TARGET, _VALUES = Text(MAX_NAME_CHARACTERS), Items(Anything(), MAX_ITEMS)
_CALL = Row(Word("call_function", "call_method"), _TARGET, _VALUES, schema_of(dict[str, Any]))
_FORM = Fields({"arguments": Items(_IDENTIFIER, MAX_CALLS), "calls": Items(_CALL, MAX_CALLS), "result": Anything()})


@dataclass(frozen=True)
class Traced:
    """A traced function."""

    graph: Graph

    @property
    def placeholders(self) -> tuple[Node, ...]:
        """The nodes that stand for its arguments, in order."""
        return tuple(self.graph.find_nodes(op="placeholder"))

    @property
    def result(self) -> Any:
        """The returned value."""
        return self.graph.output_node().args[0]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The returned values. A single value is a tuple of one."""
        return tuple(self.result) if isinstance(self.result, (tuple, list)) else (self.result,)


def to_data(traced: Traced) -> dict[str, Any]:
    """Return a traced function as JSON-ready data.

    Raises Rejected for a node that is not a call, a function that is not torch's or Python's, and a constant that
    :func:`~pytest_passbench.plans.values.encode` refuses.
    """
    numbers: dict[Node, int] = {}
    names: list[str] = []
    calls: list[list[Any]] = []

    def reference(value: Any) -> Any:
        return {"node": numbers[value]} if isinstance(value, Node) else None

    for node in traced.graph.nodes:
        if node.op == "placeholder":
            names.append(str(node.target))
        elif node.op in ("call_function", "call_method"):
            target = str(node.target) if node.op == "call_method" else function_name(node.target)
            arguments = [encode(value, reference) for value in node.args]
            keywords = {key: encode(value, reference) for key, value in node.kwargs.items()}
            calls.append([node.op, target, arguments, keywords])
        elif node.op != "output":
            raise refusal(f"a {node.op} ({node.target}): a tensor or module made outside of the function")
        numbers[node] = len(numbers)
    return {"arguments": names, "calls": calls, "result": encode(traced.result, reference)}


def from_data(data: Any, node_names: Sequence[str] = ()) -> Traced:
    """Return the traced function that :func:`to_data` wrote. Raises Rejected for any other data.

    No function that the data names is called: the nodes of the graph only refer to them. ``node_names`` are those of
    arguments and calls, in order; without them the nodes get names by what they call.
    """
    stated = _FORM.check(data)
    names, calls = stated["arguments"], stated["calls"]
    if len(names) + len(calls) > MAX_CALLS:
        raise refusal(f"more than {MAX_CALLS} calls")
    if len(node_names) not in (0, len(names) + len(calls)):
        raise refusal("names for another number of calls")
    graph, nodes = Graph(), list[Node]()
    labels = iter(node_names or itertools.repeat(None))

    def reference(tag: str, content: Any) -> Any:
        if tag != "node" or type(content) is not int or not 0 <= content < len(nodes):
            raise refusal("a reference to something else than an earlier call")
        return nodes[content]

    for name in names:
        nodes.append(graph.create_node("placeholder", name, name=next(labels)))
    for kind, target, arguments, keywords in calls:
        args = tuple(decode(value, reference) for value in arguments)
        kwargs = {_IDENTIFIER.check(key): decode(value, reference) for key, value in keywords.items()}
        function = _IDENTIFIER.check(target) if kind == "call_method" else function_of(target)
        nodes.append(graph.create_node(kind, function, args, kwargs, name=next(labels)))
    graph.output(decode(stated["result"], reference))
    return Traced(graph)


def function_name(target: Any) -> str:
    """Return the dotted name of a function. Raises Rejected if it is neither torch's nor Python's."""
    name = spelling(target) or _names_by_id().get(id(target))
    if name is None:
        raise refusal(f"a call of {getattr(target, '__name__', target)!r}, which is no function of torch")
    return name


def function_of(name: str) -> Any:
    """Return the function with this dotted name. Raises Rejected if there is none."""
    function = _functions().get(name)
    if function is not None:
        return function
    try:
        return resolve(name)
    except Exception as error:
        raise refusal(f"no function of torch is called {name[:80]!r}") from error


@cache
def _functions() -> dict[str, Any]:
    """Return functions beyond the suite's allow-list, by name. A pattern may name them; nothing here calls them."""
    functions = {
        f"{prefix}.{name}": value
        for prefix, module in _MODULES
        for name, value in vars(module).items()
        if callable(value) and not isinstance(value, type) and not name.startswith("__")
    }
    plain = ("int", "float", "max", "min", "len", "tuple", "list", "getattr")
    return functions | {name: getattr(builtins, name) for name in plain} | {opaque_call.__name__: opaque_call}


def opaque_call(*_values: Any) -> None:
    """Stand in a graph as data for a call that data cannot name, such as a kernel's. Nothing calls it."""


@cache
def _names_by_id() -> dict[int, str]:
    return {id(value): name for name, value in reversed(_functions().items())}
