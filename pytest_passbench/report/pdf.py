"""A drawing as a PDF file of one page (ISO 32000-1). Its text is in Helvetica, which every reader of PDF has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path

from pytest_passbench.report.drawing import Drawing, Label, Line, Mark, Shape, as_file, corners_of, resolved

ENCODING = "cp1252"  # WinAnsiEncoding; any other character becomes a question mark
POINTS_PER_INCH = 72.0
ROUND = 0.5523  # the length of the handles of a Bezier curve that is a quarter of a circle of radius 1

SHARE_BEFORE = {"start": 0.0, "middle": 0.5, "end": 1.0}
"""The share of a text that lies before its place."""

WIDTHS = {
    222: "ijl'", 278: " !,./:;I[\\]fIt", 333: "()-`r", 260: "|", 355: '"', 389: "*", 469: "^", 334: "{}",
    500: "Jcksvxyz", 584: "+<=>~", 611: "FTZ", 667: "&ABEKPSVXY", 722: "CDHNRUw", 778: "GOQ", 833: "Mm",
    889: "%", 944: "W", 1015: "@",
}  # fmt: skip
"""The characters of Helvetica by their width in thousandths of the size (Adobe's metrics). All others have 556."""

_WIDTH_OF = {character: width for width, characters in WIDTHS.items() for character in characters}


def save(drawing: Drawing, path: Path, width: float, inches: float) -> None:
    """Write a drawing as a PDF file if its name ends in .pdf, else as SVG. Raises OSError. Sizes: :func:`as_pdf`."""
    if path.suffix == ".pdf":
        path.write_bytes(as_pdf(drawing, width, inches))
    else:
        path.write_text(as_file(drawing, width, inches), encoding="utf-8")


def as_pdf(drawing: Drawing, width: float, inches: float) -> bytes:
    """Return the file: ``width`` pixels of the drawing take ``inches``. The same drawing gives the same bytes."""
    scale = POINTS_PER_INCH * inches / width
    flipped = f"{scale:.5g} 0 0 {-scale:.5g} 0 {scale * drawing.height:.5g} cm 1 j\n"  # y counts from the top
    content = (flipped + "\n".join(_operators(resolved(drawing, width)))).encode(ENCODING, "replace")
    box = f"[0 0 {scale * width:.5g} {scale * drawing.height:.5g}]"
    fonts = "<< /Font << /F 5 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Contents 4 0 R /Resources {fonts} >>".encode(),
        f"<< /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    return _file(objects)


def _file(objects: list[bytes]) -> bytes:
    """Return objects, numbered from 1, as a file with its table of where each begins."""
    head = b"%PDF-1.4\n"
    parts = [f"{number} 0 obj\n".encode() + body + b"\nendobj\n" for number, body in enumerate(objects, 1)]
    starts = list(accumulate(map(len, parts), initial=len(head)))
    entries = "".join(f"{start:010} 00000 n \n" for start in starts[:-1])
    table = f"xref\n0 {len(starts)}\n0000000000 65535 f \n{entries}"
    trailer = f"trailer\n<< /Size {len(starts)} /Root 1 0 R >>\nstartxref\n{starts[-1]}\n%%EOF\n"
    return head + b"".join(parts) + (table + trailer).encode()


def _operators(shapes: Iterable[Shape]) -> Iterator[str]:
    for shape in shapes:
        match shape:
            case Line():
                places = [f"{x:.2f} {y:.2f}" for x, y in shape.places]
                path = f"{places[0]} m " + " ".join(f"{place} l" for place in places[1:])
                dash = " ".join(f"{length:g}" for length in shape.dash)
                yield f"{_rgb(shape.colour.value)} RG {shape.width:g} w [{dash}] 0 d {path} S"
            case Mark():
                yield f"{_rgb(shape.colour.value)} rg {_outline(shape)} f"
            case Label():
                x = shape.x + shape.shift - text_width(shape) * SHARE_BEFORE[shape.anchor]
                escaped = "".join(f"\\{c}" if c in "()\\" else c for c in shape.text)
                where = f"1 0 0 -1 {x:.2f} {shape.y:.2f} Tm"
                yield f"BT {_rgb(shape.colour.value)} rg /F {shape.size:g} Tf {where} ({escaped}) Tj ET"


def text_width(text: Label) -> float:
    """Return the width of a text in pixels."""
    return text.size / 1000.0 * sum(_WIDTH_OF.get(character, 556) for character in text.text)


def _outline(mark: Mark) -> str:
    corners = corners_of(mark)
    if corners:
        first, *others = (f"{x:.2f} {y:.2f}" for x, y in corners)
        return f"{first} m " + " ".join(f"{place} l" for place in others) + " h"
    arcs = []
    for (ax, ay), (bx, by) in pairwise(_QUARTERS):
        places = ((ax + ROUND * bx, ay + ROUND * by), (bx + ROUND * ax, by + ROUND * ay), (bx, by))
        points = (f"{mark.x + mark.radius * x:.2f} {mark.y + mark.radius * y:.2f}" for x, y in places)
        arcs.append(" ".join(points) + " c")
    return f"{mark.x + mark.radius:.2f} {mark.y:.2f} m " + " ".join(arcs)


_QUARTERS = ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 0))


def _rgb(value: str) -> str:
    return " ".join(f"{int(value[at : at + 2], 16) / 255:.3g}" for at in (1, 3, 5))
