"""Launch plans as generated code: a line for each allocation and each launch, like a compiler's wrapper.

The text has only generated identifiers and exact numbers. Its namespace holds all other objects. If the engine can
execute all steps of a plan, one line calls it. Then only checks, returned buffers and results are left to Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import linecache
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch

from pytest_passbench.kernels.cpp import CTYPES
from pytest_passbench.plans.launch import (
    ALIGNMENT_BYTES,
    ITEM_BYTES,
    Allocate,
    Copy,
    Fill,
    Form,
    Launch,
    LaunchPlan,
    Operand,
    Operator,
    Step,
    TritonLaunch,
    TritonType,
    Tuned,
    operands_in,
)
from pytest_passbench.plans.values import tensors_in
from pytest_passbench.runner.cuda.machine_code import PlanBinaries
from pytest_passbench.runner.engine import Engine
from pytest_passbench.runner.native_code import DTYPE_CODES, CppFunction, Executable, NativePlan, NotNative
from pytest_passbench.runner.plan_runtime import (
    Contents,
    WrongArgument,
    allocator,
    constant_table,
    fill_with_ones,
    filling,
    reinterpret,
    triton_type,
    zero,
)
from pytest_passbench.suite.allowlist import resolve

#: The functions that fill the results of a plan without kernels with a constant.
_CONSTANTS: dict[str, Callable[[torch.Tensor], None]] = {"zeros": zero, "ones": fill_with_ones}
_OTHER_FORM = "has another dtype or alignment than when the plan was recorded"
_APART = "a plan is recorded on arguments that share none"
_count = itertools.count()


@dataclass
class Replayed:
    """A plan that can be called with its tensors. ``namespace`` has the objects that the generated code refers to.

    In a template it rests: allocations are zero and C++ kernels do nothing. So a candidate's machine code runs only
    in measured processes. :meth:`wake` puts the kernels in place.

    ``kernels`` and ``tables`` are those of ``plan``, ready to be used. ``sequence`` is True if a call returns a
    tuple. ``written`` has the numbers of the arguments that a call writes to. ``native`` is the plan for the engine.
    """

    call: Callable[..., Any]
    namespace: dict[str, Any] = field(repr=False)
    plan: LaunchPlan = field(repr=False)
    kernels: tuple[Any, ...] = field(repr=False)
    tables: tuple[torch.Tensor, ...] = field(repr=False)
    sequence: bool
    written: frozenset[int]
    native: NativePlan | None = field(default=None, repr=False)
    _awake: dict[str, Any] = field(default_factory=dict, repr=False)

    def rest(self) -> None:
        """Replace the C++ kernels by a function that does nothing, and the allocator by one of zeros."""
        kernels = {name: value for name, value in self.namespace.items() if isinstance(value, CppFunction)}
        self._awake = {**kernels, "empty": self.namespace["empty"]}
        self.namespace.update(dict.fromkeys(kernels, lambda *_arguments: None))
        self.namespace["empty"] = filling(self.namespace["empty"], zero)
        if self.native is not None:
            self.native.rest()

    def wake(self) -> None:
        """Put the real kernels and the allocator back."""
        self.namespace.update(self._awake)
        if self.native is not None:
            self.native.wake()

    def idle(self, contents: str) -> None:
        """Do only what any honest program has to do: launch nothing, and allocate without a fill.

        ``contents`` is what users of the results read: a constant tensor of "zeros" or "ones" for each layout, or
        "fresh" memory with whatever it holds.
        """
        plain = self._awake["empty"]
        filled = None if contents == "fresh" else cache(filling(plain, _CONSTANTS[contents]))
        self.namespace["empty"] = filled or plain
        if self.native is not None:
            self.native.idle()

    def become(self, other: Replayed) -> None:
        """Do what ``other``, a replay of the same plan, does. Graphs that already hold this callable do so too."""
        self.call.__code__ = other.call.__code__
        self.namespace.update(other.namespace)


def cpp_function(library: ctypes.CDLL, name: str, parameters: Sequence[str]) -> Any:
    """Return a kernel of a compiled library, with argument types by the kinds of its parameters."""
    function = getattr(library, name)
    function.restype, function.argtypes = None, [CTYPES[kind] for kind in parameters]
    return function


def replay(
    plan: LaunchPlan,
    kernels: Sequence[Any],
    device: str,
    sequence: bool,
    choices: Sequence[int],
    written: Collection[int] = (),
    code: PlanBinaries | None = None,
    engine: Engine | None = None,
) -> Replayed:
    """Return a callable that executes a plan.

    ``kernels`` are the plan's kernels, ready to be launched. ``choices`` has the index of a configuration for each
    tuned launch. ``written`` has the numbers of the argument tensors that the plan writes to. Each call checks that
    no other one shares memory with these. With ``code``, Triton kernels are launched as machine code instead of by
    Triton. ``engine`` executes the plan's steps if it can execute all of them. A call raises WrongArgument for
    tensors that do not fit the plan.
    """
    printer = _PlanPrinter(plan, device, sequence, list(choices), written, code)
    native = _native(plan, kernels, printer.tables, engine)
    source = printer.function(native)
    namespace = printer.namespace
    if native is None:
        namespace |= {f"k{number}": kernel for number, kernel in enumerate(kernels)}
    name = f"<launch plan {next(_count)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)
    call, tables = namespace["launch_plan"], tuple(printer.tables)
    return Replayed(call, namespace, plan, tuple(kernels), tables, sequence, frozenset(written), native)


def _native(
    plan: LaunchPlan, kernels: Sequence[Any], tables: Sequence[torch.Tensor], engine: Engine | None
) -> NativePlan | None:
    """Return the plan for the engine. Return None if there is no engine, or if it cannot execute a step."""
    if engine is None:
        return None
    with contextlib.suppress(NotNative):
        return NativePlan(plan, kernels, tables, engine)
    return None


def poison(replayed: Sequence[Replayed], seed: int, block: Executable | None = None) -> None:
    """Fill each allocation of these plans, and of a native block, with contents drawn from ``seed`` from now on."""
    contents = Contents(seed)
    for item in replayed:
        item.namespace["empty"] = filling(item.namespace["empty"], contents.fill)
        if item.native is not None:
            item.native.fill_memory(contents.pattern(_dtype_of_memory(item.plan)))
    if block is not None and replayed:
        block.fill_memory(contents.pattern(_dtype_of_memory(replayed[0].plan)))


def _dtype_of_memory(plan: LaunchPlan) -> torch.dtype:
    """Return the dtype of a plan's first allocation. The engine fills all memory with contents for this dtype."""
    names = (step.form.dtype for step in plan.steps if isinstance(step, Allocate))
    dtype: torch.dtype = getattr(torch, next(names, "float32"))
    return dtype


class _PlanPrinter:
    """The printer of a plan: it makes the text and the namespace.

    Variables are named by a source's first letter: ``a0`` is the first argument, ``b0`` the first buffer.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        device: str,
        sequence: bool,
        choices: list[int],
        written: Collection[int],
        code: PlanBinaries | None,
    ) -> None:
        self._plan, self._sequence, self._choices, self._written = plan, sequence, choices, written
        self._code = code
        self._launches = {id(launch): number for number, launch in enumerate(plan.triton_launches)}
        self._lines: list[str] = []
        self._buffers: list[Form] = []
        self._addresses: set[str] = set()
        self._aligned: set[str] = set()
        self._tuned = 0
        self.tables = [constant_table(table.content, device) for table in plan.tables]
        self.namespace: dict[str, Any] = {
            "__builtins__": {"__import__": __import__},  # torch imports what it needs at a first call
            "__name__": "passbench",
            "empty": allocator(device),
            "view": reinterpret,
            "check": torch._C._dynamo.guards.assert_size_stride,
            "leaves": tensors_in,
            "WrongArgument": WrongArgument,
            "inf": math.inf,
            "nan": math.nan,
            "device": torch.device(device),
            **{f"dtype_{name}": getattr(torch, name) for name in ITEM_BYTES},
            **{f"t{number}": table for number, table in enumerate(self.tables)},
        }

    def function(self, native: NativePlan | None) -> str:
        """Return the text of the plan. With ``native``, the engine executes its steps."""
        for index, tensor in enumerate(self._plan.tensors):
            shape, strides = _numbers(tensor.form.shape), _numbers(tensor.form.strides)
            self._add(f"check(a{index}, {shape}, {strides})")
            self._refuse_if(f"a{index}.dtype is not dtype_{tensor.form.dtype}", f"a{index} {_OTHER_FORM}")
        self._apart()
        if native is not None:
            self._native_steps(native)
        else:
            for step in self._plan.steps:
                self._step(step)
        results = [self._tensor(operand) for operand in self._plan.returns]
        self._add(f"return ({', '.join(results)},)" if self._sequence else f"return {results[0]}")
        arguments = ", ".join(f"a{index}" for index in range(len(self._plan.tensors)))
        return f"def launch_plan({arguments}):\n" + "".join(f"    {line}\n" for line in self._lines)

    def _apart(self) -> None:
        """Print checks that no argument that the plan writes to overlaps another one, from first to last element."""
        sizes = [tensor.form.nbytes for tensor in self._plan.tensors]
        for index, other in itertools.combinations(range(len(sizes)), 2):
            if sizes[index] and sizes[other] and (index in self._written or other in self._written):
                first, second = self._address(f"a{index}"), self._address(f"a{other}")
                target, neighbour = (index, other) if index in self._written else (other, index)
                reason = f"a{target}, which the plan writes to, shares memory with argument a{neighbour}; {_APART}"
                self._refuse_if(f"-{sizes[index]} < {first} - {second} < {sizes[other]}", reason)

    def _add(self, line: str) -> None:
        self._lines.append(line)

    def _refuse_if(self, condition: str, reason: str) -> None:
        """Print a check of an argument. ``reason`` begins with the argument's name."""
        self._add(f"if {condition}: raise WrongArgument({f'argument {reason}'!r})")

    def _native_steps(self, native: NativePlan) -> None:
        """Print the returned buffers' allocations, and a call of the engine for all else."""
        self.namespace |= {"run": native.call, "native": native}  # ``call`` needs ``native`` to live as long
        for index, step in enumerate(step for step in self._plan.steps if isinstance(step, Allocate)):
            if ("buffer", index) in native.inputs:
                self._allocate(replace(step, fill=None))
            else:
                self._buffers.append(step.form)  # scratch memory, which the engine allocates
        arguments = [step.arguments for step in self._plan.steps if isinstance(step, Launch)]
        launched = {operand.index for operand in operands_in(arguments) if operand.source == "argument"}
        for index in sorted(launched):
            self._pointer(Operand("argument", index, 0, self._plan.tensors[index].form))
        addresses = [self._address(f"{source[0]}{index}") for source, index in native.inputs]
        self._add(f"run({', '.join(addresses)})")

    def _step(self, step: Step) -> None:
        if isinstance(step, Allocate):
            self._allocate(step)
        elif isinstance(step, Fill):
            self._add(f"{self._tensor(step.target)}.fill_({self._value(step.value)})")
        elif isinstance(step, Copy):
            self._add(f"{self._tensor(step.target)}.copy_({self._tensor(step.origin)})")
        elif isinstance(step, Launch):
            arguments = [self._pointer(value) if isinstance(value, Operand) else self._cpp(value)
                         for value in step.arguments]  # fmt: skip
            self._add(f"k{step.kernel}({', '.join(arguments)})")
        elif isinstance(step, TritonLaunch):
            self._triton(step)
        elif isinstance(step, Tuned):
            choice = self._choices[self._tuned] if self._tuned < len(self._choices) else 0
            self._tuned += 1
            for part in step.choices[choice]:
                self._step(part)
        else:
            self._operator(step)

    def _triton(self, step: TritonLaunch) -> None:
        if self._code is None:
            named = [f"{name}={self._value(value)}" for name, value in (*step.arguments, *step.options)]
            self._add(f"k{step.kernel}[{_numbers(step.grid)}]({', '.join(named)})")
            return
        number = self._launches[id(step)]
        launch = self._code.prepare(number, step)
        self.namespace[f"l{number}"] = launch
        pointers = [self._pointer(operand) for operand in launch.operands]
        self._add(f"l{number}({', '.join(pointers)})")

    def _allocate(self, step: Allocate) -> None:
        name, form = f"b{len(self._buffers)}", step.form
        self._add(f"{name} = empty({_numbers(form.shape)}, {_numbers(form.strides)}, dtype_{form.dtype})")
        if step.fill is not None:
            self._add(f"{name}.fill_({self._value(step.fill)})")
        self._buffers.append(form)

    def _operator(self, step: Operator) -> None:
        number = len(self.namespace)
        self.namespace[f"o{number}"] = resolve(f"torch.ops.{step.name}")
        arguments = [self._value(value) for value in step.arguments]
        arguments += [f"{name}={self._value(value)}" for name, value in step.keywords]
        call = f"o{number}({', '.join(arguments)})"
        news = []
        for result in step.results:
            if result.source == "buffer" and result.index == len(self._buffers):
                self._buffers.append(result.form)
                news.append(f"b{result.index}")
            else:
                news.append("_")
        self._add(f"{''.join(f'{name}, ' for name in news)} = leaves({call})" if news else call)

    # -- operands ---------------------------------------------------------------------------------------------------

    def _pointer(self, operand: Operand) -> str:
        base = f"{operand.source[0]}{operand.index}"
        address = self._address(base)
        if operand.source == "argument" and base not in self._aligned:
            self._aligned.add(base)
            expected = self._plan.tensors[operand.index].misaligned
            self._refuse_if(f"{address} & {ALIGNMENT_BYTES - 1} != {expected}", f"{base} {_OTHER_FORM}")
        return f"{address} + {operand.offset}" if operand.offset else address

    def _address(self, base: str) -> str:
        """Return the variable that holds the address of an argument, a buffer or a table."""
        if base not in self._addresses:
            self._addresses.add(base)
            self._add(f"p_{base} = {base}.data_ptr()")
        return f"p_{base}"

    def _tensor(self, operand: Operand) -> str:
        base, form = f"{operand.source[0]}{operand.index}", operand.form
        if operand.offset == 0 and operand.source != "table" and form == self._whole(operand):
            return base
        shape, strides = _numbers(form.shape), _numbers(form.strides)
        return f"view({base}, dtype_{form.dtype}, {shape}, {strides}, {operand.offset})"

    def _whole(self, operand: Operand) -> Form:
        if operand.source == "argument":
            return self._plan.tensors[operand.index].form
        return self._buffers[operand.index]

    def _cpp(self, value: Any) -> str:
        if isinstance(value, torch.dtype):
            if value not in DTYPE_CODES:
                raise WrongArgument(f"passbench.h has no dtype {value}")
            return str(DTYPE_CODES[value])
        return self._value(value)

    def _value(self, value: Any) -> str:
        if isinstance(value, Operand):
            return self._tensor(value)
        if isinstance(value, (tuple, list)):
            items = "".join(f"{self._value(item)}, " for item in value)
            return f"({items})" if isinstance(value, tuple) else f"[{items}]"
        if isinstance(value, float) and not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        if value is None or isinstance(value, (bool, int, float)):
            return repr(value)
        name = f"c{len(self.namespace)}"  # a text, a dtype, a device: an object in the namespace
        if isinstance(value, torch.device):
            value = self.namespace["device"]
        self.namespace[name] = triton_type(value) if isinstance(value, TritonType) else value
        return name


def _numbers(values: Sequence[int]) -> str:
    return "(" + "".join(f"{value}, " for value in values) + ")"
