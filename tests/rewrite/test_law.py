"""Random graphs, and patterns cut out of them: all that torch.fx's own matcher finds matches, and no bit changes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, getitem, iadd
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from pytest_passbench.reader.importing import LoadedPass
from support.reference_passes import apply_passes

WHOLE, HALF, TWO, SIZE = "a tensor (4, 4)", "a tensor (2, 4)", "two tensors (2, 4)", "a size"
#: Kinds of operands and of the result, and how the call is added to a graph. Each computes the same bits for any
#: strides of its operands.
CALLS: list[tuple[tuple[str, ...], str, Any]] = [
    ((WHOLE,), WHOLE, lambda g, x: g.call_method("relu", (x,))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_function(torch.neg, (x,))),
    ((HALF,), HALF, lambda g, x: g.call_method("abs", (x,))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_function(F.hardtanh, (x, -1.0, 1.5))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_method("clamp", (x,), {"max": 0.5})),
    ((WHOLE,), WHOLE, lambda g, x: g.call_method("transpose", (x, 0, 1))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_method("transpose", (x, -1, -2))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_function(torch.roll, (x, 1, -1))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_function(add, (x, 2))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_function(torch.mul, (x, 0.5))),
    ((WHOLE, WHOLE), WHOLE, lambda g, x, y: g.call_function(add, (x, y))),
    ((WHOLE, WHOLE), WHOLE, lambda g, x, y: g.call_function(torch.mul, (x, y))),
    ((HALF, HALF), HALF, lambda g, x, y: g.call_method("sub", (x, y))),
    ((WHOLE, WHOLE), WHOLE, lambda g, x, y: g.call_function(torch.maximum, (x, y))),
    ((WHOLE,), HALF, lambda g, x: g.call_function(getitem, (x, slice(None, 2, None)))),
    ((WHOLE,), HALF, lambda g, x: g.call_function(getitem, (x, slice(2, None, None)))),
    ((WHOLE,), TWO, lambda g, x: g.call_method("chunk", (x, 2), {"dim": 0})),
    ((TWO,), HALF, lambda g, x: g.call_function(getitem, (x, 0))),
    ((TWO,), HALF, lambda g, x: g.call_function(getitem, (x, 1))),
    ((HALF, HALF), WHOLE, lambda g, x, y: g.call_function(torch.cat, ([x, y], 0))),
    ((HALF, HALF), WHOLE, lambda g, x, y: g.call_function(torch.cat, ((x, y),), {"dim": -2})),
    ((WHOLE,), SIZE, lambda g, x: g.call_method("size", (x, 0))),
    ((WHOLE, SIZE), WHOLE, lambda g, x, n: g.call_method("reshape", (x, n, -1))),
]
WRITES: list[tuple[tuple[str, ...], str, Any]] = [
    ((WHOLE,), WHOLE, lambda g, x: g.call_method("relu_", (x,))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_function(F.hardtanh, (x, -1.0, 1.5, True))),
    ((HALF,), HALF, lambda g, x: g.call_function(iadd, (x, 2))),
    ((WHOLE, WHOLE), WHOLE, lambda g, x, y: g.call_method("add_", (x, y))),
    ((HALF, HALF), HALF, lambda g, x, y: g.call_function(iadd, (x, y))),
    ((WHOLE,), WHOLE, lambda g, x: g.call_method("view", (x, 4, 4))),
]


def writes(node: Node) -> bool:
    return node.target in ("relu_", "add_", iadd) or node.args[3:] == (True,)


class Chance:
    """Choices that bytes determine. hypothesis draws bytes faster than single choices, and shrinks them as well."""

    def __init__(self, tape: bytes) -> None:
        self._tape = iter(tape)

    def below(self, limit: int) -> int:
        return next(self._tape, 0) % limit

    def of(self, values: Sequence[Any]) -> Any:
        return values[self.below(len(values))]


def program(chance: Chance, calls: list[Any], most: int) -> Graph:
    """Return a graph of up to ``most`` calls of two inputs, with up to four outputs."""
    graph = Graph()
    values = [(graph.placeholder(f"in_{i}"), WHOLE) for i in range(2)]
    for _ in range(1 + chance.below(most)):
        kinds, result, make = chance.of(calls)
        fitting = [[node for node, kind in reversed(values) if kind == wanted] for wanted in kinds]
        if all(fitting):
            values.append((make(graph, *map(chance.of, fitting)), result))
    tensors = [node for node, kind in reversed(values) if kind in (WHOLE, HALF)]
    graph.output((*(chance.of(tensors) for _ in range(chance.below(4))), tensors[0]))
    return graph


def cut(chance: Chance, graph: Graph, *, whole: bool) -> Graph | None:
    """Return a pattern of some calls of the graph, or None if it would return no operator.

    Without ``whole`` it may have a write whose result it does not return.
    """
    calls = [node for node in graph.nodes if node.op.startswith("call")]
    last = len(calls) - 1 - chance.below(len(calls)) if calls else 0
    chosen = set(calls[last : last + 1])
    for node in reversed(calls[:last]):
        if chance.below(4 if chosen & set(node.users) else 10) in (1, 2, 3):
            chosen.add(node)
    chosen |= {node.args[0] for node in chosen if node.target is getitem and node.args[1] in (0, 1)}
    chosen -= {node for node in chosen if node.target == "size" and not chosen & set(node.users)}
    pattern, copies = Graph(), dict[Node, Node]()
    for node in dict.fromkeys(n for call in calls if call in chosen for n in call.all_input_nodes if n not in chosen):
        copies[node] = pattern.placeholder(f"a{len(copies)}")
    literals, numbers = chance.below(2), list[Node]()

    def argument(value: Any) -> Any:
        if literals and node.target != "size" and type(value) in (int, float) and chance.below(2):
            with pattern.inserting_before(next(iter(pattern.nodes))):
                numbers.append(pattern.placeholder(f"n{len(numbers)}"))
            return numbers[-1]
        return tuple(map(argument, value)) if isinstance(value, tuple) else value

    for node in calls:
        if node in chosen:
            copies[node] = pattern.node_copy(node, copies.__getitem__)
            copies[node].args = argument(copies[node].args)
    returned = [n for n in calls if n in chosen and n.target != "size" and (set(n.users) - chosen or not n.users)]
    inner = [n for n in returned if set(n.users) & chosen or (not whole and writes(n))]
    returned = [n for n in returned if n not in inner or chance.below(4)] or returned[-1:]
    if not returned or all(n.target is getitem for n in chosen):
        return None
    results = tuple(copies[n] for n in returned)
    pattern.output(results[0] if len(results) == 1 else results)
    return pattern


def reference(pattern: Graph) -> LoadedPass:
    """Return a pass whose kernel is the pattern itself, run on copies."""
    module = GraphModule(torch.nn.Module(), pattern)
    names = [str(node.target) for node in pattern.nodes if node.op == "placeholder"]

    def wrapper(*args: Any) -> Any:
        return module.forward(*_copied(args))

    scope: dict[str, Any] = {}
    exec(f"def replacement_args({', '.join(names)}): return ({''.join(name + ', ' for name in names)})", scope)
    return LoadedPass("p", module.forward, scope["replacement_args"], lambda: wrapper, wrapper, Path("p.py"))


def _copied(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_copied(item) for item in value)
    return value.clone() if isinstance(value, torch.Tensor) else value


def bits(values: Any) -> list[Any]:
    return [value.contiguous().view(torch.int64).tolist() for value in values]


def same_bits(graph: Graph, pattern: Graph) -> Any:
    """Rewrite a graph with a pattern, and require the same outputs, and the same inputs afterwards."""
    before = GraphModule(torch.nn.Module(), graph)
    note(f"{before.code}{pattern.python_code('self').src}")
    inputs = [torch.randn(4, 4, dtype=torch.float64) for _ in range(2)]
    with torch.no_grad():
        one, other = _copied(inputs), _copied(inputs)
        try:
            expected = before.forward(*one)
        except RuntimeError:  # the graph adds a transposed tensor to itself in place
            reject()
        result = apply_passes(before, [reference(pattern)], inputs)
        found = result.module.forward(*other)
    assert bits(found) == bits(expected)
    assert bits(other) == bits(one)
    return result


def matches(pattern: Graph, graph: Graph) -> list[Any]:
    """Return what torch.fx's matcher finds, and [] if the graph lacks an operator, for which it may raise."""
    wanted, present = ({(n.op, n.target) for n in g.nodes if n.op.startswith("call")} for g in (pattern, graph))
    return SubgraphMatcher(pattern).match(graph) if wanted <= present else []


def finds_as_much(tape: bytes) -> None:
    chance = Chance(tape)
    graph = program(chance, CALLS, most=10)
    pattern = cut(chance, graph, whole=True)
    if pattern is not None:
        result = same_bits(graph, pattern)
        assert result.matches or not matches(pattern, graph), result.reports[0].miss
        assert not matches(pattern, result.module.graph)


def keeps_writes(tape: bytes) -> None:
    chance = Chance(tape)
    graph = program(chance, CALLS + 2 * WRITES, most=12)
    pattern = cut(chance, graph, whole=False)
    if pattern is not None:
        same_bits(graph, pattern)


TAPES = st.binary(min_size=96, max_size=96)


@settings(max_examples=150)
@given(TAPES)
def test_what_the_matcher_of_torch_finds_is_found(tape):
    finds_as_much(tape)


@settings(max_examples=150)
@given(TAPES)
def test_writes_are_seen_as_before(tape):
    keeps_writes(tape)


@pytest.mark.slow
@settings(max_examples=1000)
@given(TAPES)
def test_what_the_matcher_of_torch_finds_is_found_always(tape):
    finds_as_much(tape)


@pytest.mark.slow
@settings(max_examples=1000)
@given(TAPES)
def test_writes_are_seen_as_before_always(tape):
    keeps_writes(tape)
