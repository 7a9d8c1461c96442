"""The search for the operators whose half-precision roundings an answer leaves out. No candidate's code runs here.

Eager rounds the result of every operator. Each variant of the graph keeps some results in float32 instead.
The search looks for the variant whose outputs differ from an answer in the fewest elements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_aggregate, map_arg

from pytest_passbench.plans.values import tensors_in
from pytest_passbench.rewrite.normalise import canonical

HALVES = (torch.bfloat16, torch.float16)
SECONDS = 1.5  # for the search, and as many again for dropping nodes that make no difference
SWEEPS = 3
BETTER = 0.98  # a new set of roundings must leave less than this share of the differing elements
_CASTS = ("half", "bfloat16")


def rounding_search(module: GraphModule) -> Callable[..., tuple[torch.Tensor]]:
    """Return the search on one call, as a function of the graph's inputs, followed by an answer's outputs.

    The result is one tensor of int64: the number of elements in which the answer differs from eager, the same for the
    best variant, and the positions (from 0) of the graph's nodes that this variant does not round. Later calls return
    the same result. It is two zeros for a graph that writes in place.
    """
    results = [torch.zeros(2, dtype=torch.int64)] if _changes_in_place(module) else []
    count = len(module.graph.find_nodes(op="placeholder"))

    def search(*values: torch.Tensor) -> tuple[torch.Tensor]:
        if not results:
            results.append(torch.tensor(_search(module, values[:count], values[count:])))
        return (results[0].clone(),)

    return search


def _changes_in_place(module: GraphModule) -> bool:
    calls = [node for node in module.graph.nodes if node.op in ("call_function", "call_method")]
    return any(node.kwargs.get("out") is not None or canonical(node).inplace for node in calls)


def _search(module: GraphModule, inputs: Sequence[torch.Tensor], answer: Sequence[torch.Tensor]) -> list[int]:
    variants = Variants(module, inputs)
    end, nodes = time.monotonic() + SECONDS, list(module.graph.nodes)

    def differing(unrounded: Iterable[Node]) -> int:
        """Return the number of elements that differ. Two NaN are equal."""
        outputs = variants.outputs(frozenset(unrounded))
        pairs = [pair for pair in zip(outputs, answer, strict=True) if pair[0].dtype in HALVES]
        return sum(int(((a != b) & ~(a.isnan() & b.isnan())).count_nonzero()) for a, b in pairs)

    starts: list[set[Node]] = [set(), set(variants.rounded)]
    results = [(differing(start), start) for start in starts]
    eager = results[0][0]
    results = [_improved(count, start, list(variants.rounded), differing, end) for count, start in results]
    least, best = min(results, key=lambda result: (result[0], len(result[1])))
    for node in variants.rounded:  # a node that makes no difference counts as rounded
        if node in best and time.monotonic() < end + SECONDS:
            without = differing(best - {node})
            if without <= least:
                least, best = without, best - {node}
    return [eager, least, *(number for number, node in enumerate(nodes) if node in best)]


def _improved(
    count: int, unrounded: set[Node], nodes: list[Node], differing: Callable[[Iterable[Node]], int], end: float
) -> tuple[int, set[Node]]:
    """Return the least number of differing elements, and the set that has it. Change one node after the other."""
    for _ in range(SWEEPS):
        before = count
        for node in nodes:
            if time.monotonic() > end or count == 0:
                return count, unrounded
            other = unrounded ^ {node}
            differing_now = differing(other)
            if differing_now < BETTER * count:
                count, unrounded = differing_now, other
        if count == before:
            break
    return count, unrounded


class Variants:
    """The variants of a graph on these inputs. ``rounded`` are the nodes whose result eager rounds, in order."""

    def __init__(self, module: GraphModule, inputs: Sequence[torch.Tensor]) -> None:
        self._nodes, self._inputs = list(module.graph.nodes), inputs
        self._interpreter = Interpreter(module, garbage_collect_values=False)
        self.rounded: dict[Node, torch.dtype] = {}
        self._halves: set[Node] = set()  # nodes with a half-precision result in eager
        eager: dict[Node, Any] = {}
        for node in self._nodes:
            eager[node] = self._eager(node, eager)
            halves = any(tensor.dtype in HALVES for tensor in tensors_in(eager[node]))
            if halves and node.op in ("call_function", "call_method"):
                self._halves.add(node)
                value = eager[node]
                wide = self._wide(node, eager)
                if isinstance(value, torch.Tensor) and not torch.equal(wide.float(), value.float()):
                    self.rounded[node] = value.dtype
        self._answers = tensors_in(eager[self._nodes[-1]])  # the last node is the output

    def outputs(self, unrounded: frozenset[Node]) -> list[torch.Tensor]:
        """Return the outputs, in eager's dtypes, that follow if the results of ``unrounded`` stay in float32."""
        values: dict[Node, Any] = {}
        wide: set[Node] = set()
        for node in self._nodes:
            if node not in unrounded and wide.isdisjoint(node.all_input_nodes):
                values[node] = self._eager(node, values)
            elif node.op == "output":
                values[node] = map_arg(node.args[0], values.__getitem__)
            else:
                result = self._wide(node, values)
                narrow = node in self.rounded and node not in unrounded
                values[node] = result.to(self.rounded[node]) if narrow else result
                if not narrow and node in self._halves:
                    wide.add(node)
        results = tensors_in(values[self._nodes[-1]])
        return [out.to(like.dtype) for out, like in zip(results, self._answers, strict=True)]

    def _eager(self, node: Node, values: dict[Node, Any]) -> Any:
        if node.op == "placeholder":
            return self._inputs[len(values)]
        return self._called(node, *map_arg((node.args, node.kwargs), values.__getitem__))

    def _wide(self, node: Node, values: dict[Node, Any]) -> Any:
        """Return a node's result with its operands in float32 and no cast to half precision."""
        args, kwargs = (
            map_aggregate(part, lambda item: _widened(values[item] if isinstance(item, Node) else item))
            for part in (node.args, node.kwargs)
        )
        if node.op == "call_method" and node.target in _CASTS:
            return args[0].float()
        return self._called(node, args, kwargs)

    def _called(self, node: Node, args: Any, kwargs: Any) -> Any:
        return getattr(self._interpreter, node.op)(node.target, args, kwargs)


def _widened(value: Any) -> Any:
    """Return a half-precision tensor, or dtype, as float32, also within a sequence."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_widened, value))
    if isinstance(value, torch.Tensor) and value.dtype in HALVES:
        return value.float()
    return torch.float32 if value in HALVES and isinstance(value, torch.dtype) else value
