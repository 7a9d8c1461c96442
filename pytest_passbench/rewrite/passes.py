"""Passes as data: a pattern, prepared for matching, and the arguments of the kernel wrapper.

A match asks :class:`Kernels` for a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol

from torch.fx import Node

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.plans.graphs import Traced, from_data
from pytest_passbench.plans.launch import Request
from pytest_passbench.rewrite.effects import thread_inplace
from pytest_passbench.rewrite.meta import metadata_nodes
from pytest_passbench.rewrite.normalise import CanonicalCall, canonical

Kernel = Callable[..., Any]


class PassError(Exception):
    """A pass that cannot be loaded or applied, which is the candidate's fault (status ``compile_fail``).

    ``name`` is the pass's file stem. ``message`` says what is wrong, with file and line if they are known.
    """

    def __init__(self, name: str, message: str) -> None:
        self.name, self.message = name, message
        super().__init__(f"pass {name}: {message}")


class Kernels(Protocol):
    """A source of kernels for matches."""

    def kernel(self, request: Request) -> Kernel:
        """Return a callable that takes the request's tensors and returns the wrapper's value.

        It returns a sequence of ``request.outputs`` values if ``request.sequence``. Raises PassError if the pass has
        no kernel for the request, and LeftToEager if a region pass wants none.
        """

    def regions(self, name: str, graph: str) -> list[list[str]]:
        """Return the regions of a graph (:func:`~pytest_passbench.plans.regions.graph_text`) that a pass supports.

        They are names of nodes, and :func:`~pytest_passbench.plans.regions.check_regions` has accepted them. Raises
        PassError if the pass fails.
        """


class LeftToEager(Exception):
    """A region that a pass leaves to eager. The message says why."""


@dataclass(frozen=True)
class RegionPass:
    """A pass that says what it supports. Its wrapper gets the region and the tensors."""

    kind: ClassVar[str] = "region"

    name: str


@dataclass(frozen=True, eq=False)
class Pass:
    """A pass. It equals only itself.

    ``replacement`` is the traced ``replacement_args``, or the reason why it could not be traced. It becomes an error
    only when a place matches. ``place`` has file and line of ``replacement_args``, or is empty. ``decomposed`` is
    True if the pass is matched with the graph after TorchInductor's decompositions.
    """

    kind: ClassVar[str] = "pattern"

    name: str
    pattern: Traced
    replacement: Traced | str
    place: str = ""
    decomposed: bool = False

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Pass:
        """Return the pass that a reader sent. Raises PassError if its pattern was not traced or is malformed."""
        name = str(data["name"])
        try:
            pattern = from_data(data["pattern"]) if isinstance(data["pattern"], dict) else str(data["pattern"])
            arguments = data["replacement"]
            replacement = from_data(arguments) if isinstance(arguments, dict) else str(arguments)
        except Rejected as error:
            raise PassError(name, f"the pass as data is malformed: {error}") from error
        if isinstance(pattern, str):
            raise PassError(name, pattern)
        for traced in (pattern, replacement):
            if isinstance(traced, Traced):
                thread_inplace(traced.graph)
        return cls(name, pattern, replacement, str(data.get("place", "")))

    def misfit(self, message: str) -> PassError:
        """Return the error for a ``replacement_args`` that does not fit the pattern, with its file and line."""
        return PassError(self.name, message + (f" ({self.place})" if self.place else ""))

    @cached_property
    def arguments(self) -> Traced:
        """The traced ``replacement_args``. Raises PassError if it was not traced, or returns no tuple."""
        if isinstance(self.replacement, str):
            raise PassError(self.name, self.replacement)
        if not isinstance(self.replacement.result, (tuple, list)):
            raise self.misfit("replacement_args must return a tuple of the kernel wrapper's arguments")
        return self.replacement


AnyPass = Pass | RegionPass


def passes_of(sent: Iterable[dict[str, Any]]) -> list[AnyPass]:
    """Return the passes that a reader sent: for one of TorchInductor's form, a pass per registration.

    All passes of such a form have the same name. Raises PassError if a pattern could not be traced.
    """
    return [each for data in sent for each in _passes_of(data)]


def _passes_of(data: dict[str, Any]) -> list[AnyPass]:
    if data.get("kind") == "region":
        return [RegionPass(str(data["name"]))]
    if data.get("kind") != "inductor":
        return [Pass.from_data(data)]
    return [_registered(data, number, search) for number, search in enumerate(data["searches"])]


def _registered(data: dict[str, Any], number: int, search: Any) -> Pass:
    """Return the pass of a registration. Its wrapper gets the registration's number and what the search takes."""
    names = search.get("arguments") if isinstance(search, dict) else None
    values = [number, *({"node": place} for place in range(len(names or ())))]
    arguments: dict[str, Any] = {"arguments": names, "calls": [], "result": {"tuple": values}}
    item = Pass.from_data({**data, "pattern": search, "replacement": arguments})
    return replace(item, decomposed=True)


@dataclass(frozen=True)
class Pattern:
    """A traced pattern with its operators in canonical form (``calls``).

    The search starts at ``anchor``, the last returned operator. ``roots`` are the other operators that are
    returned, or that no operator uses. ``metadata`` are the nodes that only describe tensors.
    """

    traced: Traced
    metadata: set[Node]
    anchor: Node
    roots: tuple[Node, ...]
    calls: dict[Node, CanonicalCall]

    @property
    def returned(self) -> tuple[Node, ...]:
        """The operators whose values the pattern returns, in order, each once."""
        nodes = [n for n in self.traced.outputs if isinstance(n, Node) and n in self.calls]
        return tuple(dict.fromkeys(nodes))


@lru_cache(maxsize=1024)
def prepare(item: Pass) -> Pattern:
    """Return the pass's pattern. It is cached, because ``torch.compile`` may hand over several graphs.

    Raises PassError if it returns no value that it computed, or has no argument that ``replacement_args`` takes.
    """
    traced = item.pattern
    metadata = metadata_nodes(traced.graph)
    live = _live(traced, metadata)
    calls = {node: canonical(node) for node in live}
    returned = [n for n in traced.outputs if n in calls]
    if not returned:
        raise PassError(item.name, "pattern returns no value that it computed")
    anchor = max(returned, key=live.index)
    others = [n for n in live if n is not anchor and (n in returned or not (set(n.users) & set(live)))]
    names = {str(node.target) for node in traced.placeholders}
    handed = () if isinstance(item.replacement, str) else item.replacement.placeholders
    unknown = [str(node.target) for node in handed if str(node.target) not in names]
    if unknown:
        raise item.misfit(f"replacement_args takes {', '.join(unknown)}; pattern has no such argument")
    return Pattern(traced, metadata, anchor, tuple(others), calls)


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
