"""The cheapest operator of a graph by a kernel of its own, and all else by eager: what a score near 1 is worth."""

import math

from pytest_passbench.fusion import regions

SIMPLE = {"add", "sub", "mul", "relu", "neg", "iadd", "imul"}
CASTS = {"to", "type", "type_as", "float", "half", "bfloat16", "double", "long", "int", "bool"}  # no match alone


def name(node):
    return getattr(node.target, "__name__", node.target).rstrip("_")


def cost(node):
    return name(node) not in SIMPLE, math.prod(node.meta["tensor_meta"].shape)


def supported(node):
    nodes = [other for other in node.graph.nodes if "tensor_meta" in other.meta and regions.supported(other)]
    return node is min(filter(computes, nodes), key=cost, default=None)


def computes(node):
    return name(node) not in CASTS and not any(memory(node) & memory(value) for value in node.all_input_nodes)


def memory(node):
    values = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else [node.meta["val"]]
    return {value.untyped_storage()._cdata for value in values if hasattr(value, "untyped_storage")}


def replacement_func():
    return regions.launch
