"""Graph networks of ``torch-geometric``: two layers on a graph of ``n`` nodes and eight edges for each."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources.rows import ModelSpec
from pytest_passbench.forge.sources.rows import cases as make_cases

LIBRARY = "torch-geometric"
LICENSE = "MIT"

GRAPHS = (Variant(1, 1000), Variant(1, 4000))
SPARSE = (Variant(1, 1000), Variant(1, 4000), Variant(1, 2000), Variant(1, 3000))
NODES = {"x": "float n 128", "edge_index": "int1000 2 n*8"}
NET = {"in_channels": 128, "hidden_channels": 256, "num_layers": 2, "out_channels": 64}
CONVS = "torch_geometric.nn.conv"
CONV = {"in_channels": 128, "out_channels": 128}


def _net(name: str, **arguments: object) -> ModelSpec:
    return ModelSpec(name, f"torch_geometric.nn.models:{name}", NODES, {**NET, **arguments}, GRAPHS)


def _conv(name: str, **arguments: object) -> ModelSpec:
    return ModelSpec(name, f"{CONVS}:{name}", NODES, {**CONV, **arguments}, GRAPHS)


ROWS = (
    _net("GCN"),
    _net("GAT", heads=4),
    _net("GraphSAGE"),
    ModelSpec("GraphSAGE-std", "torch_geometric.nn.models:GraphSAGE", NODES, {**NET, "aggr": "std"}, SPARSE),
    _net("GIN"),
    _net("EdgeCNN"),
    _conv("TransformerConv", heads=4),
    _conv("ChebConv", K=3),
    _conv("SGConv", K=2),
    _conv("ARMAConv"),
    _conv("TAGConv"),
    _conv("LEConv"),
    ModelSpec("GatedGraphConv", f"{CONVS}:GatedGraphConv", NODES, {"out_channels": 128, "num_layers": 2}, GRAPHS),
    _conv("ResGatedGraphConv"),
    _conv("SuperGATConv", heads=4),
    _conv("GENConv"),
    _conv("GeneralConv"),
    _conv("FeaStConv", heads=4),
    _conv("ClusterGCNConv"),
)


def cases() -> Iterator[ModelCase]:
    """Return one case per row."""
    return make_cases(LIBRARY, "graph", ROWS)
