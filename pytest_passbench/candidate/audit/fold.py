"""Folding of constants: what strings and numbers come out as, without running the candidate."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from itertools import islice, product
from typing import Any

from pytest_passbench.candidate.audit.tables import words
from pytest_passbench.candidate.audit.values import (
    NOTHING,
    SCALAR,
    TEXT,
    Atom,
    Const,
    Mark,
    Template,
    Value,
    const,
    join,
)

_COMBINATIONS = 24
_LONG = 200_000
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
TEXT_METHODS = words("""
    join format split rsplit strip lstrip rstrip lower upper replace title capitalize zfill
    partition splitlines encode decode hex swapcase removeprefix removesuffix translate casefold
    expandtabs ljust rjust center startswith endswith find index count isdigit isalpha isidentifier
    rpartition""")
_NEVER_LONG = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "translate", "format"})


def is_text(atom: Atom) -> bool:
    """Is ``atom`` a string or bytes?"""
    if isinstance(atom, Const):
        return isinstance(atom.value, str | bytes)
    return isinstance(atom, Template) or atom is Mark.TEXT


def binary(op: ast.operator, left: Value, right: Value) -> Value:
    """The result of ``left op right`` on strings and numbers."""
    if len(left) * len(right) > _COMBINATIONS:
        return TEXT | SCALAR if any(map(is_text, left | right)) else SCALAR
    return join([_binary(op, a, b) for a, b in product(left, right)])


def _binary(op: ast.operator, a: Atom, b: Atom) -> Value:
    if isinstance(a, Const) and isinstance(b, Const):
        return _constant(op, a.value, b.value)
    if is_text(a) or is_text(b):
        if isinstance(op, ast.Add) and (joined := concatenate([frozenset({a}), frozenset({b})])):
            return joined
        return TEXT
    return SCALAR


def _constant(op: ast.operator, a: Any, b: Any) -> Value:
    function = _OPERATORS.get(type(op))
    if function is None or not _small(a) or not _small(b):
        return TEXT if isinstance(a, str | bytes) else SCALAR
    if isinstance(op, ast.Mult) and any(isinstance(x, str | bytes) for x in (a, b)):
        count = next((x for x in (a, b) if isinstance(x, int)), 0)
        if count > 1000:
            return TEXT
    try:
        return const(function(a, b))
    except Exception:  # folding is best effort; the value is simply unknown
        return NOTHING


def _small(value: object) -> bool:
    if isinstance(value, str | bytes):
        return len(value) < _LONG
    return not isinstance(value, int) or abs(value) < 1 << 63


def concatenate(parts: list[Value]) -> Value:
    """The strings that ``parts`` may make together; a number in between leaves a hole."""
    combos = list(islice(product(*parts), _COMBINATIONS + 1))
    if len(combos) > _COMBINATIONS:
        return TEXT
    return join([_glue(combo) for combo in combos])


def _glue(atoms: tuple[Atom, ...]) -> Value:
    pieces: list[str] = []
    exact = True
    for atom in atoms:
        if isinstance(atom, Const) and not isinstance(atom.value, bytes):
            pieces.append(str(atom.value))
        elif isinstance(atom, Template):
            pieces.append(atom.text)
            exact = False
        elif atom is Mark.SCALAR:
            pieces.append("1")
            exact = False
        else:
            return TEXT
    text = "".join(pieces)
    return const(text) if exact else frozenset({Template(text)})


def method(owner: Atom, name: str, args: list[Value]) -> Value:
    """The result of a string method on constants, or "a string" where they are not constants."""
    if isinstance(owner, Template):
        return _on_template(owner, name, args)
    if not isinstance(owner, Const) or name in _NEVER_LONG - {"format"}:
        return TEXT
    combos = list(islice(product(*args), _COMBINATIONS + 1))
    if len(combos) > _COMBINATIONS or not all(isinstance(a, Const) for combo in combos for a in combo):
        return _formatted(owner, name, args)
    return join([_apply(owner.value, name, [a.value for a in combo if isinstance(a, Const)]) for combo in combos])


def _apply(text: object, name: str, args: list[object]) -> Value:
    if name == "format" and isinstance(text, str) and any(ch in text for ch in ":!.["):
        return TEXT
    try:
        result = getattr(text, name)(*args)
    except Exception:  # a wrong call raises in the candidate too
        return NOTHING
    return const(result) if isinstance(result, str | bytes | int | bool) else TEXT


def _on_template(owner: Template, name: str, args: list[Value]) -> Value:
    if name in ("format", "replace", "strip", "lstrip", "rstrip"):
        folded = method(Const(owner.text), name, args)
        return frozenset(Template(a.value) if isinstance(a, Const) else a for a in folded)  # type: ignore[arg-type]
    return TEXT


def _formatted(owner: Const, name: str, args: list[Value]) -> Value:
    """``text.replace("N", str(n))`` and the like: numbers leave holes in generated C++."""
    if name != "replace" or any(atom is not Mark.SCALAR and not isinstance(atom, Const | Template)
                                for arg in args for atom in arg):  # fmt: skip
        return TEXT
    plain = [frozenset(_plain(atom) for atom in arg) for arg in args]
    folded = method(owner, name, plain)
    return frozenset(Template(str(a.value)) if isinstance(a, Const) else a for a in folded)


def _plain(atom: Atom) -> Atom:
    if isinstance(atom, Template):
        return Const(atom.text)
    return Const("1") if atom is Mark.SCALAR else atom
