"""The source layer: what a candidate's files say, read and never run. See docs/integrity-rules.md.

Abstract interpretation: every file reachable from the passes is evaluated to sets of "what this may be"
(:mod:`.values`) until nothing changes, then once more with reporting on. What the policy does not list is
refused; a call whose callee cannot be told from the source is a finding too.
"""

from __future__ import annotations

import ast
from pathlib import Path

from pytest_passbench.candidate.audit import definitions, entry, files, kernels, statements
from pytest_passbench.candidate.audit.findings import Report
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.policy import Policy, PolicyName
from pytest_passbench.candidate.audit.program import Function, Module, Program
from pytest_passbench.errors import UserError
from pytest_passbench.report.record import Finding

__all__ = ["audit"]
_ROUNDS = 12


def audit(path: Path, policy: PolicyName = "kernels") -> list[Finding]:
    """Findings about a pass directory, or about a candidate: every pass directory below ``path``.

    Reads files and executes none of them. Raises :class:`UserError` where there is no such directory.
    """
    path = Path(path)
    if not path.is_dir():
        raise UserError("no such directory", where=path, remedy="name a pass directory or a candidate")
    report = Report()
    files.survey(path, report)
    for folder in files.pass_folders(path):
        list(files.shadows(folder, report, path.absolute()))
        _audit_folder(folder, path, policy, report)
    return report.findings()


def _audit_folder(folder: Path, root: Path, policy: PolicyName, report: Report) -> None:
    program = Program(Policy(policy), report, root)
    report.muted = True
    for stem in files.stems(folder):
        source = folder / f"{stem}.py"
        if source.is_file():
            files.load(program, source, folder, is_pass=True)
    _settle(program)
    program.settled = True
    _settle(program)
    report.muted = False
    _round(program)


def _settle(program: Program) -> None:
    """Rounds until one adds nothing."""
    for _ in range(_ROUNDS):
        program.changed = False
        _round(program)
        if not program.changed:
            return


def _round(program: Program) -> None:
    for module in program.modules:
        _guarded(program, module, module.tree, lambda module=module: _run_module(program, module))
    for module in program.modules:
        entry.connect(program, module)
    for function in program.functions:
        _guarded(program, function.module, function.node, lambda function=function: _run_function(program, function))


def _run_module(program: Program, module: Module) -> None:
    frame = Frame(program, module, module.scope, "module")
    module.scope.stars.clear()
    frame.weak = definitions.assigned_inside(program, module.tree)
    statements.run(frame, module.tree.body)


def _run_function(program: Program, function: Function) -> None:
    frame = Frame(program, function.module, function.scope, function.mode, function)
    if function.kernel and not program.report.muted:
        kernels.check(frame, function)
    if not function.kernel or function.callers:  # a kernel that is called as a function is host code as well
        definitions.body(frame, function)


def _guarded(program: Program, module: Module, node: ast.AST, work: object) -> None:
    """Code nested too deep to be read is refused, not skipped."""
    try:
        work()  # type: ignore[operator]
    except RecursionError:
        program.report.add("unreadable", module.name, getattr(node, "lineno", 1), "code nested too deep")
