"""The wrapper of a run of calls: its variables, its loops over elements, and its launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold import elementwise
from pytest_passbench.scaffold.emitter import (
    Dtypes,
    EmittedKernel,
    PointerArg,
    Types,
    refuse,
    wrapped_call,
)
from pytest_passbench.scaffold.forms import GraphForm
from pytest_passbench.scaffold.text import Python

VIEWS = frozenset({
    "transpose", "view", "reshape", "permute", "unsqueeze", "squeeze", "flatten", "unflatten", "chunk", "split",
    "unbind", "expand", "expand_as", "movedim", "contiguous", "narrow", "select", "view_as", "reshape_as", "t",
})  # fmt: skip
ALIASES = frozenset({"detach", "lift_fresh", "alias", "positive"})


@dataclass(frozen=True)
class OperandView:
    """An operand that a loop reads through a view of a value."""

    node: Node
    text: str


@dataclass
class Stage:
    """Calls that one loop over the elements of equal tensors can do."""

    shapes: tuple[tuple[int, ...], ...]
    nodes: list[Node] = field(default_factory=list)
    #: What the loop reads: the wrapper's expression, with the kernel's name for it, dtypes, and if it has the shape.
    loads: dict[str, tuple[str, Dtypes, bool]] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    locals: dict[Node, tuple[str, str, str]] = field(default_factory=dict)


class Wrapper:
    """The text of a wrapper and its kernels so far. ``names`` has a name for each argument and result of the run."""

    def __init__(
        self, form: GraphForm, nodes: Sequence[Node], returned: Sequence[Node], names: dict[Node, str]
    ) -> None:
        self.form, self.nodes, self.returned, self.names = form, nodes, returned, names
        self.types = Types(form)
        self.lines: list[str] = []
        self.kernels: list[EmittedKernel] = []
        self.helpers: list[str] = []
        self.launches = 0
        self._inside = set(nodes)
        self._variables = {node: name for node, name in names.items() if node not in self._inside}
        self._dense: set[str] = set()
        #: Values that are one number: the number, or the hole that has it.
        self._numbers: dict[Node, float | Node] = {}
        self._stage: Stage | None = None
        self._used: set[str] = set()

    def _variable(self, node: Node) -> str:
        if self._stage is not None and node in self._stage.nodes:
            self._flush()
        if node in self._numbers:
            dtype = self.types.python(self.form.dtypes(node), self._variables)
            return f"torch.full((), {Python(self._variables).value(self._numbers[node])}, dtype={dtype})"
        return self._variables[node]

    def _set(self, node: Node, text: str, dense: bool = False) -> str:
        name = self.names[node]
        self.lines.append(f"{name} = {text}")
        self._variables[node] = name
        if dense:
            self._dense.add(name)
        return name

    def _dense_text(self, text: str) -> str:
        return text if text in self._dense else f"{text}.contiguous()"

    def _dtype(self, dtypes: Dtypes) -> str:
        return self.types.python(dtypes, self._variables)

    def _view(self, node: Node) -> None:
        for value in node.all_input_nodes:
            self._variable(value)
        names = {value: self._variable(value) for value in node.all_input_nodes}
        self._set(node, Python(names).statement(node))

    def _helper(self, name: str) -> None:
        if name not in self.helpers:
            self.helpers.append(name)

    def _elementwise(self, node: Node, call: CanonicalCall) -> None:
        shapes, dtypes = self.form.shapes(node), self.form.dtypes(node)
        refuse(dtypes[0] is None, f"{call.op} of numbers")
        if self._stage is not None and self._stage.shapes != shapes:
            self._flush()
        for value in call.args.values():
            if isinstance(value, OperandView):
                self._variable(value.node)  # has to be there first
        stage = self._stage or Stage(shapes)
        c_type, kind = self.types.name(dtypes), self.types.kind(dtypes)

        def rounded(text: str) -> str:
            return self._rounded(text, c_type) if self.types.rounds(dtypes) else text

        def at(value: Any) -> str:
            text = self._load(stage, value, kind)
            rounds = call.op in elementwise.ROUNDING_NUMBERS and self._is_number(value)
            return self._rounded_number(text, self._tensor_type(call)) if rounds else text

        if call.op == "div" and self._is_number(
            call.args["input"]
        ):  # eager multiplies the reciprocal, which it stores
            inverse = self._expression(CanonicalCall("reciprocal", {"input": call.args["other"]}), kind, rounded, at)
            text = f"{rounded(inverse)} * {at(call.args['input'])}"
        else:
            text = self._expression(call, kind, rounded, at)
        refuse(not stage.loads and not stage.nodes, "a loop that reads nothing")
        self._stage = stage
        stage.nodes.append(node)
        stage.locals[node] = (f"{self.names[node]}_i", _local_type(kind), rounded(text))

    def _expression(
        self, call: CanonicalCall, kind: str, rounded: Callable[[str], str], at: elementwise.Operand
    ) -> str:
        return elementwise.expression(call, kind, rounded, at)

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, Node):
            return value in self.form.literals or value in self._numbers
        return isinstance(value, (int, float))

    def _tensor_type(self, call: CanonicalCall) -> str:
        """Return the C++ type of a call's tensors if numbers beside them are rounded to it, or nothing."""
        for value in call.args.values():
            if isinstance(value, Node) and not self._is_number(value):
                dtypes = self.form.dtypes(value)
                return self.types.name(dtypes) if self.types.rounds(dtypes) else ""
        return ""

    def _rounded_number(self, text: str, c_type: str) -> str:
        return self._rounded(text, c_type) if c_type else text

    def _rounded(self, text: str, c_type: str) -> str:
        return f"pb::round<{c_type}>({text})"

    def _number(self, value: Any, kind: str) -> str:
        return elementwise.number(value, kind)

    def _cast(self, name: str, kind: str) -> str:
        return f"{_local_type(kind)}({name})"

    def _load(self, stage: Stage, value: Any, kind: str) -> str:
        """Return the C++ text of an operand. Note what the loop has to read for it."""
        if isinstance(value, OperandView):
            node, view = value.node, value.text
        elif isinstance(value, Node):
            node, view = value, ""
        else:
            return self._number(value, kind)
        if not view and node in self._numbers:
            number = self._numbers[node]
            if not isinstance(number, Node):
                return self._number(number, kind)
            node = number
        if node in self.form.literals:
            refuse(not all(isinstance(v, (int, float)) for v in self.form.literals[node]), "a type that differs")
            name = self._variables[node]
            stage.numbers[name] = "double"
            return self._cast(name, kind)
        if not view and node in stage.locals:
            return stage.locals[node][0]
        text = self._variable(node) + view
        if text not in stage.loads:
            wish = self._variables[node].partition(".")[0].partition("[")[0]
            names = {name for name, _dtypes, _same in stage.loads.values()}
            name = (
                wish if wish not in names else next(f"{wish}{i}" for i in range(2, 99) if f"{wish}{i}" not in names)
            )
            self.types.name(self.form.dtypes(node))
            same = self.form.shapes(node) == stage.shapes if not view else False
            stage.loads[text] = (name, self.form.dtypes(node), same)
        return f"{stage.loads[text][0]}_i"

    def _flush(self) -> None:
        """Write the loop of the pending stage, if there is one."""
        stage, self._stage = self._stage, None
        if stage is None:
            return
        inside = set(stage.nodes)
        stored = [n for n in stage.nodes if n in self.returned or any(user not in inside for user in n.users)]
        stores: dict[str, Node] = {}
        for node in stored:
            stores.setdefault(stage.locals[node][0], node)
        pointers = [PointerArg(name, dtypes) for name, dtypes, _same in stage.loads.values()]
        names = {pointer.name for pointer in pointers}
        targets = {}
        for node in stores.values():
            wish = "out" if len(stores) == 1 else self.names[node]
            targets[node] = wish if wish not in names else f"{wish}_out"
            pointers.append(PointerArg(targets[node], self.form.dtypes(node), written=True))
        kernel = self._loop(stage, tuple(pointers), {name: targets[node] for name, node in stores.items()})
        self._allocate_and_launch(stage, stores, kernel)
        for node in stage.nodes:
            name = stage.locals[node][0]
            if name in stores:
                self._variables[node] = self.names[stores[name]]

    def _loop(self, stage: Stage, pointers: tuple[PointerArg, ...], targets: dict[str, str]) -> EmittedKernel:
        """Return the kernel of a stage. ``targets`` maps a local value to the pointer that it is stored at."""
        body = ["  for (int64_t i = 0; i < n; i++) {"]
        body += [f"    auto {name}_i = pb::get({name} + i);" for name, _dtypes, _same in stage.loads.values()]
        for name, (kind, text) in {name: (kind, text) for name, kind, text in stage.locals.values()}.items():
            body.append(f"    {kind} {name} = {text};")
        body += [f"    pb::put({target} + i, {name});" for name, target in targets.items()]
        ops = [self.form.call(node).op for node in stage.nodes]
        comment = f"{', '.join(ops)}: one element after the other.\n"
        comment += (
            "Faster: pb::map takes a register of elements at a time, with pb::exp and its like (docs/kernels.md)."
        )
        if any(not same for _name, _dtypes, same in stage.loads.values()):
            comment += "\nFaster: read a broadcast operand where it lies; the wrapper copies it to the full shape."
        numbers = (*((kind, name) for name, kind in stage.numbers.items()), ("int64_t", "n"))
        return EmittedKernel(self._loop_name(ops), pointers, numbers, comment, "\n".join([*body, "  }"]))

    def _allocate_and_launch(self, stage: Stage, stores: dict[str, Node], kernel: EmittedKernel) -> None:
        first = next(iter(stores.values()))
        same = [text for text, (_name, _dtypes, whole) in stage.loads.items() if whole]
        if same:
            shape = f"{same[0]}.shape"
        else:
            shape = f"torch.broadcast_shapes({', '.join(f'{text}.shape' for text in stage.loads)})"
        for number, node in enumerate(stores.values()):
            where = shape if number == 0 else f"{self.names[first]}.shape"
            self._set(node, f"torch.empty({where}, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        whole = f"{self.names[first]}.shape"
        arguments = [
            self._dense_text(text) if same else f"{text}.expand({whole}).contiguous()"
            for text, (_name, _dtypes, same) in stage.loads.items()
        ]
        arguments += [self.names[node] for node in stores.values()]
        self._launch(kernel, [*arguments, *stage.numbers, f"{self.names[first]}.numel()"])

    def _loop_name(self, ops: Sequence[str]) -> str:
        """Return a name for a loop over elements. A single ``pow`` or ``div`` would be the C library's."""
        words = list(dict.fromkeys(ops))
        wish = "_".join(words) if len("_".join(words)) <= 40 else "_".join(words[:3]) + "_more"
        return self._kernel_name(wish if len(words) > 1 else f"{wish}_elements")

    def _kernel_name(self, wish: str) -> str:
        name, number = wish, 2
        while name in self._used:
            name, number = f"{wish}_{number}", number + 1
        return name

    def _launch(self, kernel: EmittedKernel, arguments: Sequence[str]) -> None:
        """Write the launch of a kernel. One that is there already is not written again."""
        like = (kernel.pointers, kernel.numbers, kernel.body)
        earlier = next((k for k in self.kernels if (k.pointers, k.numbers, k.body) == like), None)
        if earlier is None:
            self._used.add(kernel.name)
            self.kernels.append(kernel)
        letters: dict[str, Dtypes] = {}
        for pointer in kernel.pointers:
            name = self.types.name(pointer.dtypes)
            if len(name) == 1:
                letters.setdefault(name, pointer.dtypes)
        dtypes = [self._dtype(group) for group in letters.values()]
        lines = wrapped_call(f"lib.{(earlier or kernel).name}", [*arguments, *dtypes], 0).split("\n")
        self.lines += lines
        self.launches += 1

    def _row_kernel(
        self, wish: str, body: str, pointers: Sequence[tuple[str, Dtypes, bool]], numbers: Sequence[tuple[str, str]],
        arguments: Sequence[str], comment: str,
    ) -> None:  # fmt: skip
        parameters = tuple(PointerArg(name, dtypes, written) for name, dtypes, written in pointers)
        for pointer in parameters:
            self.types.name(pointer.dtypes)
        like = (parameters, tuple(numbers), body)
        earlier = next((k for k in self.kernels if (k.pointers, k.numbers, k.body) == like), None)
        name = earlier.name if earlier else self._kernel_name(wish)
        self._launch(EmittedKernel(name, parameters, tuple(numbers), comment, body), arguments)

    def _float(self, *values: Node) -> None:
        for value in values:
            refuse(self.types.kind(self.form.dtypes(value)) != "float", "this type")

    def _parameters(
        self, call: CanonicalCall, like: Node, *names: str
    ) -> tuple[list[tuple[str, Dtypes, bool]], list[str]]:
        pointers, arguments = [], []
        for name in names:
            value = call.get(name)
            is_node = isinstance(value, Node)
            pointers.append((name, self.form.dtypes(value if is_node else like), False))
            arguments.append(self._dense_text(self._variable(value)) if is_node else "None")
        return pointers, arguments

    def _scalar(self, value: Any, default: float) -> str:
        if isinstance(value, Node):
            return self._variables[value]
        return repr(float(default if value is None else value))

    def _whole(self, value: Any) -> str:
        return self._variables[value] if isinstance(value, Node) else repr(int(value))


def _local_type(kind: str) -> str:
    return {"int": "int64_t"}.get(kind, kind)
