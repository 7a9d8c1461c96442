"""The replacement of operators of a graph by a kernel's call, whichever pass chose them."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.schema import refusal
from pytest_passbench.plans.launch import ALIGNMENT_BYTES, Argument, Request, Result, form_of
from pytest_passbench.plans.values import encode
from pytest_passbench.rewrite.effects import MatchEffects, early_users
from pytest_passbench.rewrite.match import Target
from pytest_passbench.rewrite.meta import by_values, planned_form, shaped_by_values, value_of
from pytest_passbench.rewrite.passes import Kernel, Kernels, PassError


class Splice(ABC):
    """The replacement of ``nodes``, in graph order, for a pass called ``name``."""

    def __init__(
        self, name: str, nodes: tuple[Node, ...], effects: MatchEffects, target: Target, kernels: Kernels
    ) -> None:
        self.name, self.nodes, self.effects = name, nodes, effects
        self.target, self.kernels, self.graph = target, kernels, target.gm.graph
        #: The operators that leave the graph.
        self.replaced = [node for node in nodes if node not in effects.writers]

    @abstractmethod
    def _results(self) -> dict[Node, Node]:
        """Add nodes to the graph, and return the new node for each node whose value it replaces."""

    def done(self) -> None:
        """Replace the nodes."""
        last, kept_writers = self.nodes[-1], self.effects.writers
        moved = early_users(self.nodes, self.target.order)
        with self.graph.inserting_before(last.next):
            for node, result in self._results().items():
                node.replace_all_uses_with(result, delete_user_cb=lambda user: user not in kept_writers)
        anchor = last.next
        while anchor.meta.get("passbench_new"):
            del anchor.meta["passbench_new"]
            anchor = anchor.next
        for node in (*kept_writers, *moved):
            anchor.prepend(node)
        for node in reversed(self.nodes):
            if node not in kept_writers:
                self.graph.erase_node(node)

    def request(
        self, args: Sequence[Any], nodes: Sequence[Node | None], sequence: bool
    ) -> tuple[Request, tuple[Node, ...]]:
        """Return the request for a kernel in place of the nodes, and the tensors that it is called with, each once.

        ``args`` are the wrapper's arguments: nodes and literals. ``nodes`` are those whose values the kernel returns.
        A value may have any dtype and shape if nothing uses it, if it is copied into a tensor, or if its shape
        depends on elements. Raises PassError for an argument that no data can state.
        """
        tensors: dict[Node, Argument] = {}

        def reference(value: Any) -> Any:
            if not isinstance(value, Node):
                return None
            tensor = value_of(value)
            if isinstance(tensor, (tuple, list)):
                return {"tuple": [reference(self._item(value, i, item)) for i, item in enumerate(tensor)]}
            if not isinstance(tensor, torch.Tensor):
                if isinstance(tensor, (int, float)) and value in by_values(self.graph):
                    raise refusal("a number that elements decide")
                return encode(tensor)
            tensors.setdefault(value, _argument(tensor))
            return {"tensor": list(tensors).index(value)}

        try:
            arguments = tuple(encode(value, reference) for value in args)
        except Rejected as error:
            raise PassError(self.name, f"replacement_args returns {error}, which no kernel can get") from error
        free, inside = any(shaped_by_values(node) for node in self.nodes), set(self.nodes)
        results = tuple(
            None
            if free or node is None or node in self.effects.copy_back or inside.issuperset(node.users)
            else _result(node)
            for node in nodes
        )
        values = tuple(tensors.values())
        return Request(self.name, arguments, values, len(results), sequence, results), tuple(tensors)

    def call(
        self, kernel: Kernel, tensors: tuple[Node, ...], value: Any, nodes: Sequence[Node | None], sequence: bool
    ) -> dict[Node, Node]:
        """Add the call of a kernel to the graph. Return the new node for each of the nodes whose values it returns.

        ``value`` is the whole of what it returns.
        """
        new = self.graph.create_node("call_function", kernel, tensors, {}, name=identifier(self.name))
        new.meta.update(passbench=value, passbench_new=True, passbench_pass=self.name)
        results: dict[Node, Node] = {}
        for i, node in enumerate(nodes):
            if node is not None:
                value = self._item(new, i, value_of(node)) if sequence else new
                base = self.effects.copy_back.get(node)
                results.setdefault(node, self._copy_back(base, value) if base is not None else value)
        return results

    def _item(self, call: Node, i: int, value: Any) -> Node:
        new = self.graph.create_node("call_function", operator.getitem, (call, i), {})
        new.meta.update(passbench=value, passbench_new=True)
        return new

    def _copy_back(self, base: Node, new: Node) -> Node:
        copy = self.graph.create_node("call_method", "copy_", (base, new), {})
        copy.meta.update(passbench=value_of(base), passbench_writes=[base], passbench_new=True)
        return copy


def identifier(name: str) -> str:
    """Return the name of a pass as an identifier."""
    return "".join(c if c.isalnum() else "_" for c in name)


def _result(node: Node) -> Result | None:
    """Return the dtype and shape of a node's value, or None if it is not a tensor that a plan could return."""
    form = planned_form(value_of(node))
    return None if form is None else Result(form.dtype, form.shape)


def _argument(value: torch.Tensor) -> Argument:
    """Return a tensor's layout in memory, as far as a wrapper can see it.

    Raises Rejected for a tensor whose elements are not those in memory.
    """
    if value.is_neg() or value.is_conj():
        raise refusal("a tensor that is negated or conjugated lazily")
    misaligned = value.storage_offset() * value.element_size() % ALIGNMENT_BYTES
    return Argument(form_of(value), str(value.device), misaligned)
