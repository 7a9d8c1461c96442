"""The published layout's Python files of input metadata: read as syntax, never executed, and written as classes."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated, line
from pytest_passbench.core.files import kind_of, read_text
from pytest_passbench.core.task import ELEMENT_BYTES, TensorSpec
from pytest_passbench.suite.limits import MAX_FILE_BYTES, too_long
from pytest_passbench.suite.source import parse_module
from pytest_passbench.suite.taskfile import spec_problem

_NAMES = {"inf": math.inf, "nan": math.nan, "Ellipsis": ...}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod,
}  # fmt: skip
_EXAMPLES = "dynamic_dim_constraint_symbol2example_value"


def read_specs(path: Path, symbols: Mapping[str, int]) -> list[TensorSpec]:
    """Return the inputs that a ``weight_meta.py`` or ``input_meta.py`` describes, one class each, if there is a file.

    ``symbols`` gives values to symbolic sizes. Raises UserError with file and line.
    """
    return [_spec(path, statement, symbols) for statement in _statements(path) if isinstance(statement, ast.ClassDef)]


def read_symbols(path: Path) -> dict[str, int]:
    """Return the example size of each symbol of an ``input_tensor_constraints.py``; {} without a file.

    Raises UserError with file and line if they are not a dict of literals.
    """
    for statement in _statements(path):
        if isinstance(statement, ast.Assign) and _target(statement) == _EXAMPLES:
            if not isinstance(statement.value, ast.Dict):
                raise UserError(
                    f"{_EXAMPLES} is not a dict", where=f"{path}:{statement.lineno}", remedy="make it one"
                )
            pairs = zip(statement.value.keys, statement.value.values, strict=True)
            return {ast.unparse(k): _size(path, v) for k, v in pairs if k is not None}
    return {}


def _size(path: Path, node: ast.expr) -> int:
    size = _value(path, node, {})
    if not isinstance(size, int) or size < 0:
        where = f"{path}:{node.lineno}"
        raise UserError(f"{abbreviated(size)} is not a size", where=where, remedy="give an integer of 0 or more")
    return size


def print_specs(specs: tuple[TensorSpec, ...], device: str) -> str:
    """Return the text of a ``weight_meta.py`` for these inputs."""
    return "\n\n".join("\n".join(_print(spec, device)) for spec in specs) + "\n"


def _print(spec: TensorSpec, device: str) -> Iterator[str]:
    label = re.sub(r"\W", "_", spec.original_name or spec.name)
    values = {"mean": spec.mean, "std": spec.std, "data": spec.data, "min_val": spec.min, "max_val": spec.max}
    yield f"class Program_weight_tensor_meta_{label}:"
    yield f"\tname = {spec.name!r}"
    if spec.original_name is not None:
        yield f"\toriginal_name = {spec.original_name!r}"
    yield f"\tshape = {list(spec.shape)}"
    yield f'\tdtype = "torch.{spec.dtype}"'
    yield f"\tdevice = {device!r}"
    for key, value in values.items():
        if value is not None:
            text = f"[{', '.join(map(_number, value))}]" if isinstance(value, tuple) else _number(value)
            yield f"\t{key} = {text}"


def _number(value: Any) -> str:
    return repr(value) if isinstance(value, int) or math.isfinite(value) else f"float({str(value)!r})"


def _statements(path: Path) -> list[ast.stmt]:
    if kind_of(path) is None:
        return []
    return parse_module(read_text(path, MAX_FILE_BYTES), str(path)).body


def _target(statement: ast.Assign) -> str | None:
    first = statement.targets[0]
    return first.id if isinstance(first, ast.Name) and len(statement.targets) == 1 else None


def _spec(path: Path, statement: ast.ClassDef, symbols: Mapping[str, int]) -> TensorSpec:
    values = {
        _target(s): _value(path, s.value, symbols) for s in statement.body if isinstance(s, ast.Assign) and _target(s)
    }
    try:
        spec = _from_values(values)
        problem = spec_problem(spec)
    except KeyError as error:
        problem = f"no {error.args[0]}"
    except (TypeError, ValueError, OverflowError) as error:
        problem = str(error)
    if problem:
        where = f"{path}:{statement.lineno}"
        raise UserError(f"class {statement.name}: {problem}", where=where, remedy="correct the class")
    return spec


def _from_values(values: Mapping[str | None, Any]) -> TensorSpec:
    dtype = str(values["dtype"]).removeprefix("torch.")
    if dtype not in ELEMENT_BYTES:
        raise ValueError(f"unknown dtype {abbreviated(values['dtype'])}")
    shape = values["shape"]
    if not isinstance(shape, list) or any(not isinstance(size, int) or size < 0 for size in shape):
        raise ValueError(f"shape {abbreviated(shape)}")
    data = values.get("data")
    numbers = {k: float(values[v]) for k, v in _NUMBER_NAMES.items() if values.get(v) is not None}
    numbers = {k: number for k, number in numbers.items() if not math.isnan(number)}  # recorded from NaN: unknown
    return TensorSpec(
        name=str(values["name"]),
        shape=tuple(shape),
        dtype=dtype,
        data=tuple(_flat(data)) if data is not None else None,
        original_name=str(values["original_name"]) if values.get("original_name") is not None else None,
        **numbers,
    )


_NUMBER_NAMES = {"mean": "mean", "std": "std", "min": "min_val", "max": "max_val"}


def _flat(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for item in data:
            yield from _flat(item)
    elif isinstance(data, bool | int | float):
        yield data
    else:
        raise ValueError(f"data holds {abbreviated(data)}")


def _value(path: Path, node: ast.expr, symbols: Mapping[str, int]) -> Any:
    """Return the value of a literal expression. ``float("0.5")``, ``inf`` and sizes with symbols are literals too."""
    try:
        return _evaluate(node, symbols)
    except (TypeError, ValueError, ArithmeticError) as error:
        where = f"{path}:{node.lineno}"
        raise UserError(
            f"not a literal: {line(ast.unparse(node))} ({error})", where=where, remedy="write it out"
        ) from None


def _evaluate(node: ast.expr, symbols: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluate(item, symbols) for item in node.elts]
    if isinstance(node, ast.Name) and (node.id in symbols or node.id in _NAMES):
        return symbols.get(node.id, _NAMES.get(node.id))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, symbols)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _evaluate(node.left, symbols), _evaluate(node.right, symbols)
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise ValueError("arithmetic on something that is not a number")
        value = _ARITHMETIC[type(node.op)](left, right)
        if too_long(value):
            raise ValueError("a very long integer")
        return value
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("float", "int") and len(node.args) == 1:
        return (float if ast.unparse(node.func) == "float" else int)(_evaluate(node.args[0], symbols))
    raise ValueError("unknown form")
