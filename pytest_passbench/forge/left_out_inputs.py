"""The curation rule about inputs that a pass need not read, under both criteria (docs/accuracy.md).

A large input is replaced by zeros, and by its mean. The answer must then be wrong by the ladder, and less accurate
than eager in float64. The judge asks the same of a candidate's subgraph, by ``core/null_answers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from pytest_passbench.core.null_answers import inputs_left_out
from pytest_passbench.core.reference import ReferenceOutput, references
from pytest_passbench.forge.probe import Probe
from pytest_passbench.forge.sensitivity import NOTICING_T, same
from pytest_passbench.runner.float64 import in_float64
from pytest_passbench.suite.build import build_graph

FAR_OFF = 64  # times eager's greatest error; 2 are allowed, and rounding adds a few

Tensors = Sequence[torch.Tensor]
Graph = Callable[..., Tensors]


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
