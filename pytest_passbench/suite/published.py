"""The published on-disk layout, a sample folder with subgraph folders: read as data, and written."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import math
import re
import textwrap
from collections.abc import Container, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.files import kind_of, read_text, write_text
from pytest_passbench.core.jsontext import parse as parse_json
from pytest_passbench.core.task import ELEMENT_BYTES, Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.suite.limits import MAX_FILE_BYTES, MAX_SUBGRAPHS
from pytest_passbench.suite.source import ParsedSource, parse, signature
from pytest_passbench.suite.tensormeta import print_specs, read_specs, read_symbols

LIST = "graph_list.txt"
MODEL = "model.py"
_RECORD = "graph_net.json"
_PASSBENCH = "passbench"  # the record's key for facts that the layout has no place for


def read_sample(folder: Path) -> Task:
    """Return a sample folder (with ``graph_list.txt``) as a task. Raises UserError with file and line."""
    return _task(folder, [(name, folder / name) for name in _listed(folder)])


def read_subgraph_folder(folder: Path) -> Task:
    """Return a bare subgraph folder as a task of one subgraph. Raises UserError with file and line."""
    return _task(folder, [(folder.resolve().name, folder)])


def read_folder_header(folder: Path) -> TaskHeader:
    """Return the header of a sample or bare subgraph folder, without importing torch.

    ``ops`` is empty if the folder does not state them; reading the whole task finds them. Raises UserError with
    the file.
    """
    names = _listed(folder) if kind_of(folder / LIST) is not None else [""]
    extras = _graph_net(folder / names[0]).get(_PASSBENCH, {})
    return _header(folder, len(names), extras)


def write_sample(task: Task, folder: Path, device: str = "cpu") -> None:
    """Write a task as a sample folder, from which :func:`read_sample` reads an equal task. Raises UserError."""
    for subgraph in task.subgraphs:
        _write_subgraph(task, subgraph, folder / subgraph.id, device)
    write_text(folder / LIST, "".join(f"{s.id}\n" for s in task.subgraphs))


# Reading


def _read(path: Path) -> str:
    return read_text(path, MAX_FILE_BYTES)


def _listed(folder: Path) -> list[str]:
    path = folder / LIST
    names = [line.strip() for line in _read(path).splitlines()]
    names = list(dict.fromkeys(name for name in names if name and not name.startswith("#")))
    if len(names) > MAX_SUBGRAPHS:
        raise UserError(f"names more than {MAX_SUBGRAPHS:,} subgraphs", where=path, remedy="split the sample")
    if not names:
        raise UserError("names no subgraph", where=path, remedy="one relative path a line")
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            raise UserError(f"{abbreviated(name)} leads out of the folder", where=path, remedy="give paths below it")
    return names


def _graph_net(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD
    if kind_of(path) is None:
        return {}
    data = parse_json(_read(path), path)
    if not isinstance(data, dict) or not isinstance(data.get(_PASSBENCH, {}), dict):
        raise UserError("not a JSON object", where=path, remedy="correct the file")
    return data


def identifier(text: str) -> str:
    """Return a text as an id: letters, digits and ``_ . + -``. Other characters become ``-``."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", text).strip("-._+") or "sample"


def distinct(name: str, names: Container[str]) -> str:
    """Return an id that is not taken: the name, or the name with the first free number from 2 on."""
    numbers = (f"{name}-{number}" for number in itertools.count(2))
    return name if name not in names else next(numbered for numbered in numbers if numbered not in names)


def _header(folder: Path, count: int, extras: dict[str, Any]) -> TaskHeader:
    lists = {key: extras.get(key) for key in ("ops", "sources", "tags")}
    header = {key: tuple(map(str, items)) if isinstance(items, list) else () for key, items in lists.items()}
    name = identifier(str(extras.get("task", folder.resolve().name)))
    ratio = extras.get("headroom")
    headroom = float(ratio) if isinstance(ratio, int | float) and math.isfinite(ratio) else 0.0
    return TaskHeader(id=name, subgraphs=count, modality=str(extras.get("modality", "")), headroom=headroom, **header)


def _task(folder: Path, members: list[tuple[str, Path]]) -> Task:
    graphs: dict[str, str] = {}
    subgraphs: list[Subgraph] = []
    ids: set[str] = set()
    for name, path in members:
        record, program = _graph_net(path), _program(path)
        if not subgraphs:
            first_record, first_program = record, program
        subgraph = _subgraph(name, path, program, record, graphs)
        subgraph = replace(subgraph, id=distinct(subgraph.id, ids))
        ids.add(subgraph.id)
        subgraphs.append(subgraph)
    header = _header(folder, len(subgraphs), first_record.get(_PASSBENCH, {}))
    header = replace(header, sources=header.sources or tuple(dict.fromkeys(s.source for s in subgraphs if s.source)))
    if not header.ops:
        header = replace(header, ops=_operators(first_program))
    return Task(header, folder, graphs, tuple(subgraphs))


def _operators(program: ParsedSource) -> tuple[str, ...]:
    from pytest_passbench.suite.build import build_program
    from pytest_passbench.suite.opnames import operator_sequence

    return operator_sequence(build_program(program).graph.nodes)


def _program(folder: Path) -> ParsedSource:
    model = folder / MODEL
    if kind_of(model) is None:
        raise UserError(f"no {MODEL}", where=folder, remedy="a subgraph folder has one")
    return parse(_read(model), str(model))


def _subgraph(
    name: str, folder: Path, program: ParsedSource, record: dict[str, Any], graphs: dict[str, str]
) -> Subgraph:
    inputs = _inputs(folder, program.inputs)
    extras = record.get(_PASSBENCH, {})
    meta = extras.get("meta", {k: v for k, v in record.items() if k not in ("framework", _PASSBENCH)})
    dtype = str(extras.get("dtype", _main_dtype(inputs)))
    if dtype not in ELEMENT_BYTES:
        remedy = "such as float32, bfloat16, int64, bool"
        raise UserError(f"unknown dtype {abbreviated(dtype)}", where=folder / _RECORD, remedy=remedy)
    return Subgraph(
        id=identifier(name),
        graph=_key(_bare_source(program), graphs, extras.get("graph")),
        dtype=dtype,
        inputs=inputs,
        source=str(extras.get("source", record.get("model_name", record.get("source", "")))),
        meta=meta,
    )


def _bare_source(program: ParsedSource) -> str:
    """Return the bare ``def forward(in_0, ...)`` of a model file, without annotations and clean-up."""
    lines = [signature(program.inputs)]
    lines += [textwrap.indent(ast.unparse(statement), "    ") for statement in _without_cleanup(program.body)]
    return "\n".join(lines) + "\n"


def _without_cleanup(body: tuple[ast.stmt, ...]) -> Iterable[ast.stmt]:
    """Return the statements without ``x = None`` and ``del x``, unless a later statement reads the name."""
    statements: list[ast.stmt] = []
    read: set[str] = set()
    for statement in reversed(body):
        if isinstance(statement, ast.Delete) or (_is_cleanup(statement) and not _stored(statement) & read):
            continue
        statements.append(statement)
        read |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        read |= _stored(statement) if isinstance(statement, ast.AugAssign) else set()
    return reversed(statements)


def _is_cleanup(statement: ast.stmt) -> bool:
    is_none = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    return is_none and statement.value.value is None and bool(_stored(statement))  # type: ignore[attr-defined]


def _stored(statement: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _inputs(folder: Path, arguments: tuple[str, ...]) -> tuple[TensorSpec, ...]:
    symbols = read_symbols(folder / "input_tensor_constraints.py")
    specs = [s for name in ("weight_meta.py", "input_meta.py") for s in read_specs(folder / name, symbols)]
    named = {spec.name: spec for spec in specs}
    for argument in arguments:
        if argument not in named:
            where = folder / "weight_meta.py"
            raise UserError(f"no class for input {argument!r}", where=where, remedy=f"{MODEL}'s forward takes it")
    return tuple(named[argument] for argument in arguments)


def _key(source: str, graphs: dict[str, str], digest: Any) -> str:
    """Return the key of a graph's text in ``graphs``, and add the text if it is new."""
    if isinstance(digest, str) and graphs.setdefault(digest, source) == source:
        return digest
    for key, text in graphs.items():
        if text == source:
            return key
    key = f"g{len(graphs)}"
    graphs[key] = source
    return key


def _main_dtype(inputs: tuple[TensorSpec, ...]) -> str:
    """Return the dtype of the largest floating input, else that of the first input."""
    floating = [s for s in inputs if "float" in s.dtype or "complex" in s.dtype]
    largest = max(floating, key=lambda spec: math.prod(spec.shape), default=inputs[0] if inputs else None)
    return largest.dtype if largest is not None else "float32"


# Writing


def _write_subgraph(task: Task, subgraph: Subgraph, folder: Path, device: str) -> None:
    source = task.graphs[subgraph.graph]
    files = {
        MODEL: _model_text(source, str(task.path)),
        "weight_meta.py": print_specs(subgraph.inputs, device),
        "input_meta.py": "",
        "input_tensor_constraints.py": "",
        _RECORD: json.dumps(_record(task.header, subgraph), indent=1, default=str) + "\n",
        "graph_hash.txt": hashlib.sha256(source.encode()).hexdigest(),
    }
    for name, text in files.items():
        write_text(folder / name, text)


def _record(header: TaskHeader, subgraph: Subgraph) -> dict[str, Any]:
    extras = {key: value for key, value in asdict(header).items() if key not in ("id", "subgraphs")}
    extras |= {"task": header.id, "graph": subgraph.graph, "dtype": subgraph.dtype}
    extras |= {"source": subgraph.source, "meta": subgraph.meta}
    return {
        "framework": "torch",
        "dynamic": False,
        "model_name": subgraph.source,
        **subgraph.meta,
        _PASSBENCH: extras,
    }


def _model_text(source: str, origin: str) -> str:
    program = parse(source, origin)
    lines = ["import math", "import operator", "from math import inf, nan", "", "import torch"]
    lines += ["from torch import device", "", ""]
    lines += ["class GraphModule(torch.nn.Module):"]
    lines += [textwrap.indent(signature(("self", *program.inputs)), "    ")]
    lines += [textwrap.indent(ast.unparse(statement), " " * 8) for statement in program.body]
    return "\n".join(lines) + "\n"
