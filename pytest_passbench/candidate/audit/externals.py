"""Calls of library members: what they give back, and which arguments they may not get."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_passbench.candidate.audit import builtin_calls, fold, native, tables
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.policy import is_operator
from pytest_passbench.candidate.audit.program import REST
from pytest_passbench.candidate.audit.values import (
    MAYBE,
    NOTHING,
    SCALAR,
    TENSOR,
    TEXT,
    Atom,
    Const,
    Ext,
    FuncRef,
    Mark,
    OwnPath,
    Partial,
    Template,
    Value,
    join,
)

if TYPE_CHECKING:
    from pytest_passbench.candidate.audit.calls import Arguments

PASS_THROUGH: Value = frozenset({Ext("builtins.object")})  # a decorator that gives back what it is given


def call(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    """The value of ``path(*given)``. That ``path`` itself may be named was judged where it was."""
    if path.startswith("builtins."):
        return builtin_calls.call(frame, node, path[9:], given)
    if path.startswith("torch."):
        return _torch(frame, node, path[6:], given)
    if frame.program.policy.refuses(path, frame.mode):
        frame.program.escape(join(given.all), frame.mode)
        return NOTHING
    special = _SPECIAL.get(path) or _SPECIAL.get(path.split(".")[0])
    if special is not None:
        return special(frame, node, path, given)
    return _anything(frame, node, path, given)


def _anything(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    frame.refuse_tensors(node, f"{path} on a tensor", *given.all)
    _escape(frame, given)
    return MAYBE


def _escape(frame: Frame, given: Arguments) -> None:
    """Functions among the arguments may be called, with the tensors among them if there are any."""
    argument = MAYBE | TENSOR if frame.holds_tensor(*given.all) else MAYBE
    frame.program.escape(join(given.all), frame.mode, argument)


def _torch(frame: Frame, node: ast.Call, name: str, given: Arguments) -> Value:
    if name in ("fx.wrap", "no_grad", "inference_mode"):
        return given.first() if given.args else PASS_THROUGH
    if name in ("Stream.wait_stream",) or name.startswith("cuda.") or name in tables.METADATA_FUNCTIONS:
        return SCALAR
    if name in tables.ALLOCATION:
        _check_allocation(frame, node, name, given)
        return TENSOR
    if name in tables.VIEWS:
        frame.refuse_tensors(node, f"torch.{name} with a tensor as index", *given.args[1:])
        return TENSOR
    frame.program.escape(join(given.all), frame.mode, TENSOR)
    if name in tables.TYPES - {"Tensor"} or name.split(".")[0] in ("finfo", "iinfo"):
        return SCALAR
    return TENSOR if is_operator(name) else NOTHING


def _check_allocation(frame: Frame, node: ast.Call, name: str, given: Arguments) -> None:
    values = [*given.args[1:], given.rest, *given.named.values()]
    if not name.endswith("_like") and name != "as_tensor":
        values += given.args[:1]
    frame.refuse_tensors(node, f"torch.{name} that copies or reads a tensor", *values)
    if name == "as_tensor" and Mark.TENSOR not in given.first():
        values.append(given.first())
    converts = {"dtype", "device"} & set(given.named) or len(given.args) > 1
    if name == "as_tensor" and converts:
        frame.refuse_tensors(node, "torch.as_tensor that converts a tensor", given.first())


def _triton(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    name = path.removeprefix("triton.")
    if name in ("jit", "autotune", "heuristics"):
        return make_kernel(frame, given)
    if name in ("cdiv", "next_power_of_2"):
        frame.refuse_tensors(node, f"{path} on a tensor", *given.all)
        return SCALAR
    frame.program.escape(join(given.all), frame.mode)
    return SCALAR


def make_kernel(frame: Frame, given: Arguments) -> Value:
    """``triton.jit(f)``, or ``triton.jit(...)`` still to be given its function."""
    target = given.first()
    functions = [a for a in target if isinstance(a, FuncRef)]
    for atom in functions:
        function = frame.program.functions[atom.key]
        frame.program.changed = frame.program.changed or not function.kernel
        function.kernel = True
    frame.program.escape(join([*given.args[1:], *given.named.values(), frozenset(target - set(functions))]),
                         frame.mode)  # fmt: skip
    return frozenset({Mark.KERNEL}) if functions or Mark.KERNEL in target else frozenset({Ext("triton.jit")})


def _functools(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    name = path.removeprefix("functools.")
    if name == "partial":
        return _partial(frame, node, given)
    if name == "reduce":
        return _reduce(frame, node, given)
    functions = [a for a in given.first() if isinstance(a, FuncRef)]
    if name in ("lru_cache", "cache", "cached_property"):
        for atom in functions:
            frame.program.functions[atom.key].cached = True
            frame.program.functions[atom.key].is_property |= name == "cached_property"
        return given.first() if functions else frozenset({Ext("functools.cache")})
    return PASS_THROUGH if name == "wraps" else given.first()


def _partial(frame: Frame, node: ast.Call, given: Arguments) -> Value:
    site = (id(node), "partial")
    items: dict[Atom | str, Value] = {"f": given.first(), REST: given.rest}
    items |= {Const(i): value for i, value in enumerate(given.args[1:])}
    items |= {f"={name}": value for name, value in given.named.items()}
    frame.program.heap.setdefault(site, {})
    for key, value in items.items():
        frame.program.grow_box(site, key, value)
    return frozenset({Partial(site)})


def _reduce(frame: Frame, node: ast.Call, given: Arguments) -> Value:
    from pytest_passbench.candidate.audit import calls

    items = frame.elements(given.args[1]) if len(given.args) > 1 else given.rest
    start = given.args[2] if len(given.args) > 2 else items
    step = calls.Arguments([join((start, items)), items], {})
    return join((start, calls.apply(frame, node, given.first(), step)))


def _operator(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    if path in ("operator.getitem", "operator.itemgetter", "operator.is_", "operator.is_not"):
        return MAYBE if path != "operator.getitem" else frame.elements(given.first())
    frame.refuse_tensors(node, f"{path} on a tensor", *given.all)
    if any(fold.is_text(atom) for value in given.all for atom in value):
        return TEXT
    return TENSOR if frame.holds_tensor(*given.all) else MAYBE if Mark.MAYBE in join(given.all) else SCALAR


def _math(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    frame.refuse_tensors(node, f"{path} on a tensor", *given.all, rule="reads-values")
    return SCALAR


def _paths(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    """``os.path.*`` and ``pathlib.Path`` keep a path derived from ``__file__`` what it is."""
    own = [a for a in given.first() if isinstance(a, OwnPath)]
    if path == "pathlib.Path" and (len(own) < len(given.first()) or not given.args):
        frame.report("external", node, "a path that is not derived from __file__")
    if not own:
        return TEXT
    if path.endswith("dirname"):
        return frozenset({OwnPath(a.parts[:-1] if a.parts else ("..",)) for a in own})
    names = tuple(str(a.value) for v in given.args[1:] for a in v if isinstance(a, Const))
    return frozenset({OwnPath((*a.parts, *names)) for a in own})


def _sys_path(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    folder = given.args[-1] if given.args else given.rest
    if path in ("sys.path.insert", "sys.path.append") and not all(isinstance(a, OwnPath) for a in folder):
        frame.report("sys-path", node, f"{path} of a folder that is not derived from __file__")
    return SCALAR


def path_method(frame: Frame, node: ast.Call, owner: OwnPath, name: str, given: Arguments) -> Value:
    """Methods of a path of the candidate's own: looking and reading, never writing."""
    if name in ("resolve", "absolute", "as_posix", "expanduser"):
        return frozenset({owner})
    if name in ("joinpath", "with_name", "with_suffix"):
        names = tuple(str(a.value) for v in given.args for a in v if isinstance(a, Const))
        base = owner.parts if name == "joinpath" else owner.parts[:-1]
        stem = owner.parts[-1].rsplit(".", 1)[0] if owner.parts and name == "with_suffix" else ""
        return frozenset({OwnPath((*base, *(stem + part for part in names)))})
    if name == "read_text":
        return _read(frame, owner)
    if name in ("exists", "is_file", "is_dir"):
        return SCALAR
    frame.report("external", node, f"Path.{name}: a pass reads its own source files and nothing else")
    return NOTHING


def _read(frame: Frame, owner: OwnPath) -> Value:
    """The text of a file of the candidate's own, which then is screened like a literal."""
    path = frame.module.path.parent.joinpath(*owner.parts)
    inside = path.resolve().is_relative_to(frame.program.root.resolve())
    if not inside or not path.is_file() or path.stat().st_size > 1 << 20:
        return TEXT
    return frozenset({Const(path.read_text(encoding="utf-8", errors="replace"))})


def _native(frame: Frame, node: ast.Call, _path: str, given: Arguments) -> Value:
    """``cpp.load(source, flags=...)``: the source must be readable here, and clean."""
    for atom in given.first() | given.named.get("source", NOTHING):
        if isinstance(atom, Const | Template):
            text = str(atom.value) if isinstance(atom, Const) else atom.text
            for line, rule, what in native.screen(text):
                frame.report(rule, node, f"C++ source, line {line}: {what}")
        else:
            frame.report("native-unresolved", node, "C++ source that cannot be read from the file")
    for flag in _flags(frame, given.named.get("flags", NOTHING)):
        if not native.plain_flag(flag):
            frame.report("native", node, f"compiler flag {flag or 'that cannot be read'}")
    return frozenset({Mark.NATIVE})


def _flags(frame: Frame, value: Value) -> list[str]:
    items = frame.elements(value) if value else NOTHING
    return [str(a.value) if isinstance(a, Const) else "" for a in items]


def _enter(_frame: Frame, _node: ast.Call, _path: str, given: Arguments) -> Value:
    return given.first() if given.args else PASS_THROUGH


def _typing(_frame: Frame, _node: ast.Call, path: str, given: Arguments) -> Value:
    return given.args[1] if path.endswith("cast") and len(given.args) > 1 else given.first() or MAYBE


def _collections(frame: Frame, node: ast.Call, path: str, given: Arguments) -> Value:
    if path == "collections.namedtuple":
        return frozenset({Ext("collections.record")})
    frame.program.escape(join(given.all), frame.mode)
    names: dict[Atom | str, Value] = enumerate_constants(given.args)
    names |= {Const(name): value for name, value in given.named.items()}
    return frame.program.box(node, "record", {REST: join([frame.elements(v) for v in given.all]), **names})


def enumerate_constants(values: list[Value]) -> dict[Atom | str, Value]:
    """The values by position, as a container holds them."""
    return {Const(i): value for i, value in enumerate(values)}


def _itertools(frame: Frame, node: ast.Call, _path: str, given: Arguments) -> Value:
    items = join([frame.elements(v) | frame.elements(frame.elements(v)) | v for v in given.all])
    if any(map(fold.is_text, items)):  # accumulate and starmap make new strings of them
        items = frozenset(a for a in items if not fold.is_text(a)) | TEXT
    _escape(frame, given)
    inner = frame.program.box(node, "tuple", {REST: items})
    return frame.program.box(node, "list", {REST: inner | items})


_SPECIAL: dict[str, Callable[[Frame, ast.Call, str, Arguments], Value]] = {
    "triton": _triton,
    "functools": _functools,
    "operator": _operator,
    "math": _math,
    "numpy": _math,
    "os": _paths,
    "pathlib": _paths,
    "sys": _sys_path,
    "pytest_passbench": _native,
    "dataclasses": _enter,
    "contextlib": _enter,
    "abc": _enter,
    "enum": _enter,
    "typing": _typing,
    "typing_extensions": _typing,
    "collections": _collections,
    "itertools": _itertools,
}
