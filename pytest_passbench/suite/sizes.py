"""Further sizes of a subgraph: its graph and its inputs at a batch and a size that no task file has.

A task has many of its graphs at two batches or sizes of one architecture. The integers of graph and shapes at these
points show how they depend on batch and size, so they can be computed for others. A candidate that looks its kernels
up by shape has none for those. Nothing of this is stored: a task file stays as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

from pytest_passbench.core.task import Subgraph, Task

Point = tuple[int, int]
"""A batch and a size."""

_SOURCE = re.compile(r"(?P<model>.+?), batch (?P<batch>\d+), size (?P<size>\d+)\)")
_ID = re.compile(r"-b\d+n\d+")
#: An integer of a graph's text that is no part of a name, of a decimal number or of its exponent.
_INTEGER = re.compile(r"(?<![\w.])(?<!e[-+])(?<!E[-+])\d+(?![\w.])")
_POWERS = ((1, 0), (0, 1), (1, 1), (0, 2), (1, 2))
"""The powers of batch and size that an integer may depend on. The size's square is for the patches of an image."""
MAX_DRAWS = 2000  # random points that are tried for one subgraph
MAX_REFUSED = 6  # drawn sizes of a subgraph at which eager fails or a null answer passes
MOST = 2  # up to 2 times the largest recorded batch, size and input elements; down to half of the smallest


@dataclass(frozen=True)
class Dependence:
    """An integer's dependence on the batch b and the size n: ``slope`` b^``batch`` n^``size`` + ``offset``."""

    batch: int
    size: int
    slope: Fraction
    offset: int = 0

    def at(self, point: Point) -> int | None:
        """Return the integer at a batch and a size; None if it is no whole number there, or below zero."""
        value = self.slope * point[0] ** self.batch * point[1] ** self.size + self.offset
        return int(value) if value.denominator == 1 and value >= 0 else None

    def __str__(self) -> str:
        """Return an expression in ``b`` and ``n``, such as ``64``, ``b``, ``4*b*n`` or ``n**2/256 + 1``."""
        if self.slope == 0:
            return str(self.offset)
        powers = [name if power == 1 else f"{name}**{power}"
                  for name, power in (("b", self.batch), ("n", self.size)) if power]  # fmt: skip
        factors = [str(self.slope.numerator), *powers] if self.slope.numerator > 1 else powers
        divisor = f"/{self.slope.denominator}" if self.slope.denominator > 1 else ""
        offset = f" {'+' if self.offset > 0 else '-'} {abs(self.offset)}" if self.offset else ""
        return "*".join(factors) + divisor + offset


@dataclass(frozen=True)
class SizeMap:
    """A subgraph's dependence on batch and size.

    ``recorded`` are the points of the task that it was derived from. ``literals`` has the dependence of each integer
    of ``text``, the source of the graph, and ``shapes`` that of each dimension of each input.
    """

    subgraph: Subgraph
    text: str
    recorded: tuple[Point, ...]
    literals: tuple[Dependence, ...]
    shapes: tuple[tuple[Dependence, ...], ...]
    largest: int
    """The greatest number of input elements at a recorded point."""


@dataclass(frozen=True)
class NoMap:
    """The reason why a subgraph has no map."""

    reason: str


@dataclass(frozen=True)
class _Recorded:
    """A subgraph of the same place in a model at another point, in the integers that may differ."""

    point: Point
    literals: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]


def size_map(task: Task, subgraph: Subgraph) -> SizeMap | NoMap:
    """Return how a subgraph of a task depends on batch and size, or why that cannot be told from the task."""
    samples = _samples(task, subgraph)
    if isinstance(samples, NoMap):
        return samples
    points = tuple(sample.point for sample in samples)
    literals = [_form(points, values) for values in zip(*(sample.literals for sample in samples), strict=True)]
    shapes = [dimensions(points, shapes) for shapes in zip(*(sample.shapes for sample in samples), strict=True)]
    forms = [*literals, *(form for dimensions in shapes for form in dimensions)]
    if None in forms:
        return NoMap("an integer depends on batch and size in no simple way, or in several")
    constant = [all(form is not None and form.slope == 0 for form in dimensions) for dimensions in shapes]
    if any(spec.data is not None and not same for spec, same in zip(subgraph.inputs, constant, strict=True)):
        return NoMap("an input with literal values changes its shape")
    if all(constant):
        return NoMap("no input changes its shape")
    return SizeMap(
        subgraph,
        task.graphs[subgraph.graph],
        points,
        tuple(form for form in literals if form is not None),
        tuple(tuple(form for form in dimensions if form is not None) for dimensions in shapes),
        max(sum(map(math.prod, sample.shapes)) for sample in samples),
    )


def at(size_map: SizeMap, point: Point) -> tuple[str, Subgraph] | None:
    """Return the graph's text and the subgraph at a batch and a size; None if an integer would be no whole number."""
    literals = [form.at(point) for form in size_map.literals]
    shapes = [[form.at(point) for form in dimensions] for dimensions in size_map.shapes]
    if None in literals or any(None in shape for shape in shapes):
        return None
    values = iter(zip(size_map.literals, literals, strict=True))

    def written(match: re.Match[str]) -> str:
        form, value = next(values)
        return match[0] if form.slope == 0 else str(value)

    text = _INTEGER.sub(written, size_map.text)
    pairs = zip(size_map.subgraph.inputs, shapes, strict=True)
    inputs = tuple(replace(spec, shape=tuple(size or 0 for size in shape)) for spec, shape in pairs)
    batch, size = point
    name = _ID.sub(f"-b{batch}n{size}", size_map.subgraph.id)
    source = re.sub(r"batch \d+, size \d+\)", f"batch {batch}, size {size})", size_map.subgraph.source)
    return text, replace(size_map.subgraph, id=name, source=source, inputs=inputs)


def draws(size_map: SizeMap, stream: Random) -> Iterator[tuple[Point, str, Subgraph]]:
    """Yield points drawn from a stream, each once, with the graph's text and the subgraph there.

    A batch or size with a single recorded value keeps it. Other values lie between half of the smallest and twice the
    largest one, and no drawn point was recorded. The inputs have at most twice the elements of the largest.
    """
    axes = [_bounds([point[axis] for point in size_map.recorded]) for axis in (0, 1)]
    drawn = set(size_map.recorded)
    for _ in range(MAX_DRAWS):
        point = stream.randint(*axes[0]), stream.randint(*axes[1])
        if point in drawn:
            continue
        drawn.add(point)
        there = at(size_map, point)
        if there is not None and 0 < there[1].elements <= MOST * size_map.largest:
            yield point, *there


def dimensions(points: Sequence[Point], shapes: Sequence[tuple[int, ...]]) -> list[Dependence | None]:
    """Return the form of each dimension of an input that has these shapes at these points; None if it has none."""
    return [_form(points, values) for values in zip(*shapes, strict=True)]


def _bounds(values: Sequence[int]) -> tuple[int, int]:
    least, most = min(values), max(values)
    return (least, most) if least == most else (max(1, least // MOST), most * MOST)


def _place(subgraph: Subgraph) -> tuple[str, Point] | None:
    """Return the model, without batch and size, and the point of a subgraph; None if its source names none."""
    match = _SOURCE.fullmatch(subgraph.source)
    return None if match is None else (match["model"], (int(match["batch"]), int(match["size"])))


def _samples(task: Task, subgraph: Subgraph) -> list[_Recorded] | NoMap:
    """Return the task's samples of the subgraph's place in its model, that of the subgraph first; else the reason."""
    place = _place(subgraph)
    if place is None:
        return NoMap("its source names no batch and size")
    groups = _alike(task, subgraph, place[0])
    alike = groups.pop(place[1])
    if not groups:
        return NoMap("recorded at one batch and size only")
    if any(len(group) != len(alike) for group in groups.values()):
        return NoMap("its place in the model is ambiguous")
    number = alike.index(subgraph)
    return [_sample(task, subgraph, place[1])] + [
        _sample(task, group[number], point) for point, group in groups.items()
    ]


def _alike(task: Task, subgraph: Subgraph, model: str) -> dict[Point, list[Subgraph]]:
    """Return the subgraphs of a model that differ from this one in integers alone, by their points."""
    skeleton = _skeleton(task, subgraph)
    groups: dict[Point, list[Subgraph]] = {}
    for item in task.recorded or task.subgraphs:
        place = _place(item)
        if place is not None and place[0] == model and _skeleton(task, item) == skeleton:
            groups.setdefault(place[1], []).append(item)
    return groups


def _skeleton(task: Task, subgraph: Subgraph) -> tuple[object, ...]:
    """Return all of a subgraph that must be the same at every point: its text without integers, dtypes, ranks."""
    forms = [(spec.name, spec.dtype, len(spec.shape)) for spec in subgraph.inputs]
    return _INTEGER.sub("#", task.graphs[subgraph.graph]), subgraph.dtype, *forms


def _sample(task: Task, subgraph: Subgraph, point: Point) -> _Recorded:
    literals = tuple(map(int, _INTEGER.findall(task.graphs[subgraph.graph])))
    return _Recorded(point, literals, tuple(spec.shape for spec in subgraph.inputs))


def _form(points: Sequence[Point], values: Sequence[int]) -> Dependence | None:
    """Return the form of an integer that has these values at these points; None if there is none, or several.

    Forms without an offset come first: with one, more forms fit by chance.
    """
    if len(set(values)) == 1:
        return Dependence(0, 0, Fraction(0), values[0])
    varying = [len({point[axis] for point in points}) > 1 for axis in (0, 1)]
    powers = [(batch, size) for batch, size in _POWERS if varying[0] >= (batch > 0) and varying[1] >= (size > 0)]
    forms = [_proportional(power, points[0], values[0]) for power in powers]
    fitting = [form for form in forms if form is not None and _fits(form, points, values)]
    if not fitting:
        lines = [_line(power, points, values) for power in powers if power[0] == 0]
        fitting = [form for form in lines if form is not None and _fits(form, points, values)]
    return fitting[0] if len(fitting) == 1 else None


def _proportional(power: tuple[int, int], point: Point, value: int) -> Dependence | None:
    """Return the form through one point; None if it divides by a batch, or by a patch area that is no square."""
    slope = Fraction(value, point[0] ** power[0] * point[1] ** power[1])
    root = math.isqrt(slope.denominator)
    plain = (slope.denominator == 1, True, root * root == slope.denominator)[power[1]]
    return Dependence(*power, slope) if plain else None


def _line(power: tuple[int, int], points: Sequence[Point], values: Sequence[int]) -> Dependence | None:
    """Return the line in a power of the size through the first two sizes; None if it has no plain slope and offset.

    A plain slope is positive, and whole or the reciprocal of a whole number: of a square, for the size's square.
    """
    first = points[0][1] ** power[1]
    other = next((number for number, point in enumerate(points) if point[1] ** power[1] != first), None)
    if other is None:
        return None
    slope = Fraction(values[other] - values[0], points[other][1] ** power[1] - first)
    offset = values[0] - slope * first
    root = math.isqrt(slope.denominator)
    plain = slope > 0 and (slope.denominator == 1 or slope.numerator == 1)
    square = power[1] == 1 or root * root == slope.denominator
    return Dependence(*power, slope, int(offset)) if plain and square and offset.denominator == 1 else None


def _fits(form: Dependence, points: Sequence[Point], values: Sequence[int]) -> bool:
    return all(form.at(point) == value for point, value in zip(points, values, strict=True))
