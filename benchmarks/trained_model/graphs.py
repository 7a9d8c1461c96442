"""Graphs that a small model can learn to write passes for: real ones of the data set, and random ones beside them.

A graph is straight-line code on tensors of one dtype: operators by element, and operators along the last dimension.
Real graphs are rows of the data set, and runs of consecutive statements that are cut out of longer rows.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trained_model.operators import Call, call_of

Shape = tuple[int, ...]
MOST = 8
"""The most operators of a graph."""
SMALLEST, LARGEST = 1 << 10, 1 << 21
"""Bounds of the largest input's elements. With fewer, only a call's cost is timed; with more, judging takes long."""


@dataclass(frozen=True)
class Statement:
    """One statement of a graph: the name that it binds, its call, and its text."""

    target: str
    call: Call
    text: str


@dataclass
class Graph:
    """A graph with the shapes and the dtype that it is judged at.

    ``origin`` is "real" or "random". ``families`` are the architecture families that have it, [] for a random one.
    """

    id: str
    origin: str
    source: str
    operators: list[str]
    dtype: str
    inputs: list[dict[str, Any]]
    families: list[str] = field(default_factory=list)
    form: str = ""
    split: str = ""

    @property
    def sequence(self) -> str:
        """The operators in order, as one word."""
        return " ".join(self.operators)

    def shapes(self) -> dict[str, Shape]:
        """Return the shape of each input."""
        return {item["name"]: tuple(item["shape"]) for item in self.inputs}

    def to_data(self) -> dict[str, Any]:
        """Return the graph as JSON can hold it."""
        return asdict(self)


class Unfit(Exception):
    """A graph that is left out of the graphs to learn; the message is the reason."""


def statements(source: str) -> list[Statement]:
    """Return the statements of a graph. Raises Unfit for an operator without a rule."""
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    lines = source.splitlines()
    result = []
    for node in function.body[:-1]:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            raise Unfit("a statement that binds no name")
        call = call_of(node.value)
        if call is None:
            raise Unfit(f"no rule for {ast.unparse(node.value)}")
        result.append(Statement(node.targets[0].id, call, lines[node.lineno - 1].strip()))
    return result


def outputs(source: str) -> list[str]:
    """Return the names that a graph returns."""
    return re.findall(r"\w+", source.strip().splitlines()[-1].partition("return")[2])


@dataclass(frozen=True)
class Form:
    """The forms of a graph's values: full (as the widest input), row (the last dimension alone), column (all others).

    ``forms`` has one of these words for each name.
    """

    forms: dict[str, str]
    width: int

    @property
    def has_rows(self) -> bool:
        """True if not all values are of one shape."""
        return set(self.forms.values()) != {"full"}


def form_of(source: str, shapes: dict[str, Shape]) -> Form:
    """Return the forms of all values. Raises Unfit if a value has another form."""
    full = max(shapes.values(), key=lambda shape: (len(shape), shape), default=())
    if not full:
        raise Unfit("no input of the full shape")
    forms = {}
    for name, shape in shapes.items():
        is_row = shape == full[-1:] and len(full) > 1
        if shape != full and not is_row:
            raise Unfit("an input that is neither full nor a row")
        forms[name] = "full" if shape == full else "row"
    for statement in statements(source):
        forms[statement.target] = _result(statement.call, [forms[name] for name in statement.call.tensors], full)
    return Form(forms, full[-1])


def _result(call: Call, operands: Sequence[str], full: Shape) -> str:
    if call.kind == "element":
        if "full" in operands or len(set(operands)) == 1:
            return "full" if "full" in operands else operands[0]
        raise Unfit("a row and a column together")
    if operands[0] != "full" or len(full) < 2:
        raise Unfit("a row's operator on another form")
    if call.name == "layer_norm" and call.numbers[0] != f"({full[-1]},)":
        raise Unfit("a norm of several dimensions")
    if any(form != "row" for form in operands[1:]):
        raise Unfit("a norm whose weights are no rows")
    return "column" if call.kind == "reduction" else "full"


def check(source: str, shapes: dict[str, Shape]) -> Form:
    """Return the form of a graph that fits. Raises Unfit for any other."""
    body, results = statements(source), outputs(source)
    form = form_of(source, shapes)
    if not 1 <= len(body) <= MOST:
        raise Unfit("too many statements")
    if len(results) != 1 or results[0] != body[-1].target:
        raise Unfit("several results, or not the last value")
    used = [name for statement in body for name in statement.call.tensors]
    if any(name not in used for name in shapes) or any(item.target not in used for item in body[:-1]):
        raise Unfit("a value that nothing uses")
    if any(item.call.in_place and item.call.tensors[0] in shapes for item in body):
        raise Unfit("a write to an input")
    if form.forms[results[0]] == "row":
        raise Unfit("no result of the full shape")
    return form


def runs(source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the runs of fitting statements in a graph as sources, each with the graph's names of the run's inputs.

    A run begins at any statement, and takes up to ``MOST`` consecutive ones; only its last value is a result.
    """
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    body = [node for node in function.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    calls = [call_of(node.value) for node in body]
    uses: Counter[str] = Counter(n.id for n in ast.walk(function) if isinstance(n, ast.Name))
    for begin in range(len(body)):
        for end in range(begin + 1, min(begin + MOST, len(body)) + 1):
            if calls[end - 1] is None:
                break
            run = _cut(body[begin:end], [call for call in calls[begin:end] if call], uses)
            if run:
                yield run


def _cut(nodes: Sequence[ast.Assign], calls: Sequence[Call], uses: Counter[str]) -> tuple[str, dict[str, str]] | None:
    """Return a run's text with names of its own, None if a value before its last is used outside of it."""
    targets = [node.targets[0].id for node in nodes if isinstance(node.targets[0], ast.Name)]
    inside: Counter[str] = Counter(n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))
    if len(set(targets)) < len(targets) or any(inside[name] != uses[name] or uses[name] < 2 for name in targets[:-1]):
        return None
    names: dict[str, str] = {}
    lines: list[str] = []
    for node, call in zip(nodes, calls, strict=True):
        for name in call.tensors:
            if name not in names:
                names[name] = f"in_{sum(new.startswith('in') for new in names.values())}"
        text = ast.unparse(node.value)
        target = f"tmp_{len(lines)}"
        lines.append(f"    {target} = " + re.sub(r"\b(in|tmp)_\d+\b", lambda word: names[word[0]], text))
        assert isinstance(node.targets[0], ast.Name)
        names[node.targets[0].id] = target
    inputs = {new: old for old, new in names.items() if new.startswith("in")}
    head = f"def forward({', '.join(inputs)}):"
    return "\n".join([head, *lines, f"    return ({target},)"]) + "\n", inputs


def counted(reasons: Iterable[str]) -> dict[str, int]:
    """Return how often each reason came, the commonest first, without the texts of calls."""
    return dict(Counter(re.sub(r"no rule for .*", "no rule for an operator", text) for text in reasons).most_common())
