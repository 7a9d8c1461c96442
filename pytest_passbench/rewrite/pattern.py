"""A pass's pattern, prepared for matching."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch.fx import Node

from pytest_passbench.plans.graphs import Traced
from pytest_passbench.rewrite.meta import metadata_nodes
from pytest_passbench.rewrite.normalise import CanonicalCall, canonical
from pytest_passbench.rewrite.passes import PassError


@dataclass(frozen=True)
class Pattern:
    """A traced pattern with its operators in canonical form (``calls``).

    The search starts at ``anchor``, the last returned operator. ``roots`` are the other operators that are
    returned, or that no operator uses. ``metadata`` are the nodes that only describe tensors.
    """

    name: str
    arguments: tuple[str, ...]
    traced: Traced
    metadata: set[Node]
    anchor: Node
    roots: tuple[Node, ...]
    calls: dict[Node, CanonicalCall] = field(default_factory=dict)

    @property
    def returned(self) -> tuple[Node, ...]:
        """The operators whose values the pattern returns, in order, each once."""
        nodes = [n for n in self.traced.outputs if isinstance(n, Node) and n in self.calls]
        return tuple(dict.fromkeys(nodes))


def prepare(name: str, traced: Traced) -> Pattern:
    """Prepare a traced pattern. Raises PassError if it returns no value that it computed."""
    metadata = metadata_nodes(traced.graph)
    live = _live(traced, metadata)
    calls = {node: canonical(node) for node in live}
    returned = [n for n in traced.outputs if n in calls]
    if not returned:
        raise PassError(name, "pattern returns no value that it computed")
    anchor = max(returned, key=live.index)
    others = [n for n in live if n is not anchor and (n in returned or not (set(n.users) & set(live)))]
    arguments = tuple(str(node.target) for node in traced.placeholders)
    return Pattern(name, arguments, traced, metadata, anchor, tuple(others), calls)


def _live(traced: Traced, metadata: set[Node]) -> list[Node]:
    """Return the operators that an output depends on or that write in place, in order."""
    live: set[Node] = {n for n in traced.outputs if isinstance(n, Node)}
    for node in reversed(traced.graph.nodes):
        if node.op in ("call_function", "call_method") and node not in metadata and canonical(node).inplace:
            live.add(node)
        if node in live:
            live.update(node.all_input_nodes)
    kinds = ("call_function", "call_method")
    return [n for n in traced.graph.nodes if n in live and n.op in kinds and n not in metadata]
