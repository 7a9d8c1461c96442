"""Find a pattern in a target graph by backtracking unification of canonical calls.

A placeholder of the pattern binds to the value in its place: a tensor, a literal or a list. All its places must have
the same value. Operators must agree in name and in all arguments. Operands of commutative operators match in both
orders. Metadata expressions of the pattern (``x.size(0)``) are evaluated when all tensors are bound.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from pytest_passbench.core.grouping import reached
from pytest_passbench.rewrite import names
from pytest_passbench.rewrite.effects import MatchEffects, descendants, hazards, hidden_reads, leaks
from pytest_passbench.rewrite.literals import align, computes_floating, equal, rank_of, show, widened
from pytest_passbench.rewrite.meta import evaluate, value_of
from pytest_passbench.rewrite.normalise import CanonicalCall, canonical
from pytest_passbench.rewrite.passes import Pattern
from pytest_passbench.suite.opnames import op_name

_MAX_STEPS = 20_000  # of backtracking per place, so that an ambiguous pattern cannot hang the build


@dataclass(frozen=True)
class Miss:
    """The reason why a place does not match. ``depth`` operators had matched before."""

    depth: int
    text: str


@dataclass(frozen=True)
class Match:
    """A place where the pattern matches.

    ``binding`` maps the pattern's nodes to nodes and literals of the target. ``nodes`` are the matched operators, in
    graph order.
    """

    pattern: Pattern
    binding: dict[Node, Any]
    nodes: tuple[Node, ...]
    effects: MatchEffects = field(default_factory=MatchEffects)


class Target:
    """A graph to search in: the positions of its nodes (``order``) and the canonical calls of its operators."""

    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm
        self.calls: dict[Node, CanonicalCall] = {}
        self._arguments: dict[Node, tuple[Any, Any]] = {}
        self.refresh()
        inputs = [value_of(n) for n in gm.graph.nodes if n.op == "placeholder"]
        self.home = next((v.device for v in inputs if isinstance(v, torch.Tensor)), None)

    def refresh(self) -> None:
        """Read the graph again after a change. A node whose arguments are the same objects keeps its call."""
        self.order = {node: i for i, node in enumerate(self.gm.graph.nodes)}
        previous = self._arguments
        self._arguments = {n: (n.args, n.kwargs) for n in self.order if _is_operator(n)}
        unchanged = {n for n, pair in self._arguments.items() if n in previous and all(map(is_, pair, previous[n]))}
        self.calls = {n: self.calls[n] if n in unchanged else canonical(n) for n in self._arguments}

    def named(self, op: str) -> list[Node]:
        """Return the nodes with this operator, in graph order."""
        return [node for node, call in self.calls.items() if call.op == op]


def _is_operator(node: Node) -> bool:
    return node.op == "call_method" or (node.op == "call_function" and "passbench_pass" not in node.meta)


@dataclass(frozen=True)
class _Goal:
    """A pair of values that must match. ``node`` and ``argument`` state their place.

    ``rank`` is the number of dimensions that a negative dimension counts from, or None if it is unknown. ``item`` is
    True if the values are items of an argument, not the whole argument.
    """

    pattern: Any
    target: Any
    node: Node | None = None
    argument: str = ""
    rank: int | None = None
    item: bool = False


_Choices = list[list[_Goal]]


class _NoMatch(Exception):
    """A branch of the search that fails."""


class Search:
    """The search for a pattern. ``best`` is the miss with the most matched operators."""

    def __init__(self, pattern: Pattern, target: Target) -> None:
        self.pattern, self.target = pattern, target
        self.best: Miss | None = None
        self._steps = 0

    def at(self, node: Node) -> Match | None:
        """Return a match whose anchor is ``node``, or None."""
        self._steps = 0
        roots = [_Goal(root, _ANYWHERE) for root in self.pattern.roots]
        try:
            return self._solve([*roots, _Goal(self.pattern.anchor, node)], {}, [])
        except _NoMatch:
            return None

    def _solve(self, goals: list[_Goal], binding: dict[Node, Any], pending: list[_Goal]) -> Match:
        """Return the first match that meets all goals. Raises _NoMatch if there is none."""
        while goals:
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise _NoMatch
            choices = self._step(goals.pop(), binding, pending)
            if len(choices) > 1:
                for more in choices:
                    with contextlib.suppress(_NoMatch):
                        return self._solve([*goals, *more], dict(binding), list(pending))
                raise _NoMatch
            goals.extend(choices[0])
        return self._finish(binding, pending)

    def _step(self, goal: _Goal, binding: dict[Node, Any], pending: list[_Goal]) -> _Choices:
        """Return the ways to go on: lists of further goals. Raises _NoMatch if there is none."""
        expected, target = goal.pattern, goal.target
        if isinstance(expected, Node):
            return self._node(goal, binding, pending)
        if isinstance(expected, tuple) and isinstance(target, tuple) and len(expected) == len(target):
            parts = zip(expected, target, strict=True)
            return [[replace(goal, pattern=e, target=f, item=True) for e, f in parts]]
        if isinstance(expected, slice) and isinstance(target, slice):
            ends = [(expected.start, target.start), (expected.stop, target.stop), (expected.step, target.step)]
            return [[replace(goal, pattern=e, target=f, item=True) for e, f in ends]]
        if not self._equal(goal):
            self._unequal(goal, binding)
        return [[]]

    def _node(self, goal: _Goal, binding: dict[Node, Any], pending: list[_Goal]) -> _Choices:
        node, target = goal.pattern, goal.target
        if target is _ANYWHERE:
            return self._anywhere(node, binding)
        if node in binding:
            bound = binding[node]
            same = bound is target or (isinstance(target, tuple) and bound == target)
            if not same and not self._equal(replace(goal, pattern=bound)):
                self._miss(goal, binding, f"expected {show(binding[node])}, found {show(target)}")
            return [[]]
        if node in self.pattern.metadata:
            pending.append(goal)
            return [[]]
        if node.op != "call_function" and node.op != "call_method":
            binding[node] = target
            return [[]]
        return self._operator(goal, binding)

    def _anywhere(self, node: Node, binding: dict[Node, Any]) -> _Choices:
        if node in binding:
            return [[]]
        places = self.target.named(self.pattern.calls[node].op)
        if not places:
            self._miss(_Goal(node, None), binding, f"a further output: no {self.pattern.calls[node].op} found")
        return [[_Goal(node, place)] for place in places]

    def _operator(self, goal: _Goal, binding: dict[Node, Any]) -> _Choices:
        node, target = goal.pattern, goal.target
        call = self.pattern.calls[node]
        other = self.target.calls.get(target) if isinstance(target, Node) else None
        if other is None or other.op != call.op:
            self._miss(goal, binding, f"expected {call.op}, found {self._describe(target)}")
        if op_name(node) == "t" and _dimensions(target) > 2:
            self._miss(goal, binding, f"the pattern has a matrix, found {_dimensions(target)} dimensions")
        binding[node] = target
        call, other = _alike(call, other)
        keys = dict.fromkeys([*call.args, *other.args])
        goals = [_Goal(*align(call, other, target, key), target, key, rank_of(other, key)) for key in keys]
        if call.op in names.COMMUTATIVE and {"input", "other"} <= set(keys) and other.get("alpha") == 1:
            choices = [goals, self._swapped(goals)]
            choices = choices if not call.inplace else [c for c in choices if _writes_to_a_tensor(c)]
            return choices or self._miss(goal, binding, "the pattern writes in place to what is a number here")
        if call.op == "transpose" and {"dim0", "dim1"} <= set(keys):
            return [goals, self._swapped(goals, ("dim0", "dim1"))]
        return [goals]

    def _swapped(self, goals: list[_Goal], pair: tuple[str, str] = ("input", "other")) -> list[_Goal]:
        values = {goal.argument: goal.target for goal in goals}
        swap = {pair[0]: values[pair[1]], pair[1]: values[pair[0]]}
        return [replace(g, target=swap.get(g.argument, g.target)) for g in goals]

    def _equal(self, goal: _Goal) -> bool:
        """Return True if both values of a goal are literals that mean the same in their place."""
        if _holds_node(goal.pattern) or _holds_node(goal.target):
            return False
        floating = goal.node is None or computes_floating(goal.node)
        pairs = (goal.pattern, goal.target), widened(goal.pattern, goal.target, goal.argument, goal.rank)
        home, whole = self.target.home, not goal.item
        return any(equal(e, f, floating=floating, home=home, whole=whole) for e, f in pairs)

    def _finish(self, binding: dict[Node, Any], pending: list[_Goal]) -> Match:
        """Compare the metadata expressions, whose tensors are now bound, and return the match."""
        lost = [node for node in self.pattern.calls if node not in binding]
        if lost:
            goal = _Goal(None, None, binding[self.pattern.anchor])
            text = "only gives a size or a flag, so no operator of the graph can stand for it"
            self._miss(goal, binding, f"the pattern's {lost[0].name} {text}")
        loose = [n for goal in pending for n in self._described(goal.pattern) if n not in binding]
        if loose:
            return self._finish_with(loose[0], binding, pending)
        for goal in pending:
            try:
                value = evaluate(goal.pattern, binding, self.pattern.metadata)
            except Exception as error:
                self._miss(goal, binding, f"{goal.pattern.name} cannot be evaluated: {error}")
            sequence_goal = replace(goal, pattern=tuple(value) if isinstance(value, (tuple, list)) else value)
            if not self._equal(sequence_goal):
                self._unequal(sequence_goal, binding)
        return self._legal(self._with_dropped(binding))

    def _finish_with(self, loose: Node, binding: dict[Node, Any], pending: list[_Goal]) -> Match:
        """Return the match with any fitting tensor for ``loose``, an argument that only metadata uses."""
        matched = {binding[node] for node in self.pattern.calls}
        last = max(self.target.order[node] for node in matched)
        later = matched | descendants(matched)
        for node in [n for n, i in self.target.order.items() if i < last and n not in later]:
            self._steps += 1
            if isinstance(value_of(node), torch.Tensor) and self._steps <= _MAX_STEPS:
                with contextlib.suppress(_NoMatch):
                    return self._finish({**binding, loose: node}, pending)
        goal = next(goal for goal in pending if loose in self._described(goal.pattern))
        return self._miss(goal, binding, f"{loose.name} gives sizes only, and no tensor of the graph has them")

    def _described(self, expression: Node) -> list[Node]:
        """Return the pattern's values that a metadata expression describes."""
        metadata = self.pattern.metadata
        nodes = reached([expression], lambda node: node.all_input_nodes if node in metadata else ())
        return [node for node in nodes if node not in metadata]

    def _with_dropped(self, binding: dict[Node, Any]) -> dict[Node, Any]:
        """Return the binding, with the pattern's arguments that only dropped parameters use added to it."""
        extended = dict(binding)
        for node, call in self.pattern.calls.items():
            other = self.target.calls[binding[node]]
            for name, value in call.dropped.items():
                if isinstance(value, Node) and value.op == "placeholder":
                    extended.setdefault(value, other.inplace if name == "inplace" else other.dropped.get(name))
        return extended

    def _legal(self, binding: dict[Node, Any]) -> Match:
        """Return the match of a binding. Raises _NoMatch if replacing it would change the graph's results."""
        matched = {binding[node] for node in self.pattern.calls}
        nodes = tuple(sorted(matched, key=self.target.order.__getitem__))
        returned = {binding[node] for node in self.pattern.returned}
        problem = self._escape(matched, returned) or self._cycle(matched, binding)
        problem = problem or hidden_reads(self.pattern.calls, self.pattern.returned, binding, self.target.order)
        effects = MatchEffects() if problem else hazards(nodes, returned, self.target.order)
        if problem or isinstance(effects, str):
            self._miss(_Goal(None, nodes[-1]), binding, problem or str(effects), whole=True)
        return Match(self.pattern, binding, nodes, effects)

    def _escape(self, matched: set[Node], returned: set[Node]) -> str:
        """Return a reason if a value that the pattern does not return is used outside; else ""."""
        for node in matched - returned:
            outside = [user for user in node.users if user not in matched]
            if outside and not leaks(node, matched, returned):
                user = "the graph's output" if outside[0].op == "output" else outside[0].name
                name = f"{self.target.calls[node].op} ({node.name})"
                return f"the value of {name} is used outside the match, by {user}; the pattern must return it"
        return ""

    def _cycle(self, matched: set[Node], binding: dict[Node, Any]) -> str:
        """Return a reason if the kernel would need a value that depends on one of its own results; else ""."""
        arguments: list[Node] = []
        for node in self.pattern.traced.placeholders:
            map_arg(binding.get(node), arguments.append)
        front = [user for node in matched for user in node.users if user not in matched]
        front += [node for node in arguments if node in matched]
        if matched & reached(front, lambda node: node.users).keys():
            return "a value that the match reads depends on one that it produces"
        return ""

    # -- messages ---------------------------------------------------------------------------------------------------

    def _describe(self, value: Any) -> str:
        if not isinstance(value, Node):
            return show(value)
        call = self.target.calls.get(value)
        if call is not None:
            return f"{call.op} ({value.name})"
        return f"graph input {value.name}" if value.op == "placeholder" else f"{value.name}"

    def _unequal(self, goal: _Goal, binding: dict[Node, Any]) -> NoReturn:
        self._miss(goal, binding, f"expected {show(goal.pattern)}, found {self._describe(goal.target)}")

    def _miss(self, goal: _Goal, binding: dict[Node, Any], text: str, whole: bool = False) -> NoReturn:
        """Raise _NoMatch, and keep the reason if more operators matched than ever before."""
        depth = sum(1 for node in binding if node in self.pattern.calls) + whole
        if self.best is None or depth > self.best.depth:
            near = goal.node if goal.node is not None else goal.target
            place = f"{self._describe(near)}: " if isinstance(near, Node) and near in self.target.calls else ""
            argument = f"argument {goal.argument}: " if goal.argument else ""
            self.best = Miss(depth, f"{place}{argument}{text}")
        raise _NoMatch


_ANYWHERE = object()


def _alike(call: CanonicalCall, other: CanonicalCall) -> tuple[CanonicalCall, CanonicalCall]:
    """Return both calls, with a parameter of one renamed as in the other if a pattern's argument hides its name.

    Such parameters are the dtype or device of ``x.to(y)``, and the flag of ``x.var(0, unbiased)``.
    """
    named = [key for key in other.args if key in ("dtype", "device")]
    if call.op == "to" and "other" in call.args and "other" not in other.args and len(named) == 1:
        args = {named[0] if key == "other" else key: value for key, value in call.args.items()}
        return replace(call, args=args), other
    if "unbiased" in call.args and other.args.get("correction") in (0, 1):
        args = {key: value for key, value in other.args.items() if key != "correction"}
        return call, replace(other, args={**args, "unbiased": bool(other.args["correction"])})
    return call, other


def _writes_to_a_tensor(goals: list[_Goal]) -> bool:
    """Return True if the first operand, which a pattern's call writes to in place, is no number in the target."""
    return any(goal.argument == "input" and isinstance(goal.target, Node) for goal in goals)


def _dimensions(node: Any) -> int:
    value = value_of(node)
    return value.dim() if isinstance(value, torch.Tensor) else 0


def _holds_node(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_holds_node(item) for item in value)
    return isinstance(value, Node)


def explain(pattern: Pattern, target: Target, best: Miss | None) -> str:
    """Return a message: the nearest place and what differs there, or an operator that the graph lacks."""
    anchor = pattern.calls[pattern.anchor].op
    if best is not None and best.depth > 0:
        return f"nearest: {best.text}"
    present = {call.op for call in target.calls.values()}
    absent = [call.op for call in pattern.calls.values() if call.op not in present]
    if absent:
        return f"the graph has no {absent[0]}; it has {_listed(target)}"
    return f"nearest: {best.text}" if best is not None else f"the graph has no {anchor}; it has {_listed(target)}"


def nearness(pattern: Pattern, best: Miss | None) -> float:
    """Return the share, 0 to 1, of the pattern's operators that had a partner at the nearest place."""
    return min(1.0, best.depth / len(pattern.calls)) if best is not None else 0.0


def _listed(target: Target) -> str:
    names = list(dict.fromkeys(call.op for call in target.calls.values()))
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") if names else "no operators"
