"""Random graphs in the spellings of the data set: a model needs more examples than the data set has."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from trained_model.graphs import Unfit, check

F = "torch.nn.functional."
PLAIN = {
    "relu": (f"{F}relu({{0}})", f"{F}relu({{0}}, inplace=True)", f"{F}relu({{0}}, inplace=False)"),
    "silu": (f"{F}silu({{0}})", f"{F}silu({{0}}, inplace=True)"),
    "gelu": (f"{F}gelu({{0}})",),
    "gelu_tanh": (f"{F}gelu({{0}}, approximate='tanh')",),
    "sigmoid": ("torch.sigmoid({0})", "{0}.sigmoid()"),
    "tanh": ("torch.tanh({0})", "{0}.tanh()"),
    "softplus": (f"{F}softplus({{0}})",),
    "neg": ("-{0}", "torch.neg({0})"),
    "square": ("{0} ** 2", "torch.square({0})", "{0}.pow(2)", "torch.pow({0}, 2)"),
    "abs": ("torch.abs({0})", "{0}.abs()"),
    "exp": ("torch.exp({0})", "{0}.exp()"),
    "erf": ("torch.erf({0})",),
    "sin": ("torch.sin({0})", "{0}.sin()"),
    "cos": ("torch.cos({0})", "{0}.cos()"),
    "leaky_relu": (f"{F}leaky_relu({{0}}, {{n}})",),
    "clamp_min": ("torch.clamp({0}, min={n})", "{0}.clamp(min={n})"),
    "clamp_max": ("torch.clamp({0}, max={n})",),
}
POSITIVE = {
    "log": ("torch.log({0})", "{0}.log()"),
    "sqrt": ("torch.sqrt({0})", "{0}.sqrt()"),
    "rsqrt": ("torch.rsqrt({0})", "{0}.rsqrt()"),
}
"""Operators whose operand has to be positive."""
NUMBER = ("{0} * {n}", "{0} + {n}", "{0} - {n}", "{0} / {n}", "{n} * {0}", "{n} + {0}", "{n} - {0}")
PAIR = {
    "add": ("{0} + {1}", "{0} + {1}", "torch.add({0}, {1})", "{0}.add({1})"),
    "sub": ("{0} - {1}",),
    "mul": ("{0} * {1}", "{0} * {1}", "torch.mul({0}, {1})", "{0}.mul({1})"),
    "maximum": ("torch.maximum({0}, {1})",),
    "minimum": ("torch.minimum({0}, {1})",),
    "div": ("{0} / {1}",),
}
ROWS = (f"{F}softmax({{0}}, dim=-1)", "{0}.softmax(dim=-1)", f"{F}layer_norm({{0}}, ({{d}},), {{w}}, {{b}}, {{eps}})",
        f"{F}layer_norm({{0}}, ({{d}},), None, None, {{eps}})")  # fmt: skip
COLUMNS = ("{0}.mean(-1, keepdim=True)", "{0}.mean(dim=-1, keepdim=True)", "{0}.sum(dim=-1, keepdim=True)")
MAKES_POSITIVE = ("sigmoid", "softplus", "square", "exp(", "softmax", "** 2", "pow(")
SHAPES = ((64, 1024), (2, 128, 768), (1, 197, 384), (4, 64, 512), (8, 12, 64, 64), (1, 256, 576), (128, 300),
          (1, 32, 56, 56), (2, 64, 28, 28), (1, 1024, 96), (16, 1000), (1, 8, 128, 128), (2, 50, 1536))  # fmt: skip
NUMBERS = ("0.5", "2.0", "1.702", "0.125", "1.0", "0.1", "3.0", "0.044715", "0.7978845608", "6.0", "0.25", "1e-05",
           "1e-06", "1.4142135", "10.0", "2", "3", "1", "-1.0")  # fmt: skip


class Drawer:
    """A graph while it is drawn: its statements, and the values that nothing uses yet."""

    def __init__(self, chance: random.Random, count: int) -> None:
        self.chance, self.count = chance, count
        self.full = chance.choice(SHAPES)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.lines: list[str] = []
        self.unused: list[str] = []
        self.positive: set[str] = set()
        for _ in range(chance.choices((1, 2, 3), (3, 5, 2))[0]):
            self.add_input(self.full if not self.shapes or chance.random() < 0.75 else self.full[-1:])

    def add_input(self, shape: tuple[int, ...]) -> str:
        """Add an input, and return its name."""
        name = f"in_{len(self.shapes)}"
        self.shapes[name] = shape
        self.unused.append(name)
        return name

    def take(self) -> str:
        """Return an operand, mostly a value that nothing uses yet."""
        names = [*self.shapes, *(f"tmp_{number}" for number in range(len(self.lines)))]
        fresh = self.unused and self.chance.random() < 0.85
        name = self.unused[0] if fresh else self.chance.choice(names)
        if name in self.unused:
            self.unused.remove(name)
        return name

    def number(self) -> str:
        """Return a number: one of ``NUMBERS``, or a random one."""
        if self.chance.random() < 0.6:
            return self.chance.choice(NUMBERS)
        return repr(round(self.chance.uniform(0.01, 4), self.chance.choice((1, 2, 3, 4, 6, 9))))

    def text(self) -> str:
        """Return the text of a statement's call."""
        left = self.count - len(self.lines)
        kinds = ("plain", "number", "pair", "row", "column", "positive")
        kind = self.chance.choices(kinds, (4, 2, 4, 1, 0.5, 0.5))[0]
        if len(self.unused) > left or (len(self.unused) > 1 and left == 1):
            kind = "pair"
        first = self.take()
        if kind == "pair":
            return self.pair(first, self.take())
        if kind == "positive" and first in self.positive:
            return self.chance.choice(POSITIVE[self.chance.choice(list(POSITIVE))]).format(first)
        if kind == "row":
            return self.row(first)
        if kind == "column":
            self.unused.append(first)  # a mean is mostly subtracted from the value itself
            return self.chance.choice(COLUMNS).format(first)
        if kind == "number":
            return self.chance.choice(NUMBER).format(first, n=self.number())
        return self.chance.choice(PLAIN[self.chance.choice(list(PLAIN))]).format(first, n=self.number())

    def pair(self, first: str, second: str) -> str:
        """Return the call of an operator on two values."""
        if first == second:
            return self.chance.choice(PLAIN["square"]).format(first)
        operands = (first, second) if self.chance.random() < 0.7 else (second, first)
        name = self.chance.choices(list(PAIR), (5, 2, 5, 0.5, 0.5, 1))[0]
        name = "mul" if name == "div" and operands[1] not in self.positive else name
        return self.chance.choice(PAIR[name]).format(*operands)

    def row(self, operand: str) -> str:
        """Return the call of an operator along rows, with inputs of its own for weights."""
        text = self.chance.choice(ROWS)
        weights = {}
        if "{w}" in text:
            weights = {key: self.add_input(self.full[-1:]) for key in "wb"}
            self.unused = [name for name in self.unused if name not in weights.values()]
        return text.format(operand, d=self.full[-1], eps=self.chance.choice(("1e-05", "1e-06", "1e-12")), **weights)

    def draw(self) -> tuple[str, dict[str, tuple[int, ...]]]:
        """Return the graph's source and the shapes of its inputs. Raises Unfit if nothing uses one of its values."""
        for _ in range(self.count):
            text, target = self.text(), f"tmp_{len(self.lines)}"
            if any(word in text for word in MAKES_POSITIVE):
                self.positive.add(target)
            self.lines.append(f"    {target} = {text}")
            self.unused.insert(0, target)
        if self.unused != [target]:
            raise Unfit("a value that nothing uses")
        source = "\n".join([f"def forward({', '.join(self.shapes)}):", *self.lines, f"    return ({target},)"]) + "\n"
        return renamed(source, self.shapes)


def renamed(source: str, shapes: dict[str, tuple[int, ...]]) -> tuple[str, dict[str, tuple[int, ...]]]:
    """Return a graph whose inputs are numbered in the order of their first use, as those of the data set are."""
    body = source.partition("\n")[2]
    order = sorted(shapes, key=lambda name: (body.find(name) < 0, body.find(name)))
    new = {name: f"in_{number}" for number, name in enumerate(order)}
    for name in order:
        body = body.replace(name, new[name].upper())
    return f"def forward({', '.join(new.values())}):\n{body.replace('IN_', 'in_')}", {
        new[name]: shapes[name] for name in order
    }


def random_graph(
    chance: random.Random, counts: Sequence[int] = (1, 2, 3, 4, 5, 6)
) -> tuple[str, list[dict[str, Any]]]:
    """Return a random graph that fits: its source and its inputs, as a task has them."""
    weights = {1: 0.5, 2: 3, 3: 3, 4: 3, 5: 1.5, 6: 1}
    while True:
        count = chance.choices(counts, [weights[item] for item in counts])[0]
        try:
            source, shapes = Drawer(chance, count).draw()
            check(source, shapes)
        except Unfit:
            continue
        return source, [{"name": name, "shape": list(shape)} for name, shape in shapes.items()]
