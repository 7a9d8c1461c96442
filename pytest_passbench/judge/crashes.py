"""The launch in which a candidate's kernel ended a measured process, and its likely cause, in words.

A template traces the calls again. A shared page describes the launch and the memory that it touched. A kernel could
have written that page, so its numbers only select parts of the judge's own copy of the plan. No verdict uses it.
"""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.judge.arms.failures import ArmFailure, is_fault
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.builder.compile_errors import CompileFailed
from pytest_passbench.judge.builder.compile_errors import explained as in_words
from pytest_passbench.judge.builder.sanitized import sanitized
from pytest_passbench.kernels import signatures
from pytest_passbench.kernels.toolchain import CompileError
from pytest_passbench.plans.words import kernel_name, place, value
from pytest_passbench.protocol import (
    MAX_TRACED,
    TRACE_BYTES,
    TRACE_HEAD,
    TRACE_ROW,
    TRACE_SOURCES,
    TraceHead,
    TraceRow,
)

MAX_SANITIZED = 2  # plans of a program whose kernels are run with sanitizers
MAX_ARGUMENTS = 16  # of a launch that are listed
_KERNEL_CODE = 0x80  # SI_KERNEL: the signal states no address, since it cannot exist or is not aligned
_NULL_PAGE = 1 << 16  # an address below this is a null pointer plus an index
_ACCESS = {1: "reads", 2: "writes"}
_CAUSES: dict[int, str] = {
    signal.SIGFPE: "divides an integer by zero?",
    signal.SIGILL: "uses an instruction that this processor lacks, or ran into __builtin_trap?",
    signal.SIGABRT: "calls abort, throws an exception, or has spoilt the memory of malloc?",
}
_reports: dict[str, str] = {}  # of sanitizers, by plan, so that no plan is run with sanitizers twice


def explained(failure: ArmFailure, template: Template, calls: int) -> ArmFailure:
    """Return a crash with the launch that caused it, or with the passes if ``calls`` traced calls show no launch."""
    plans = _with_launches(template)
    if is_fault(failure) or template.arm.settings.on_device or not plans:
        return failure
    page = template.trace(calls)
    text = None if page is None else crash_site(page, template.planned)
    if text is None:
        names = " or ".join(dict.fromkeys(line(name) for name, _plan in plans))
        text = f"in a kernel of pass {names}; traced calls did not crash again, so it may depend on what ran before"
    return ArmFailure("crash", failure.phase, f"{failure.message} {text}", failure.findings, failure.culprits)


def sanitizers_report(template: Template, folder: Path) -> str:
    """Return the first report of sanitizers on a template's plans, with its place in ``folder``; "" for none."""
    for name, plan in _with_launches(template)[:MAX_SANITIZED]:
        key = f"{folder} {name} {plan['kernels']} {plan['steps']}"
        if key not in _reports:
            _reports[key] = _first_report(plan, template.arm.settings.walls, folder, name)
        if _reports[key]:
            return _reports[key]
    return ""


def _first_report(plan: Mapping[str, Any], walls: Walls, folder: Path, name: str) -> str:
    try:
        for run in sanitized(plan, walls):
            if run.errors:
                return in_words(CompileFailed("", run.source, run.errors[:1]), folder, name)
    except (CompileFailed, CompileError, TimeoutError):
        pass  # the message stays as it is: `passbench explain --sanitize` says what is missing
    return ""


def crash_site(page: bytes, planned: Sequence[tuple[str, Mapping[str, Any]]]) -> str | None:
    """Return the launch that a page describes, with the likely cause and a line for each argument, in words.

    Return None if no launch ended its process, or if the page names none.
    """
    if len(page) != TRACE_BYTES:
        return None
    words = struct.unpack(f"<{TRACE_BYTES // 8}q", page)
    head = TraceHead._make(words[:TRACE_HEAD])
    rows = [TraceRow._make(words[at : at + TRACE_ROW]) for at in range(TRACE_HEAD, len(words), TRACE_ROW)]
    plan_number, launch_number = head.plan - 1, head.launch - 1
    if not (head.running and 0 <= plan_number < len(planned)):
        return None
    name, plan = planned[plan_number]
    launches = _launches(plan)
    if not 0 <= launch_number < len(launches):
        return None
    number, (kernel, arguments) = launches[launch_number]
    count = sum(bool(step.keys() & {"launch", "triton", "tuned"}) for step in plan["steps"])
    where = f"in {line(kernel_name(plan['kernels'][kernel]))}, launch {number} of {count} of pass {line(name)}"
    first = ": ".join(filter(None, (where, _cause(head, rows))))
    return "\n".join([first, *(f"  {text}" for text in _arguments(plan, kernel, arguments))])


def _with_launches(template: Template) -> list[tuple[str, dict[str, Any]]]:
    """Return the plans of a template that launch C++ kernels, with the names of their passes."""
    return [(name, plan) for name, plan in template.planned if _launches(plan)]


def _launches(plan: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """Return the launches of C++ kernels with their numbers among all launches, from 1 on."""
    kinds = [
        kind for step in plan.get("steps", ()) for kind in step.items() if kind[0] in ("launch", "triton", "tuned")
    ]
    return [(number, content) for number, (kind, content) in enumerate(kinds, 1) if kind == "launch"]


def _arguments(plan: Mapping[str, Any], kernel: int, arguments: Sequence[Any]) -> Iterator[str]:
    """Yield the arguments of a launch by the names of their parameters, with dtype and shape."""
    source, _flags, _openmp, function = plan["kernels"][kernel]["cpp"]
    try:
        names = signatures.parse(source)[function].names
    except (CompileError, KeyError):
        names = ()
    for position, argument in enumerate(arguments[:MAX_ARGUMENTS]):
        name = names[position] if position < len(names) and names[position] else f"argument {position + 1}"
        yield line(f"{name} = {_argument(argument)}")
    if len(arguments) > MAX_ARGUMENTS:
        yield f"and {counted(len(arguments) - MAX_ARGUMENTS, 'more argument')}"


def _argument(argument: Any) -> str:
    if isinstance(argument, dict) and "operand" in argument:
        _source, _index, _offset, dtype, shape, _strides = argument["operand"]
        return f"{place(argument['operand'])}: {dtype} {list(shape)}"
    return value(argument)


def _cause(head: TraceHead, rows: Sequence[TraceRow]) -> str:
    """Return the likely cause, as a question."""
    if 0 < head.memory <= MAX_TRACED:
        return _beyond("writes", rows[head.memory - 1], head.distance)
    if head.signal not in (signal.SIGSEGV, signal.SIGBUS):
        return _CAUSES.get(head.signal, "")
    if head.code == _KERNEL_CODE:
        return "uses an address that cannot exist, or that is not aligned as a vector instruction needs it?"
    access = _ACCESS.get(head.access, "reads or writes")
    for row in rows:
        if row.guard_start <= head.address < row.start:
            return _beyond(access, row, head.address - row.start)
        if row.end <= head.address < row.guard_end:
            return _beyond(access, row, head.address - row.end + 1)
    if 0 <= head.address < _NULL_PAGE:
        return f"{access} through a null pointer?"
    return f"{access} far from all of its arguments: an index that is far outside, or a stack that ran over?"


def _beyond(access: str, row: TraceRow, distance: int) -> str:
    """Return in words an access ``distance`` bytes past the end of memory; before its start if that is negative."""
    which = f"{TRACE_SOURCES[row.source][0]}{row.number}" if 0 <= row.source < len(TRACE_SOURCES) else "an argument"
    side = "past the end" if distance > 0 else "before the start"
    return f"{access} {side} of {which}? (at least {counted(abs(distance), 'byte')} beyond it)"
