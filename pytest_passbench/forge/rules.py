"""The curation rules, one function each: they take a probe and yield complaints.

The last one is about computation that is thrown away: values of which the rest of the graph reads only a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.float64_errors import ReferenceOutput, references
from pytest_passbench.core.null_answers import inputs_left_out, mostly_nan
from pytest_passbench.forge.clean import is_inplace
from pytest_passbench.forge.input_records import is_degenerate
from pytest_passbench.forge.normal_form import COPIES, EXPANDS, ORDERS, RESHAPES
from pytest_passbench.forge.probe import NOTICING_T, Probe, same, unnoticed
from pytest_passbench.forge.variants import MAX_GUARD, flat_clamps, idle_activations
from pytest_passbench.rewrite.normalise import canonical
from pytest_passbench.runner.program import in_float64
from pytest_passbench.suite.batching import is_batching
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.opnames import is_metadata, op_name, operator_sequence

FAR_OFF = 64  # times eager's greatest error: twice that error is allowed, and rounding adds a little
Tensors = Sequence[torch.Tensor]
Graph = Callable[..., Tensors]
Rule = Callable[[Probe], Iterator[str]]
OTHER_SEED = 3
"""The seed of an input's other values."""
MIN_NULL_FROM = -2
"""The smallest t from which a null answer may pass."""
IDENTITIES = {
    "dropout", "contiguous", "detach", "clone", "alias", "to", "float", "half", "bfloat16", "type", "type_as",
    "view", "view_as", "reshape", "reshape_as", "flatten", "expand", "expand_as", "unflatten", "repeat", "getitem",
    "squeeze", "roll",
}  # fmt: skip
"""Operators that may change nothing: by definition in eval mode, or at this subgraph's shapes and dtypes."""
CUTS = {"getitem", "select", "narrow", "split", "chunk", "unbind", "tensor_split", "split_with_sizes"}
MOVES = CUTS | RESHAPES | ORDERS | EXPANDS | COPIES
"""Operators that move elements without reading their values."""
MIN_USED = 0.5
"""The smallest share of a computed value that the rest of the graph must read."""


def degenerate_inputs(probe: Probe) -> Iterator[str]:
    """Yield inputs that do not vary, since a pass could skip work on them."""
    for spec in probe.subgraph.inputs:
        if is_degenerate(spec) or (spec.data is None and spec.min is not None and spec.min == spec.max):
            yield f"input {spec.name} is constant, near-constant or not finite (mean {spec.mean}, std {spec.std})"


def null_answers(probe: Probe) -> Iterator[str]:
    """Yield a complaint if an answer that needs no computation passes below t = MIN_NULL_FROM."""
    if probe.null_from < MIN_NULL_FROM:
        yield f"a null answer passes from t = {probe.null_from} on (least allowed: {MIN_NULL_FROM})"


def constant_outputs(probe: Probe) -> Iterator[str]:
    """Yield outputs that do not depend on the inputs, since a pass could keep them from one call to the next."""
    for index, (first, second) in enumerate(zip(probe.outputs, probe.stale, strict=True)):
        if first.numel() > 1 and torch.equal(_bits(first), _bits(second)):
            yield f"output {index} does not depend on the inputs' values"


def deterministic(probe: Probe) -> Iterator[str]:
    """Yield outputs whose bits differ between two eager runs on the same inputs."""
    with torch.no_grad():
        repeated = probe.module(*(value.clone() for value in probe.inputs))
    for index, (first, second) in enumerate(zip(probe.outputs, repeated, strict=True)):
        if not torch.equal(_bits(first), _bits(second)):
            yield f"output {index} differs between two runs on the same inputs"


def finite(probe: Probe) -> Iterator[str]:
    """Yield outputs that have NaN or infinities."""
    for index, output in enumerate(probe.outputs):
        if output.is_floating_point() and not bool(torch.isfinite(output).all()):
            yield f"output {index} has NaN or Inf"


def nan_outputs(probe: Probe) -> Iterator[str]:
    """Yield outputs that are mostly NaN, since a pass could skip the work there."""
    for index, output in enumerate(probe.outputs):
        share = mostly_nan(output)
        if share is not None:
            yield f"output {index} is NaN in {100 * share:.0f} % of its elements: correct the bounds of the inputs"


def dead_operators(probe: Probe) -> Iterator[str]:
    """Yield operators whose value is never used."""
    for node in probe.module.graph.nodes:
        if node.op != "output" and not node.users and not is_inplace(node) and not is_batching(node):
            yield f"{node.name} ({op_name(node)}) is never used"


def removable(probe: Probe) -> Iterator[str]:
    """Yield operators that a pass could leave out unnoticed.

    It would hand on an input in place of the operator's result, and the outputs would still be correct at t =
    NOTICING_T.
    """
    for node in probe.pure.graph.nodes:
        if node.op in ("placeholder", "output") or is_metadata(node) or is_exempt(node):
            continue
        if any(unnoticed(probe, node, stand_in) for stand_in in stand_ins(node, probe.values)):
            yield f"without {node.name} ({op_name(node)}) nothing changes at t = {NOTICING_T}"


def idle_inputs(probe: Probe) -> Iterator[str]:
    """Yield inputs whose values do not matter: with other values all outputs are correct at t = NOTICING_T.

    The other values are those of another draw (literal data in reverse order), and a float input's mean.
    """
    nodes = [node for node in probe.pure.graph.nodes if node.op == "placeholder"]
    others = probe.draw(OTHER_SEED)
    for node, spec, value, drawn in zip(nodes, probe.subgraph.inputs, probe.inputs, others, strict=True):
        other = drawn if spec.data is None else value.flatten().flip(0).reshape(value.shape)
        is_same = spec.data is not None and torch.equal(other, value)  # it reads the same backwards
        if not is_same and unnoticed(probe, node, other):
            yield f"other values of input {spec.name} change nothing at t = {NOTICING_T}"
        elif value.is_floating_point() and value.numel() > 1:
            mean = float(value.double().mean())
            if unnoticed(probe, node, torch.full_like(value, mean)):
                yield f"input {spec.name} could be its mean at t = {NOTICING_T}"


def right_header(probe: Probe) -> Iterator[str]:
    """Yield a complaint if the header's operator sequence is not the graph's."""
    operators = operator_sequence(probe.module.graph.nodes)
    if operators != probe.task.header.ops:
        yield f"the graph's operators are {list(operators)}, the header says {list(probe.task.header.ops)}"


def left_out_inputs(probe: Probe) -> Iterator[str]:
    """Yield large inputs that a pass could leave out: zeros or the mean in place of one give a right answer."""
    sets = list(inputs_left_out(probe.inputs))
    if not sets:
        return
    wide = in_float64(build_graph(probe.task.graphs[probe.subgraph.graph], str(probe.task.path)), probe.inputs)
    judged = _references(wide, probe)
    for index, words, changed in sets:
        name = probe.subgraph.inputs[index].name
        answers = _run(probe.module, changed)
        if all(map(same, answers, probe.outputs)):
            yield f"input {name} could be {words} at t = {NOTICING_T}"
        elif _may_be_accurate(judged, answers) and all(map(ReferenceOutput.accepts, judged, _run(wide, changed))):
            yield f"input {name} could be {words}: by float64 the answer would be as accurate as eager's"


def _may_be_accurate(judged: Sequence[ReferenceOutput], answers: Tensors) -> bool:
    """Return False if eager's answers without the input are so far off that those in float64 must be too.

    Both differ by eager's rounding alone. A run in float64 takes many times as long as eager's.
    """
    errors = map(ReferenceOutput.errors, judged, answers)
    return bool(judged) and all(error.greatest_ratio < FAR_OFF for error in errors)


def _references(wide: Graph, probe: Probe) -> list[ReferenceOutput]:
    """Return eager's outputs beside those in float64, or nothing if the graph has no float64 form."""
    try:
        return references(_run(wide, probe.inputs), probe.outputs) or []
    except RuntimeError:  # an operator without a float64 kernel, or operands of two dtypes
        return []


def _run(module: Graph, inputs: Tensors) -> list[torch.Tensor]:
    with torch.no_grad():
        return list(module(*(value.clone() for value in inputs)))


def complaints(probe: Probe) -> list[str]:
    """Return the complaints of all rules about one subgraph; if it does not run, that is the only complaint."""
    batched = any(map(is_batching, probe.module.graph.nodes))
    try:
        return [f"{rule.__name__}: {text}" for rule in (WHOLE if batched else WHOLE + PARTS) for text in rule(probe)]
    except Exception as error:  # eager's own failure is the finding
        text = str(error).partition("\n")[0]
        if "can't allocate memory" in text:
            return ["runs: a value takes more memory than the machine has (choose smaller shapes)"]
        return [f"runs: {type(error).__name__}: {text}"]


def is_exempt(node: fx.Node) -> bool:
    """Return True for identities, and for additions of at most MAX_GUARD that only guard a division."""
    name = op_name(node)
    literals = [a for a in node.args if isinstance(a, int | float) and not isinstance(a, bool)]
    return name in IDENTITIES or (name == "add" and any(0 < abs(a) <= MAX_GUARD for a in literals))


def stand_ins(node: fx.Node, values: dict[fx.Node, Any]) -> Iterator[torch.Tensor]:
    """Yield the inputs of ``node`` that could stand for its result: those of the same shape and dtype."""
    result = values[node]
    if not isinstance(result, torch.Tensor):
        return
    for source in node.all_input_nodes:
        value = values[source]
        if isinstance(value, torch.Tensor) and value.shape == result.shape and value.dtype == result.dtype:
            yield value


def _bits(value: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(value) if value.is_floating_point() else value


def thrown_away(probe: Probe) -> Iterator[str]:
    """Yield operators whose result is mostly not read: leaving out such work is not what a compiler pass is for."""
    for node in probe.pure.graph.nodes:
        if node.op not in ("call_function", "call_method") or is_metadata(node) or canonical(node).op in MOVES:
            continue
        value = probe.values[node]
        if (
            not isinstance(value, torch.Tensor)
            or not value.numel()
            or not all(_takes_part(user, node) for user in node.users)
        ):
            continue
        places = torch.arange(value.numel()).reshape(value.shape)
        read = torch.zeros(value.numel(), dtype=torch.bool)
        for part in _read(probe, node, places):
            read[part.reshape(-1)] = True
        share = float(read.double().mean())
        if share < MIN_USED:
            yield f"only {share:.0%} of {node.name} ({canonical(node).op}) is used"


def _moves(user: fx.Node, node: fx.Node) -> bool:
    """Return True if ``user`` moves elements of ``node``, rather than use them as an index or compute with them."""
    call = canonical(user)
    return call.op in MOVES and call.args.get("input") is node


def _takes_part(user: fx.Node, node: fx.Node) -> bool:
    """Return True if ``user`` may read only some elements of ``node``."""
    return user.op in ("call_function", "call_method") and (_moves(user, node) or _stride(user) > 1)


def _stride(user: fx.Node) -> int:
    """Return the stride of a convolution; 1 for any other operator."""
    call = canonical(user)
    stride = call.get("stride")
    if not call.op.startswith("conv") or "transpose" in call.op or stride is None:
        return 1
    return min(stride) if isinstance(stride, tuple | list) else int(stride)


def _read(probe: Probe, node: fx.Node, places: Any) -> Iterator[torch.Tensor]:
    """Yield the places of a value that its users read; operators of MOVES are followed to what reads their result."""
    for user in node.users:
        if user.op == "output":
            yield places
        elif _moves(user, node):
            yield from _read(probe, user, _moved(probe, user, node, places))
        else:
            yield _convolved(probe, user, node, places)


def _moved(probe: Probe, user: fx.Node, node: fx.Node, places: Any) -> Any:
    interpreter = fx.Interpreter(probe.pure, garbage_collect_values=False)
    interpreter.env = {**probe.values, node: places}
    return interpreter.run_node(user)


def _convolved(probe: Probe, user: fx.Node, node: fx.Node, places: torch.Tensor) -> torch.Tensor:
    """Return the places that a convolution of 1 x 1 elements with a stride reads; all of them for other operators."""
    step, call = _stride(user), canonical(user)
    if step == 1 or call.args.get("input") is not node:
        return places
    weight = probe.values[call.args["weight"]]
    if any(size != 1 for size in weight.shape[2:]):
        return places
    return places[(..., *(slice(None, None, step) for _ in weight.shape[2:]))]


WHOLE: tuple[Rule, ...] = (
    right_header, degenerate_inputs, finite, nan_outputs, constant_outputs, deterministic, null_answers,
    left_out_inputs, dead_operators,
)  # fmt: skip
PARTS: tuple[Rule, ...] = (removable, idle_inputs, flat_clamps, idle_activations, thrown_away)
"""Rules that run parts of a graph. No part of a graph with a level of ``torch.vmap`` can run alone."""
