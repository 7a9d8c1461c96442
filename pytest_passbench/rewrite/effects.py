"""Effects of in-place operators: copies that a replacement must make, and reasons why it must not be made.

A kernel returns its results and changes no argument. If the rest of the graph can see a write of the match, a
``copy_`` of the kernel's result into the written tensor preserves it. If the pattern does not return that result, the
operators that write stay in the graph, behind the kernel's call. If neither preserves what others see, the place does
not match, and a message gives the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, Node

from pytest_passbench.core.grouping import reached
from pytest_passbench.rewrite.meta import storages, value_of
from pytest_passbench.rewrite.normalise import CanonicalCall, canonical
from pytest_passbench.suite.batching import is_batched, is_batching


@dataclass(frozen=True)
class MatchEffects:
    """The effects of a match.

    ``copy_back`` maps a returned node to the outer tensor that gets its value. ``writers`` are matched operators that
    stay behind the kernel's call, because they write what others see.
    """

    copy_back: dict[Node, Node] = field(default_factory=dict)
    writers: tuple[Node, ...] = ()


def written_storages(node: Node) -> set[int]:
    """Return the storages that a node writes to, by identity."""
    targets = list(node.meta.get("passbench_writes", ()))
    if not targets and node.op in ("call_function", "call_method") and "passbench_pass" not in node.meta:
        call = canonical(node)
        base = call.args.get("input")
        targets = [base] if call.inplace and isinstance(base, Node) else []
    return set().union(*(storages(value_of(t)) for t in targets))


def hazards(nodes: tuple[Node, ...], returned: set[Node], order: dict[Node, int]) -> MatchEffects | str:
    """Return the effects of replacing ``nodes`` (in graph order) by a call at the end, or the reason against it.

    ``returned`` are the nodes whose values the pattern returns. ``order`` has the position of each node of the graph.
    """
    matched = set(nodes)
    later = descendants(matched)
    moved = early_users(nodes, order)
    problem = _batched((*nodes, *moved)) or _outside_writes(nodes, matched, returned, later, order)
    problem = problem or _moved(moved, nodes, order)
    if problem:
        return problem
    writers_of: dict[int, list[Node]] = {}  # the writers of each storage that others see
    for storage in set().union(*(written_storages(node) for node in nodes)):
        writers = [node for node in nodes if storage in written_storages(node)]
        if _observed(storage, writers[0], matched, later, order) or any(leaks(w, matched, returned) for w in writers):
            writers_of[storage] = writers
            problem = _early_reads(storage, writers[0], nodes, moved, order)
            if problem:
                return problem
    copies = {writers[-1]: _base(writers[-1], matched) for writers in writers_of.values()}
    leaking = any(leaks(w, matched, returned) for writers in writers_of.values() for w in writers)
    if not leaking and all(base is not None and writer in returned for writer, base in copies.items()):
        return MatchEffects({writer: base for writer, base in copies.items() if base is not None})
    kept_writers = _kept_writers([writer for writers in writers_of.values() for writer in writers], nodes)
    if len(kept_writers) == len(nodes):
        writer = next(iter(writers_of.values()))[-1]
        return f"{writer.name} changes a tensor that is used elsewhere, and without it nothing is left to replace"
    return MatchEffects(writers=kept_writers)


def _batched(nodes: tuple[Node, ...]) -> str:
    """Return a reason if one of the nodes belongs to a level of torch.vmap, where it has to stay; else ""."""
    for node in nodes:
        if is_batching(node) or any(is_batched(value_of(n)) for n in (node, *node.all_input_nodes)):
            return f"{node.name} works on a batched tensor of torch.vmap, which no kernel takes"
    return ""


def leaks(node: Node, matched: set[Node], returned: set[Node]) -> bool:
    """Return True if a node writes to a tensor from outside, and nodes outside use the value of this node.

    The pattern does not return that value, so no result of the kernel can take its place.
    """
    if node in returned or not written_storages(node) or all(user in matched for user in node.users):
        return False
    outer = {n for member in matched for n in member.all_input_nodes} - matched
    return bool(storages(value_of(node)) & set().union(*(storages(value_of(n)) for n in outer)))


def _kept_writers(writers: list[Node], nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the writers and the operators of the match that they need, in graph order."""

    def needed(node: Node) -> list[Node]:
        before = nodes[: nodes.index(node)]
        inputs = [n for n in node.all_input_nodes if n in nodes]
        return inputs + [n for n in before if written_storages(n) & _touched(node)]

    kept_writers = reached(writers, needed)
    return tuple(node for node in nodes if node in kept_writers)


def _touched(node: Node) -> set[int]:
    """Return the storages that a node reads, writes or returns."""
    return set().union(*(storages(value_of(n)) for n in (node, *node.all_input_nodes)))


def early_users(nodes: tuple[Node, ...], order: dict[Node, int]) -> tuple[Node, ...]:
    """Return the outside nodes before the match's last operator that depend on one of its results, in order."""
    matched, dependent = set(nodes), dict[Node, None]()
    for node in list(order)[order[nodes[0]] : order[nodes[-1]]]:
        if node not in matched and any(n in matched or n in dependent for n in node.all_input_nodes):
            dependent[node] = None
    return tuple(dependent)


def _moved(moved: tuple[Node, ...], nodes: tuple[Node, ...], order: dict[Node, int]) -> str:
    """Return the reason why a use of a result cannot move behind the match's last operator, or "".

    The use must not move past a write to memory that it uses, nor past a use of memory that it writes.
    """
    span = list(order)[order[nodes[0]] : order[nodes[-1]] + 1]
    for node in moved:
        for other in span[span.index(node) + 1 :]:
            if other in moved:
                continue
            if written_storages(other) & _touched(node):
                return f"{node.name} uses a result before {other.name} writes in place"
            if written_storages(node) & _touched(other):
                return f"{node.name} writes in place to a result before {other.name} uses it"
    return ""


def _early_reads(
    storage: int, first: Node, nodes: tuple[Node, ...], moved: tuple[Node, ...], order: dict[Node, int]
) -> str:
    """Return a reason if a node outside reads what the match writes before the match's last operator; else "".

    After the replacement, the write only happens at the end, behind the kernel's call.
    """
    for node in list(order)[order[first] : order[nodes[-1]]]:
        if node not in nodes and node not in moved and storage in _touched(node):
            return f"{node.name} reads what {first.name} writes in place before the match ends"
    return ""


def hidden_reads(
    calls: dict[Node, CanonicalCall], returned: tuple[Node, ...], binding: dict[Node, Any], order: dict[Node, int]
) -> str:
    """Return the difference between pattern and target in reads after a write through another name, or "".

    Such a read (``v = x.view(-1); v.add_(1); x.sin()``) shows only in the order of the operators. Matching compares
    the data flow, and does not see it. Matching does not see either that two arguments of the pattern share memory in
    the target. ``calls`` are the pattern's calls, and ``returned`` the nodes that it returns.
    """
    position = {node: i for i, node in enumerate(calls)}
    reads: list[tuple[Node | None, Node]] = [(node, read) for node in calls for read in node.all_input_nodes]
    reads += [(None, read) for read in returned]
    for writer, call in calls.items():
        target, base = binding[writer], call.args.get("input")
        written = storages(value_of(canonical(target).args.get("input"))) if written_storages(target) else set()
        base_storages = _storages_of(binding.get(base)) if call.inplace and isinstance(base, Node) else set()
        below = {writer} | descendants({writer}), {target} | descendants({target})
        for node, read in reads:
            memory = _storages_of(binding.get(read))
            if node is writer or not memory & (written | base_storages):
                continue
            behind = node is None or order[binding[node]] > order[target]
            there = behind and bool(memory & written) and binding[read] not in below[1]
            behind = node is None or position[node] > position[writer]
            here = behind and bool(memory & base_storages) and read not in below[0]
            if there != (
                here and bool(_origins(base, binding, base_storages) & _origins(read, binding, base_storages))
            ):
                reader = "the match" if node is None else binding[node].name
                verb = "returns" if node is None else "reads"
                return f"{reader} {verb} a tensor that {target.name} writes, in another order than in pattern"
    return ""


def _origins(node: Any, binding: dict[Node, Any], memory: set[int]) -> set[Node]:
    """Return the arguments and operators of the pattern from which the value of a node has its memory.

    Two arguments count as two, even if both stand for the same tensor of the target.
    """

    def inputs(value: Node) -> list[Node]:
        return [n for n in value.all_input_nodes if _storages_of(binding.get(n)) & memory]

    return {value for value in reached([node], inputs) if not inputs(value)}


def _storages_of(bound: Any) -> set[int]:
    """Return the storages of what a pattern's node stands for: a node of the target, or a sequence of them."""
    if isinstance(bound, (tuple, list)):
        return set().union(*(_storages_of(item) for item in bound))
    return storages(value_of(bound))


def descendants(matched: set[Node]) -> set[Node]:
    """Return the nodes that depend on ``matched``, without ``matched`` itself."""
    users = (user for node in matched for user in node.users)
    return reached(users, lambda node: node.users).keys() - matched


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
    """Return the outer tensor that a chain of in-place calls writes to, or None if it writes to a view of one."""
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
    """Return a reason if a node outside writes to memory that the match uses or returns; else ""."""
    touched = set().union(*(_touched(node) for node in nodes))
    for node in order:
        writes = written_storages(node) & touched if order[node] > order[nodes[0]] and node not in matched else set()
        before = [n for n in nodes if order[n] < order[node]]
        if writes and len(before) < len(nodes) and any(writes & _touched(n) for n in before):
            return f"{node.name} changes a tensor in place between the operators of the match"
        if any(_shared(storage, matched, returned, later, order) for storage in writes):
            return f"{node.name} later changes a tensor in place that the match's result is a view of"
    return ""


def _shared(storage: int, matched: set[Node], returned: set[Node], later: set[Node], order: dict[Node, int]) -> bool:
    """Return True if an output of the match shares ``storage`` with another output or with a tensor outside."""
    outputs = [n for n in returned if storage in storages(value_of(n))]
    outside = [n for n in order if n not in matched and n not in later and storage in storages(value_of(n))]
    return bool(outputs) and (len(outputs) > 1 or bool(outside))


def thread_inplace(graph: Graph) -> None:
    """Make each node after an in-place call read the call's result instead of its base.

    Both are the same tensor, so nothing changes at run time. Then the data flow shows the order of writes and reads.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op not in ("call_function", "call_method"):
            continue
        call = canonical(node)
        base = call.args.get("input")
        if call.inplace and call.op != "setitem" and isinstance(base, Node):
            for user in [u for u in base.users if order[u] > order[node]]:
                user.replace_input_with(base, node)
