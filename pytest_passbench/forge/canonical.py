"""The canonical spelling of a graph, and a hash. Two graphs are the same task material if their canonical sources
are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import fx

from pytest_passbench.suite.printing import to_source


def canonical_source(module: fx.GraphModule) -> str:
    """Return the source of ``module`` with inputs ``in_0``, ``in_1``, ... in order of first use, and values
    ``tmp_0``, ...
    """
    graph, copies = fx.Graph(), {}
    calls = (n for n in module.graph.nodes if n.op != "placeholder")
    order = [a for n in calls for a in n.all_input_nodes if a.op == "placeholder"]
    for index, node in enumerate(dict.fromkeys(order)):
        copies[node] = graph.placeholder(f"in_{index}")
    count = 0
    for node in module.graph.nodes:
        if node.op == "output":
            graph.output(fx.node.map_arg(node.args[0], copies.__getitem__))
        elif node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node]._rename(f"tmp_{count}")
            count += 1
    return to_source(fx.GraphModule(torch.nn.Module(), graph))


def digest(parts: Iterable[str], length: int = 16) -> str:
    """Return a short SHA-256 hash (``length`` hex digits) of several texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]
