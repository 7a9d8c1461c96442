"""The task file: a header, which is all that collecting reads, then graphs and subgraphs (docs/task-format.md)."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import asdict
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.files import decode, opened, read_text, write_text
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.task import ELEMENT_BYTES, Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.suite.document import Cursor, Document, block, flow
from pytest_passbench.suite.limits import MAX_FILE_BYTES, MAX_HEADER_BYTES, MAX_SUBGRAPHS, shape_problem
from pytest_passbench.suite.source import ParsedSource, parse

SUFFIX = ".task.yaml"
FORMAT = "task/1"

_HEADER_KEYS = ("passbench", "id", "ops", "sources", "modality", "tags", "headroom", "subgraphs")
_SUBGRAPH_KEYS = ("id", "graph", "dtype", "source", "meta", "inputs")
_INPUT_KEYS = ("name", "original_name", "shape", "dtype", "mean", "std", "min", "max", "data")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def read_header(path: Path) -> TaskHeader:
    """Return the header of a task file, without reading further. Raises UserError with file and line."""
    text, _ = _split(path, _read_head(path))
    return _header(Document(text, path).root, path)


def read_task(path: Path) -> Task:
    """Return a task file, read and checked. Its graphs are parsed, not built. Raises UserError with file and line."""
    text, rest = _split(path, read_text(path, MAX_FILE_BYTES))
    header = _header(Document(text, path).root, path)
    document = Document(rest, path, offset=text.count("\n"))
    root = document.root.only(("graphs", "subgraphs"))
    programs = _programs(root.at("graphs"))
    subgraphs = tuple(_subgraph(item, programs) for item in root.at("subgraphs").items())
    _check_whole(root, header, subgraphs, programs)
    lines = {key: document.text_line(("graphs", key)) for key in programs}
    return Task(header, path, dict(root.at("graphs").mapping()), subgraphs, lines)


def write_task(task: Task, path: Path) -> None:
    """Write a task file and its folder. Raises UserError if it cannot be written."""
    write_text(path, dump_task(task))


def task_hash(task: Task) -> str:
    """Return the SHA-256 (hex) of a task's contents in their canonical spelling, wherever it was read from."""
    return hashlib.sha256(dump_task(task).encode()).hexdigest()


def dump_task(task: Task) -> str:
    """Return the text of a task's file: source as literal blocks, a line per input. Equal tasks give equal texts."""
    header = task.header
    lines = [f"passbench: {FORMAT}", f"id: {flow(header.id)}", f"ops: {flow(header.ops)}"]
    lines.append(f"sources: {flow(header.sources)}")
    lines += [f"modality: {flow(header.modality)}"] if header.modality else []
    lines.append(f"tags: {flow(header.tags)}")
    lines += [f"headroom: {flow(header.headroom)}"] if header.headroom else []
    lines += [f"subgraphs: {header.subgraphs}", "---", "graphs:"]
    for key, source in task.graphs.items():
        lines.append(f"  {flow(key)}: {block(source)}")
    lines.append("subgraphs:")
    for subgraph in task.subgraphs:
        lines += _dump_subgraph(subgraph)
    return "\n".join(lines) + "\n"


# Reading


def _read_head(path: Path) -> str:
    """Return the text up to the line that ends the first document, that line included."""
    lines: list[bytes] = []
    left, started = MAX_HEADER_BYTES, False
    with opened(path, MAX_FILE_BYTES) as file:
        while left and (line := file.readline(left)):
            lines.append(line)
            left -= len(line)
            if line.startswith(b"---") and started:
                break
            started = started or _is_content(line.decode(errors="replace"))
    return decode(b"".join(lines), path)


def _split(path: Path, text: str) -> tuple[str, str]:
    """Return header and body: the text before the document mark, and the text from the mark on."""
    lines, started = text.splitlines(keepends=True), False
    for position, line in enumerate(lines):
        if line.startswith("---") and started:
            return "".join(lines[:position]), "".join(lines[position:])
        started = started or _is_content(line)
    raise UserError("no second document", where=path, remedy="a task file is a header, a line '---', and graphs")


def _is_content(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith(("#", "---", "%"))


def _header(root: Cursor, path: Path) -> TaskHeader:
    version = root.at("passbench")
    if version.value != FORMAT:
        version.fail(f"format {abbreviated(version.value)} is not known", f"this version reads '{FORMAT}'")
    root.only(_HEADER_KEYS)
    header = TaskHeader(
        id=_identifier(root.at("id")),
        ops=root.at("ops").strings(),
        sources=root.at("sources").strings(),
        tags=root.maybe("tags", Cursor.strings, ()),
        subgraphs=root.at("subgraphs").integer(least=1, most=MAX_SUBGRAPHS),
        modality=root.maybe("modality", Cursor.string, ""),
        headroom=root.maybe("headroom", _finite, 0.0),
    )
    if not header.ops:
        root.at("ops").fail("ops is empty", "list the operators of the graphs, in order")
    if path.name != header.id + SUFFIX:
        root.at("id").fail(f"id {header.id!r} is not the file's name", f"call the file {header.id}{SUFFIX}")
    return header


def _identifier(cursor: Cursor) -> str:
    text = cursor.string()
    if not _ID.fullmatch(text):
        cursor.fail(f"{cursor.name} {text!r} is not an id", "letters, digits and _ . + - only")
    return text


def _programs(graphs: Cursor) -> dict[str, ParsedSource]:
    for key in graphs.mapping():
        if not isinstance(key, str) or not _ID.fullmatch(key):
            graphs.fail(f"{key!r} is not a graph's name", "letters, digits and _ . + - only")
    document = graphs.document
    programs = {key: graphs.at(key) for key in graphs.mapping()}
    return {
        key: parse(text.string(), str(document.path), document.text_line(text.steps))
        for key, text in programs.items()
    }


def _subgraph(cursor: Cursor, programs: dict[str, ParsedSource]) -> Subgraph:
    cursor.only(_SUBGRAPH_KEYS)
    graph = cursor.at("graph")
    if graph.string() not in programs:
        graph.fail(f"{graph.name}: no graph {graph.value!r}", f"graphs are: {', '.join(map(str, programs))}")
    inputs = tuple(_spec(item) for item in cursor.at("inputs").items())
    names, expected = tuple(s.name for s in inputs), programs[graph.value].inputs
    if names != expected:
        actual, required = ", ".join(names) or "none", ", ".join(expected) or "none"
        cursor.at("inputs").fail(
            f"inputs are {actual}; graph {graph.value} takes {required}", "same names, same order"
        )
    return Subgraph(
        id=_identifier(cursor.at("id")),
        graph=graph.value,
        dtype=_dtype(cursor.at("dtype")),
        inputs=inputs,
        source=cursor.maybe("source", Cursor.string, ""),
        meta=cursor.maybe("meta", Cursor.mapping, {}),
    )


def _dtype(cursor: Cursor) -> str:
    name = cursor.string()
    if name not in ELEMENT_BYTES:
        cursor.fail(f"{cursor.name}: unknown dtype {name!r}", "such as float32, bfloat16, int64, bool")
    return name


def _spec(cursor: Cursor) -> TensorSpec:
    cursor.only(_INPUT_KEYS)
    spec = TensorSpec(
        name=cursor.at("name").string(),
        shape=tuple(size.integer() for size in cursor.at("shape").items()),
        dtype=_dtype(cursor.at("dtype")),
        data=cursor.maybe("data", _data, None),
        original_name=cursor.maybe("original_name", Cursor.string, None),
        **{key: cursor.maybe(key, _finite, None) for key in ("mean", "std", "min", "max")},
    )
    problem = spec_problem(spec)
    if problem:
        cursor.fail(f"{cursor.name} ({spec.name}): {problem}", "correct the input")
    return spec


def _data(cursor: Cursor) -> tuple[float | int | bool, ...]:
    items = cursor.items()
    return tuple(item.value if isinstance(item.value, bool | int | float) else item.number() for item in items)


def _finite(cursor: Cursor) -> float:
    number = cursor.number()
    if not math.isfinite(number):
        cursor.fail(f"{cursor.name} is {number}", "give a finite number, or leave it out; data may have infinities")
    return number


def spec_problem(spec: TensorSpec) -> str | None:
    """Return a contradiction between an input's numbers, in words, or None."""
    if spec.std is not None and spec.std < 0:
        return f"std is {spec.std}"
    if spec.min is not None and spec.max is not None and spec.min > spec.max:
        return f"min {spec.min} is above max {spec.max}"
    if problem := shape_problem(spec.shape):
        return problem
    count = math.prod(spec.shape)
    if spec.data is not None and len(spec.data) != count:
        return f"{counted(len(spec.data), 'value')} in data, shape {list(spec.shape)} holds {count}"
    return None


def _check_whole(
    root: Cursor, header: TaskHeader, subgraphs: tuple[Subgraph, ...], programs: dict[str, ParsedSource]
) -> None:
    if len(subgraphs) != header.subgraphs:
        what = f"{counted(len(subgraphs), 'subgraph')}, the header says {header.subgraphs}"
        root.at("subgraphs").fail(what, f"set 'subgraphs: {len(subgraphs)}'")
    ids: set[str] = set()
    for position, subgraph in enumerate(subgraphs):
        if subgraph.id in ids:
            root.at("subgraphs").items()[position].fail(f"two subgraphs have the id {subgraph.id!r}", "rename one")
        ids.add(subgraph.id)
    for key in programs.keys() - {s.graph for s in subgraphs}:
        root.at("graphs").at(key).fail(f"no subgraph uses graph {key!r}", "remove it")


# Writing


def _dump_subgraph(subgraph: Subgraph) -> list[str]:
    lines = [f"- id: {flow(subgraph.id)}", f"  graph: {flow(subgraph.graph)}", f"  dtype: {flow(subgraph.dtype)}"]
    lines += [f"  source: {flow(subgraph.source)}"] if subgraph.source else []
    lines += [f"  meta: {flow(subgraph.meta)}"] if subgraph.meta else []
    if not subgraph.inputs:
        return [*lines, "  inputs: []"]
    lines.append("  inputs:")
    for spec in subgraph.inputs:
        values = {**asdict(spec), "shape": list(spec.shape), "data": None if spec.data is None else list(spec.data)}
        lines.append(f"  - {flow({key: values[key] for key in _INPUT_KEYS if values[key] is not None})}")
    return lines
