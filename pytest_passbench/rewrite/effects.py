"""Effects of in-place operators: copies that a replacement must make, and reasons why it must not be made.

A kernel returns its results and changes no argument. If the rest of the graph can see a write of the match, a
``copy_`` of the kernel's result into the written tensor preserves it. If that is impossible the place does not match,
and a message gives the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from pytest_passbench.rewrite.meta import storages, value_of
from pytest_passbench.rewrite.normalise import Call, canonical


@dataclass(frozen=True)
class Effects:
    """The effects of a match. ``copy_back`` maps a returned node to the outer tensor that gets its value."""

    copy_back: dict[Node, Node] = field(default_factory=dict)


def written_storages(node: Node) -> set[int]:
    """Return the storages that a node writes to, by identity."""
    targets = list(node.meta.get("passbench_writes", ()))
    if not targets and node.op in ("call_function", "call_method") and "passbench_pass" not in node.meta:
        call = canonical(node)
        base = call.args.get("input")
        targets = [base] if call.inplace and isinstance(base, Node) else []
    return set().union(*(storages(value_of(t)) for t in targets))


def hazards(nodes: tuple[Node, ...], returned: set[Node], order: dict[Node, int]) -> Effects | str:
    """Return the effects of replacing ``nodes`` (in graph order) by a call at the end, or the reason against it.

    ``returned`` are the nodes whose values the pattern returns. ``order`` has the position of each node of the graph.
    """
    matched = set(nodes)
    later = _descendants(matched)
    problem = _outside_writes(nodes, matched, returned, later, order) or _moved(nodes, matched, order)
    if problem:
        return problem
    copies: dict[Node, Node] = {}
    for storage in set().union(*(written_storages(node) for node in nodes)):
        writers = [node for node in nodes if storage in written_storages(node)]
        if not _observed(storage, writers[0], matched, later, order):
            continue
        base = _base(writers[-1], matched)
        if base is None or writers[-1] not in returned:
            return f"{writers[-1].name} changes a tensor that is used elsewhere; the pattern must return its result"
        copies[writers[-1]] = base
    return Effects(copies)


def _moved(nodes: tuple[Node, ...], matched: set[Node], order: dict[Node, int]) -> str:
    """Return the reason why a use of a result cannot move behind the match's last operator, or nothing.

    A node that uses a result before that operator has to move, and it must not move past a write.
    """
    span = list(order)[order[nodes[0]] : order[nodes[-1]]]
    early = [n for n in span if n not in matched and matched & set(n.all_input_nodes)]
    writers = [n for n in (*span, nodes[-1]) if written_storages(n)]
    return f"{early[0].name} uses a result before {writers[0].name} writes in place" if early and writers else ""


def hidden_reads(calls: dict[Node, Call], binding: dict[Node, Any], order: dict[Node, int]) -> str:
    """Return the difference between pattern and target in reads after a write through another name, or nothing.

    Such a read (``v = x.view(-1); v.add_(1); x.sin()``) shows only in the order of the operators. Matching compares
    the data flow, and does not see it.
    """
    position = {node: i for i, node in enumerate(calls)}
    for writer, call in calls.items():
        below = _descendants({writer}), _descendants({binding[writer]})
        memory = storages(value_of(canonical(binding[writer]).args.get("input")))
        for node in calls:
            found = binding[node]
            reads = set().union(*(storages(value_of(n)) for n in found.all_input_nodes)) & memory
            if not reads or found is binding[writer]:
                continue
            behind = order[found] > order[binding[writer]] and found not in below[1]
            there = bool(written_storages(binding[writer])) and behind
            here = call.inplace and position[node] > position[writer] and node not in below[0]
            if there != here:
                other = binding[writer].name
                return f"{found.name} reads a tensor that {other} writes, in another order than in pattern"
    return ""


def _descendants(matched: set[Node]) -> set[Node]:
    """Return the nodes that depend on these, without these."""
    seen: set[Node] = set()
    front = [user for node in matched for user in node.users]
    while front:
        node = front.pop()
        if node not in seen:
            seen.add(node)
            front.extend(node.users)
    return seen - matched


def _observed(storage: int, first: Node, matched: set[Node], later: set[Node], order: dict[Node, int]) -> bool:
    """Return True if a node outside can see a write to ``storage`` without using a result of the match."""
    for node in order:
        if node in matched or node in later or storage not in storages(value_of(node)):
            continue
        if node.op in ("placeholder", "get_attr") or any(
            order[u] > order[first] for u in node.users if u not in matched
        ):
            return True
    return False


def _base(writer: Node, matched: set[Node]) -> Node | None:
    """Return the outer tensor that a chain of in-place calls writes to: the tensor itself, not a view. Else None."""
    node = writer
    while node in matched:
        base = canonical(node).args.get("input")
        if not isinstance(base, Node) or value_of(base) is not value_of(node):
            return None
        node = base
    return node


def _outside_writes(
    nodes: tuple[Node, ...], matched: set[Node], returned: set[Node], later: set[Node], order: dict[Node, int]
) -> str:
    """Return the reason if a node outside writes to memory that the match uses or returns, or nothing."""
    touched = set().union(*(storages(value_of(n)) for node in nodes for n in (node, *node.all_input_nodes)))
    for node in order:
        if node in matched or order[node] < order[nodes[0]]:
            continue
        writes = written_storages(node)
        if order[node] < order[nodes[-1]] and writes & touched:
            return f"{node.name} changes a tensor in place between the operators of the match"
        for storage in writes:
            if storage in touched and _shared(storage, matched, returned, later, order):
                return f"{node.name} later changes a tensor in place that the match's result is a view of"
    return ""


def _shared(storage: int, matched: set[Node], returned: set[Node], later: set[Node], order: dict[Node, int]) -> bool:
    """Return True if an output of the match shares ``storage`` with another output or with a tensor outside."""
    outputs = [n for n in returned if storage in storages(value_of(n))]
    outside = [n for n in order if n not in matched and n not in later and storage in storages(value_of(n))]
    return bool(outputs) and (len(outputs) > 1 or bool(outside))
