"""The first operator whose half-precision rounding a wrong answer leaves out, in words.

Eager's sandbox, which runs no code of a candidate, searches for it once the case is measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing

import torch

from pytest_passbench.core.escape import line
from pytest_passbench.core.task import TensorSpec
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.cuda import start_template
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import ArmFailed, fork_all
from pytest_passbench.judge.arms.names import EAGER, ROUNDINGS
from pytest_passbench.judge.arms.template import ForkOrder
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.inputs.pages import Pages, plan_layout
from pytest_passbench.judge.verify.checker import WrongCall
from pytest_passbench.judge.verify.outputs import read_call
from pytest_passbench.protocol import Order
from pytest_passbench.suite.build import build_graph

EXPLAINED = 0.25  # of the differing elements may still differ with the roundings that the search proposes
MAX_OTHERS = 5  # further operators that are named
_REMEDIES = "in C++ v = pb::round<T>(v), in Triton v = v.to(x.dtype).to(tl.float32)"


def explained(order: Order, arm: Arm, bench: Bench, miss: WrongCall) -> str:
    """Return which operator's rounding an answer leaves out, and how to round; "" if no operator's explains it.

    ``order`` is eager's, and ``arm`` its sandbox.
    """
    values = [*miss.inputs, *miss.answer]
    specs = [TensorSpec("", tuple(value.shape), str(value.dtype).removeprefix("torch.")) for value in values]
    layout = plan_layout(specs, max_slots=1)
    try:
        with ExitStack() as stack:
            pages = stack.enter_context(closing(Pages(layout)))
            for index, value in enumerate(values):
                pages.put(index, 0, value)
            variants = Order(ROUNDINGS, order.source, order.origin, order.device)
            template = start_template(arm, variants, layout, pages.fd)
            stack.callback(template.leave)
            template.wait()
            forks = fork_all({EAGER: template}, ForkOrder(template.effects, 1), bench)
            runner = stack.enter_context(closing(forks[EAGER]))
            runner.block(1)
            (output,) = read_call(runner, 0)
    except (ArmFailed, ArmFailure, ValueError):
        return ""  # the graph has no variants, so the record has only the worst element
    numbers = [] if output.value is None or output.value.dtype is not torch.int64 else output.value.tolist()
    return _in_words(order, numbers, sum(value.numel() for value in miss.answer))


def _in_words(order: Order, numbers: Sequence[int], elements: int) -> str:
    if len(numbers) < 3 or numbers[1] > EXPLAINED * numbers[0]:
        return ""
    before, after, *places = numbers
    nodes = list(build_graph(order.source, order.origin).graph.nodes)
    names = [nodes[place].name for place in places if 0 <= place < len(nodes)]
    assignment = re.search(rf"^\s*{re.escape(names[0])}\s*=.*$", order.source, re.M)
    first = assignment[0].strip() if assignment else names[0]
    others = ", ".join(names[1 : 1 + MAX_OTHERS]) + (", ..." if len(names) > 1 + MAX_OTHERS else "")
    text = f"eager rounds the result of {line(first, 160)}, and the answer fits a kernel that does not"
    text += f" (with {others} unrounded too)" if others else ""
    return f"{text}: {after:,} elements in place of {before:,} of {elements:,} differ then. Round it: {_REMEDIES}"
