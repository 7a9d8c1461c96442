"""Where a pass is entered: what replacement_args hands to what replacement_func returns."""

from __future__ import annotations

import ast

from pytest_passbench.candidate.audit import calls
from pytest_passbench.candidate.audit.containers import item_of_box
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.numbers import only_numbers
from pytest_passbench.candidate.audit.program import REST, Module, Program
from pytest_passbench.candidate.audit.values import (
    NOTHING,
    SCALAR,
    TENSOR,
    Bound,
    Box,
    Const,
    Ext,
    FuncRef,
    Instance,
    Mark,
    Partial,
    Value,
    const,
    join,
)


def connect(program: Program, module: Module) -> None:
    """Bind a pass's entry points to each other as the pass manager will."""
    if not module.is_pass:
        return
    frame = Frame(program, module, module.scope, "code")
    node = ast.copy_location(ast.Call(ast.Name("replacement_func", ast.Load()), [], []), module.tree)
    node.lineno = _line(module)
    args = _arguments(frame, node, _numbers(program, module))
    for wrapper in _wrappers(frame, node):
        calls.apply(frame, node, frozenset({wrapper}), args)


def _line(module: Module) -> int:
    for item in module.tree.body:
        if isinstance(item, ast.FunctionDef) and item.name == "replacement_func":
            return item.lineno
    return 1


def _arguments(frame: Frame, node: ast.Call, numbers: set[str]) -> calls.Arguments:
    """What ``replacement_args`` gives for a pattern's arguments."""
    given = calls.Arguments([], {})
    for atom in frame.module.scope.names.get("replacement_args", NOTHING):
        if not isinstance(atom, FuncRef):
            frame.report("replacement", node, "replacement_args is not a function of the candidate")
            continue
        function = frame.program.functions[atom.key]
        spec = function.node.args
        names = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
        named = {name: SCALAR if name in numbers else TENSOR for name in names}
        result = frame.program.bind(function, [], named, TENSOR if spec.vararg or spec.kwarg else NOTHING, "code")
        _take(frame, result, given)
    return given


def _take(frame: Frame, result: Value, given: calls.Arguments) -> None:
    for atom in result:
        if isinstance(atom, Box):
            contents = frame.program.heap.get(atom.site, {})
            known = [item_of_box(frame, atom, const(i)) for i in range(len(contents)) if Const(i) in contents]
            for position, value in enumerate(known):
                if position < len(given.args):
                    given.args[position] = join((given.args[position], value))
                else:
                    given.args.append(value)
            given.rest = join((given.rest, contents.get(REST, NOTHING)))
        else:
            given.rest = join((given.rest, frozenset({atom})))


def _wrappers(frame: Frame, node: ast.Call) -> list[FuncRef | Bound | Instance | Partial]:
    made = frame.module.scope.names.get("replacement_func", NOTHING)
    found: list[FuncRef | Bound | Instance | Partial] = []
    for atom in made:
        if not isinstance(atom, FuncRef):
            frame.report("replacement", node, "replacement_func is not a function of the candidate")
            continue
        function = frame.program.functions[atom.key]
        for result in frame.program.bind(function, [], {}, NOTHING, "code"):
            if isinstance(result, FuncRef | Bound | Instance | Partial):
                found.append(result)
            elif frame.strict or not isinstance(result, Ext):
                _refuse(frame, node, result)
    return found


def _refuse(frame: Frame, node: ast.Call, result: object) -> None:
    if result in (Mark.NATIVE, Const(None)):
        return  # a library's function is its own kernel; None fails by itself
    what = result.path if isinstance(result, Ext) else getattr(result, "value", type(result).__name__)
    frame.report("replacement", node, f"replacement_func returns {what}")


def _numbers(program: Program, module: Module) -> set[str]:
    """Parameters of the pattern that stand only where operators take numbers."""
    for atom in module.scope.names.get("pattern", NOTHING):
        if isinstance(atom, FuncRef):
            return only_numbers(program.functions[atom.key].node)
    return set()
