"""The text of a wrapper and its kernels, put together step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.scaffold.forms import GraphForm

Dtypes = tuple[torch.dtype | None, ...]

_C_NAMES = {
    torch.float32: "float", torch.bfloat16: "pb::bf16", torch.float16: "pb::f16", torch.float64: "double",
    torch.int64: "int64_t", torch.int32: "int32_t", torch.bool: "bool",
}  # fmt: skip
STORED = (torch.float32, torch.bfloat16, torch.float16)
"""The dtypes that ``pb::dispatch`` knows."""


class NoPlainKernel(Exception):
    """A call for which no plain kernel is known. Its text is the reason."""


class OnlyViews(NoPlainKernel):
    """Calls that leave a kernel nothing to do. Among others they can be matched."""


@dataclass(frozen=True)
class PointerArg:
    """A kernel's parameter that points to elements; to bytes if no dtypes are given."""

    name: str
    dtypes: Dtypes = ()
    written: bool = False


@dataclass(frozen=True)
class EmittedKernel:
    """A C++ function: its template's body, and what it is called with.

    ``numbers`` are pairs of a C++ type and a name.
    """

    name: str
    pointers: tuple[PointerArg, ...]
    numbers: tuple[tuple[str, str], ...]
    comment: str
    body: str


@dataclass
class Types:
    """The C++ types of a form's values. A value that has one dtype in all subgraphs has that type.

    Values whose dtype differs between subgraphs share a letter (T, U, ...) with all that go with them.
    """

    form: GraphForm
    letters: dict[Dtypes, str] = field(default_factory=dict)

    def name(self, dtypes: Dtypes) -> str:
        """Return the C++ type. Raises NoPlainKernel if kernels have none."""
        kinds = set(dtypes)
        if not kinds:
            return "char"
        if len(kinds) == 1:
            (kind,) = kinds
            if kind not in _C_NAMES:
                raise NoPlainKernel(f"a value of {kind}")
            return _C_NAMES[kind]
        if not kinds <= set(STORED):
            raise NoPlainKernel(f"a value that is {' or '.join(sorted(map(str, kinds)))}")
        return self.letters.setdefault(dtypes, "TUVWXYZ"[len(self.letters)])

    def rounds(self, dtypes: Dtypes) -> bool:
        """Return True if storing a float in this type may round it."""
        return set(dtypes) != {torch.float32} and set(dtypes) <= set(STORED)

    def kind(self, dtypes: Dtypes) -> str:
        """Return the type in which values of ``dtypes`` are computed: float, double, int or bool."""
        if set(dtypes) <= set(STORED):
            return "float"
        return {torch.float64: "double", torch.bool: "bool"}.get(dtypes[0], "int")

    def python(self, dtypes: Dtypes, named: dict[Node, str]) -> str:
        """Return a Python expression for a dtype in the wrapper, whose variables are ``named``."""
        if len(set(dtypes)) == 1:
            return str(dtypes[0])
        for node, name in named.items():
            if node in self.form.literals:
                if self.form.literal_values(node) == dtypes:
                    return name
            elif node.op == "placeholder" and self.form.dtypes(node) == dtypes:
                return f"{name}.dtype"
        for node, name in named.items():
            if self.form.values.get(node) and self.form.dtypes(node) == dtypes:
                return f"{name}.dtype"
        raise NoPlainKernel("a dtype that no argument has")


def template(kernel: EmittedKernel, types: Types) -> str:
    """Return a kernel's C++ text: a comment, the loops, and the function that Python calls."""
    letters = [name for name in dict.fromkeys(types.name(p.dtypes) for p in kernel.pointers) if len(name) == 1]
    parameters = [
        *(f"{'' if p.written else 'const '}{types.name(p.dtypes)}* {p.name}" for p in kernel.pointers),
        *(f"{kind} {name}" for kind, name in kernel.numbers),
    ]
    outer = [
        *(f"pb::{'out' if p.written else 'in'} {p.name}" for p in kernel.pointers),
        *(f"{kind} {name}" for kind, name in kernel.numbers),
        *(f"pb::dtype {letter.lower()}" for letter in letters),
    ]
    names = ", ".join([*(p.name for p in kernel.pointers), *(name for _kind, name in kernel.numbers)])
    head = f"template <{', '.join(f'class {letter}' for letter in letters)}>\n" if letters else ""
    call = f"{kernel.name}_loop" + (f"<{', '.join(f'decltype({x.lower()}_)' for x in letters)}>" if letters else "")
    call = f"{call}({names});"
    for letter in reversed(letters):
        call = f"pb::dispatch({letter.lower()}, [&](auto {letter.lower()}_) {{ {call} }});"
    comment = "".join(f"// {line}\n" for line in kernel.comment.splitlines())
    return (
        f"{comment}{head}"
        + _wrapped(f"void {kernel.name}_loop(", parameters, ") {")
        + f"\n{kernel.body.rstrip()}\n}}\n"
        + _wrapped(f'extern "C" void {kernel.name}(', outer, ") {")
        + f"\n  {call}\n}}\n"
    )


def _wrapped(head: str, items: Sequence[str], tail: str, width: int = 100) -> str:
    """Return a list of parameters, on as many lines as it needs."""
    lines, indent = [head], " " * len(head)
    for number, item in enumerate(items):
        piece = item + (", " if number + 1 < len(items) else tail)
        if len(lines[-1]) + len(piece.rstrip()) > width and lines[-1].strip() and lines[-1] != head:
            lines[-1] = lines[-1].rstrip()
            lines.append(indent)
        lines[-1] += piece
    return "\n".join(lines)


def wrapped_call(head: str, items: Iterable[str], indent: int = 4) -> str:
    """Return a call in Python on as many lines as it needs."""
    return _wrapped(" " * indent + head + "(", list(items), ")", 110)


def literal(value: Any) -> Any:
    """Return a call's argument that has to be known. Raises NoPlainKernel for one that differs between graphs."""
    if isinstance(value, Node):
        raise NoPlainKernel("an argument that differs between the task's graphs")
    if isinstance(value, (tuple, list)):
        return type(value)(map(literal, value))
    return value


def refuse(condition: bool, reason: str) -> None:
    """Raise NoPlainKernel if ``condition`` holds."""
    if condition:
        raise NoPlainKernel(reason)
