"""Which of a graph's operators do work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from pytest_passbench.rewrite.meta import storages, value_of
from pytest_passbench.suite.opnames import is_metadata

if TYPE_CHECKING:
    from pytest_passbench.rewrite.match import Target

_DROPOUTS = frozenset({
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
})  # fmt: skip

_CASTS = frozenset({"to", "type_as"})  # the canonical names of ``x.float()``, ``x.type(y)`` and the like


def is_work(target: Target, node: Node) -> bool:
    """Return True if a node computes or moves elements: it is no view, no cast and no dropout in eval mode."""
    call = target.calls[node]
    if call.op in _CASTS or (call.op in _DROPOUTS and call.args.get("training") is False) or is_metadata(node):
        return False
    return call.inplace or not is_view(value_of(node), [value_of(source) for source in node.all_input_nodes])


def is_view(value: Any, sources: Sequence[Any]) -> bool:
    """Return True if a value has tensors, and all of them lie in the memory of ``sources``."""
    memory = storages(value)
    return bool(memory) and memory <= storages(tuple(sources))


def added_name(name: str, value: Any, sources: Sequence[Any]) -> str:
    """Return the name of an operator that ``replacement_args`` adds, with what it computes: a cast, or an index."""
    if is_view(value, sources) or not isinstance(value, torch.Tensor):
        return name
    before = next((source for source in sources if isinstance(source, torch.Tensor)), value)
    if name in _CASTS and before.dtype != value.dtype:
        return f"{name} (a cast)"
    return f"{name} (an index that is not a slice)" if name == "getitem" else name
