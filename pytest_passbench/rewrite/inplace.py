"""Data flow through in-place calls."""

from __future__ import annotations

from torch.fx import Graph, Node

from pytest_passbench.rewrite.normalise import canonical


def thread_inplace(graph: Graph) -> None:
    """Make each node after an in-place call read the call's result instead of its base.

    Both are the same tensor, so nothing changes at run time. Then the data flow shows what only the order showed.
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
