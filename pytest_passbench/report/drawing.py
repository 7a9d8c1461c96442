"""Charts as shapes, and shapes as SVG: in a page, whose width and colours they follow, or of a fixed width.

A drawing has a plot between two margins. In the plot a place is a share of its width (0 is its left end, 1 its
right one) and a number of pixels from the top. A page needs no script for it, and no other library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal, NamedTuple

Anchor = Literal["start", "middle", "end"]
Kind = Literal["plain", "named"]
"""The kind of a drawing's margins: "plain" for numbers beside the plot, "named" for names."""

MARGINS: dict[Kind, tuple[float, float]] = {"plain": (52.0, 14.0), "named": (170.0, 14.0)}
"""The pixels at the left and at the right of a plot in a file. A page has its own margins in its style."""

FONT = "Helvetica, Arial, sans-serif"


class Colour(NamedTuple):
    """A colour: the name of a page's CSS variable, and the value that it has in a file."""

    name: str
    value: str


INK, SOFT, GRID = Colour("ink", "#1b1f24"), Colour("soft", "#57606a"), Colour("line", "#d0d7de")
GOOD, BAD = Colour("good", "#116329"), Colour("bad", "#953800")
PALETTE = (
    Colour("one", "#0072b2"), Colour("two", "#d55e00"), Colour("three", "#009e73"), Colour("four", "#cc79a7"),
    Colour("five", "#8a6d00"), Colour("six", "#56b4e9"),
)  # fmt: skip
"""Colours that are told apart with any kind of colour vision (Okabe and Ito 2008, Color Universal Design)."""

POLYGONS: dict[str, tuple[tuple[float, float], ...]] = {
    "circle": (),
    "square": ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
    "triangle-up": ((0, -1.1), (1, 0.75), (-1, 0.75)),
    "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "triangle-down": ((0, 1.1), (1, -0.75), (-1, -0.75)),
    "cross": (
        (-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4),
        (0.4, 1.1), (-0.4, 1.1), (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4),
    ),
    "triangle-right": ((1.1, 0), (-0.75, 1), (-0.75, -1)),
    "triangle-left": ((-1.1, 0), (0.75, 1), (0.75, -1)),
}  # fmt: skip
"""The corners of each mark of radius 1; a circle has none."""


@dataclass(frozen=True)
class Line:
    """A line through places, ``width`` pixels wide. ``dash`` has the pixels of its strokes and gaps."""

    places: tuple[tuple[float, float], ...]
    colour: Colour
    width: float = 1.0
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Mark:
    """A filled mark, a key of :data:`POLYGONS`, with a radius in pixels."""

    x: float
    y: float
    shape: str
    colour: Colour
    radius: float


@dataclass(frozen=True)
class Label:
    """A line of text on the base line ``y``; it begins, has its middle or ends at ``x``, ``shift`` pixels further."""

    x: float
    y: float
    text: str
    colour: Colour = SOFT
    anchor: Anchor = "middle"
    shift: float = 0.0
    size: float = 12.0


@dataclass(frozen=True)
class Inset:
    """Shapes at a place of the plot. Their own places are pixels from there, both across and down."""

    x: float
    y: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Linked:
    """Shapes with a title, which a page shows beside the pointer, and the id of a place that a click goes to."""

    shapes: tuple[Shape, ...]
    title: str = ""
    target: str = ""


Shape = Line | Mark | Label | Inset | Linked


@dataclass(frozen=True)
class Drawing:
    """A chart: its shapes, its height in pixels, and a label for readers who cannot see it."""

    shapes: tuple[Shape, ...]
    height: float
    kind: Kind
    label: str


def in_page(drawing: Drawing) -> str:
    """Return an SVG element that is as wide as its place in the page, with the page's colours.

    The page's style has the margins, as paddings of the class ``chart`` and of the drawing's kind.
    """
    body = "".join(_element(shape, _share, _variable) for shape in drawing.shapes)
    head = f'class="chart {drawing.kind}" width="100%" height="{_number(drawing.height)}"'
    return f'<svg {head} role="img" aria-label="{escape(drawing.label)}">{body}</svg>'


def as_file(drawing: Drawing, width: float, inches: float) -> str:
    """Return an SVG file in which ``width`` pixels of the drawing take ``inches`` inches."""
    body = "".join(_element(shape, _number, lambda colour: colour.value) for shape in resolved(drawing, width))
    size = f'width="{inches:g}in" height="{inches * drawing.height / width:.4g}in"'
    box = f'viewBox="0 0 {_number(width)} {_number(drawing.height)}"'
    title = f"<title>{escape(drawing.label)}</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{FONT}">{title}{body}</svg>\n'


def resolved(drawing: Drawing, width: float) -> list[Shape]:
    """Return lines, marks and texts alone, with places in pixels from the left edge of ``width`` pixels."""
    left, right = MARGINS[drawing.kind]
    return list(_flat(drawing.shapes, lambda x: left + x * (width - left - right), 0.0))


def _flat(shapes: Iterable[Shape], across: Callable[[float], float], down: float) -> Iterator[Shape]:
    for shape in shapes:
        match shape:
            case Line():
                yield replace(shape, places=tuple((across(x), down + y) for x, y in shape.places))
            case Linked():
                yield from _flat(shape.shapes, across, down)
            case Inset():
                origin = across(shape.x)
                yield from _flat(shape.shapes, origin.__add__, down + shape.y)
            case _:
                yield replace(shape, x=across(shape.x), y=down + shape.y)


def _element(shape: Shape, across: Callable[[float], str], paint: Callable[[Colour], str]) -> str:
    match shape:
        case Line():
            return _line(shape, across, paint)
        case Mark():
            return _mark(shape, across, paint)
        case Label():
            shift = f' dx="{_number(shape.shift)}"' if shape.shift else ""
            anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
            place = f'x="{across(shape.x)}" y="{_number(shape.y)}" font-size="{_number(shape.size)}"'
            return f'<text {place}{shift}{anchor} fill="{paint(shape.colour)}">{escape(shape.text)}</text>'
        case Inset():
            body = "".join(_element(part, _number, paint) for part in shape.shapes)
            return f'<svg x="{across(shape.x)}" y="{_number(shape.y)}">{body}</svg>'
        case Linked():
            title = f"<title>{escape(shape.title)}</title>" if shape.title else ""
            body = title + "".join(_element(part, across, paint) for part in shape.shapes)
            # The Tab key does not stop at each row, since the table of tasks has the same links.
            return f'<a href="#{escape(shape.target)}" tabindex="-1">{body}</a>' if shape.target else f"<g>{body}</g>"


def _line(line: Line, across: Callable[[float], str], paint: Callable[[Colour], str]) -> str:
    dash = f' stroke-dasharray="{" ".join(map(_number, line.dash))}"' if line.dash else ""
    stroke = f'stroke="{paint(line.colour)}" stroke-width="{_number(line.width)}"{dash}'
    if len(line.places) == 2:
        (x1, y1), (x2, y2) = line.places
        ends = f'x1="{across(x1)}" y1="{_number(y1)}" x2="{across(x2)}" y2="{_number(y2)}"'
        return f"<line {ends} {stroke}/>"
    if across is not _share:
        return f'<polyline points="{_points(line.places)}" fill="none" {stroke}/>'
    # Points cannot be percentages. A box that is stretched to the plot's width puts them at their places.
    points = _points([(1000 * x, y) for x, y in line.places])
    body = f'<polyline points="{points}" fill="none" vector-effect="non-scaling-stroke" {stroke}/>'
    return f'<svg viewBox="0 0 1000 100" width="100%" height="100" preserveAspectRatio="none">{body}</svg>'


def _mark(mark: Mark, across: Callable[[float], str], paint: Callable[[Colour], str]) -> str:
    fill = f'fill="{paint(mark.colour)}"'
    corners = POLYGONS[mark.shape]
    if not corners:
        return f'<circle cx="{across(mark.x)}" cy="{_number(mark.y)}" r="{_number(mark.radius)}" {fill}/>'
    if across is not _share:
        return f'<polygon points="{_points(corners_of(mark))}" {fill}/>'
    body = f'<polygon points="{_points(corners_of(replace(mark, x=0.0, y=0.0)))}" {fill}/>'
    return f'<svg x="{across(mark.x)}" y="{_number(mark.y)}">{body}</svg>'


def corners_of(mark: Mark) -> list[tuple[float, float]]:
    """Return the corners of a mark in pixels; none of a circle."""
    return [(mark.x + mark.radius * x, mark.y + mark.radius * y) for x, y in POLYGONS[mark.shape]]


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in places)


def _share(x: float) -> str:
    return f"{_number(100.0 * x)}%"


def _variable(colour: Colour) -> str:
    return f"var(--{colour.name})"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
