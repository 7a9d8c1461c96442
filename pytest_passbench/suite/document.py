"""YAML read as plain data, with the line of every value, and values written as YAML. Tags are never executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.suite.limits import MAX_DEPTH, MAX_NODES, MAX_PLAIN

_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Value = TypeVar("Value")


class Document:
    """A YAML document, parsed. ``offset`` lines of the file come before it. Raises UserError with file and line."""

    def __init__(self, text: str, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        loader = _Loader(text)
        try:
            self.node = _Composer(loader, self).compose()
            value = loader.construct_document(self.node) if self.node is not None else None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            mark = getattr(error, "problem_mark", None)
            place = f"{path}:{offset + mark.line + 1}" if mark is not None else str(path)
            problem = getattr(error, "problem", None) or str(error)
            raise UserError(f"not YAML: {problem}", where=place, remedy="correct the file") from None
        finally:
            loader.dispose()
        self.root = Cursor(value, (), self)

    def line(self, steps: tuple[str | int, ...]) -> int:
        """Return the line of the file (from 1) at which the value at ``steps`` begins, its key included."""
        node, mark = self.node, getattr(self.node, "start_mark", None)
        for step in steps:
            key, node = _child(node, step)
            if node is None:
                break
            mark = key.start_mark
        return self.offset + (mark.line if mark is not None else 0) + 1

    def text_line(self, steps: tuple[str | int, ...]) -> int:
        """Return the line at which the text of a literal block (``|``) begins."""
        node = self.node
        for step in steps:
            node = _child(node, step)[1]
        return self.line(steps) + (1 if getattr(node, "style", None) in ("|", ">") else 0)


class _Composer:
    """A maker of a document's tree of nodes, without recursion and within limits.

    PyYAML's own composer ends the process if lists nest too deeply. It also takes aliases, by which a short text
    stands for endless data. If a mapping has several values for a key, it keeps the last one.
    """

    def __init__(self, loader: Any, document: Document) -> None:
        self._loader, self._document = loader, document
        self._open: list[Any] = []  # the nodes of the lists and mappings that have not ended yet
        self._names: list[set[str]] = []  # for each, the keys so far
        self._root: Any = None
        self._count = 0

    def compose(self) -> Any:
        """Return the root node, None for an empty document. Raises UserError or yaml.YAMLError."""
        while not isinstance(event := self._loader.get_event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.NodeEvent):
                self._check(event)
                self._start(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._names.pop()
                self._add(self._open.pop())
            elif isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
                self._fail("a further document", event, "a task file has two: the header, and the graphs")
        return self._root

    def _fail(self, what: str, place: Any, remedy: str) -> NoReturn:
        where = f"{self._document.path}:{self._document.offset + place.start_mark.line + 1}"
        raise UserError(what, where=where, remedy=remedy)

    def _check(self, event: Any) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            self._fail(f"more than {MAX_NODES:,} values", event, "make the task smaller")
        if event.anchor is not None:
            self._fail(f"an anchor or alias, {abbreviated(event.anchor)}", event, "write the value out")
        if getattr(event, "tag", None) not in (None, "!"):
            self._fail(f"a tag, {abbreviated(event.tag)}", event, "write the value without it")
        if isinstance(event, yaml.CollectionStartEvent) and len(self._open) == MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} lists and mappings in each other", event, "nest them less")
        if isinstance(event, yaml.ScalarEvent) and event.style is None and len(event.value) > MAX_PLAIN:
            self._fail(f"a value of more than {MAX_PLAIN:,} characters", event, "put text of that length in quotes")

    def _start(self, event: Any) -> None:
        mark = event.start_mark
        if isinstance(event, yaml.ScalarEvent):
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
            self._add(yaml.ScalarNode(tag, event.value, mark, style=event.style))
            return
        kind = yaml.MappingNode if isinstance(event, yaml.MappingStartEvent) else yaml.SequenceNode
        self._open.append(kind(self._loader.resolve(kind, None, event.implicit), [], mark))
        self._names.append(set())

    def _add(self, node: Any) -> None:
        """Put a node that is complete into the list or mapping around it."""
        values: list[Any] = self._open[-1].value if self._open else []
        if not self._open:
            self._root = node
        elif isinstance(self._open[-1], yaml.SequenceNode):
            values.append(node)
        elif values and not isinstance(values[-1], tuple):  # a key that waits for its value
            values[-1] = (values[-1], node)
        else:
            self._check_key(node)
            values.append(node)

    def _check_key(self, node: Any) -> None:
        if not isinstance(node, yaml.ScalarNode):
            self._fail("a list or mapping as a key", node, "write a name before the colon")
        if node.value in self._names[-1]:
            self._fail(f"the key {abbreviated(node.value)} a second time", node, "remove one of them")
        self._names[-1].add(node.value)


def _child(node: Any, step: str | int) -> tuple[Any, Any]:
    """Return a key's node and its value's, (None, None) if it is missing. For an index, both are the item's node."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node, yaml.MappingNode):
        return next((pair for pair in node.value if pair[0].value == str(step)), (None, None))
    return None, None


@dataclass(frozen=True)
class Cursor:
    """A value of a document, and the path to it. Its methods check types, and raise UserError with file and line."""

    value: Any
    steps: tuple[str | int, ...]
    document: Document

    @property
    def name(self) -> str:
        """The path in words: ``subgraphs[3].dtype``, or "the document"."""
        text = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.steps)
        return text.removeprefix(".") or "the document"

    def fail(self, what: str, remedy: str | None = None) -> NoReturn:
        """Raise UserError at this value's line."""
        where = f"{self.document.path}:{self.document.line(self.steps)}"
        raise UserError(what, where=where, remedy=remedy)

    def at(self, key: str) -> Cursor:
        """Return the value under a key that must exist."""
        if key not in self.mapping():
            self.fail(f"{self.name} has no {key!r}", f"add '{key}:'")
        return Cursor(self.value[key], (*self.steps, key), self.document)

    def maybe(self, key: str, read: Callable[[Cursor], Value], default: Value) -> Value:
        """Return what ``read`` returns for the value under a key; the default if the key or its value is missing."""
        return read(self.at(key)) if self.mapping().get(key) is not None else default

    def only(self, keys: tuple[str, ...]) -> Cursor:
        """Return the cursor itself; fail if the mapping has other keys."""
        for key in self.mapping():
            if key not in keys:
                at = Cursor(self.value, (*self.steps, str(key)), self.document)
                at.fail(f"unknown key {key!r} in {self.name}", f"known keys: {', '.join(keys)}")
        return self

    def items(self) -> list[Cursor]:
        """Return the items of a list."""
        if not isinstance(self.value, list):
            self.fail(f"{self.name} is {_kind(self.value)}", "give a list")
        return [Cursor(v, (*self.steps, i), self.document) for i, v in enumerate(self.value)]

    def mapping(self) -> dict[Any, Any]:
        """Return the value, which must be a mapping."""
        if not isinstance(self.value, dict):
            self.fail(f"{self.name} is {_kind(self.value)}", "give a mapping")
        return self.value

    def string(self) -> str:
        """Return the value, which must be a string."""
        if not isinstance(self.value, str):
            self.fail(f"{self.name} is {_kind(self.value)}", "give a string, in quotes if it looks like another type")
        return self.value

    def strings(self) -> tuple[str, ...]:
        """Return the value, which must be a list of strings."""
        return tuple(item.string() for item in self.items())

    def integer(self, least: int = 0, most: int = 1 << 63) -> int:
        """Return the value, which must be an integer from ``least`` to ``most``."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not least <= self.value <= most:
            self.fail(f"{self.name} is {_kind(self.value)}", f"give an integer from {least} to {most}")
        return self.value

    def number(self) -> float:
        """Return the value as a float. YAML 1.1 reads ``1e-5`` as a string, so such strings are numbers too."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float | str):
            self.fail(f"{self.name} is {_kind(self.value)}", "give a number")
        try:
            return float(self.value)
        except (ValueError, OverflowError):
            self.fail(f"{self.name} is {_kind(self.value)}", "give a number")


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return abbreviated(value)


class _Dumper(_SafeDumper):
    """A dumper that quotes strings with line breaks or control characters, so that a value is one line."""


_Dumper.ignore_aliases = lambda *_: True  # a task file may not have any
_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)


def _dump(value: Any, flow: bool) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=flow, sort_keys=False, width=1 << 30, allow_unicode=True
    )
    return text.strip()


def flow(value: Any) -> str:
    """Return a value in YAML's flow style, on one line."""
    if isinstance(value, str):
        return _dump({"k": value}, flow=False).removeprefix("k:").strip()
    return _dump([list(value) if isinstance(value, tuple) else value], flow=True)[1:-1]


def block(source: str) -> str:
    """Return source text as a literal block, indented by 4 spaces, or in quotes if YAML has no literal form of it."""
    mark = "|" if source.endswith("\n") and not source.endswith("\n\n") else "|-"
    body = "\n".join(f"    {line}" if line else "" for line in source.splitlines())
    text = f"{mark}\n{body}"
    try:
        same = yaml.load(f"a: {text}\n", Loader=_Loader) == {"a": source}
    except yaml.YAMLError:
        same = False
    return text if same else flow(source)
