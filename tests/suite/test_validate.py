"""The check of graphs whose shapes depend on values: it computes those values, and no more of the graph.

To show this, the graphs also have a value that fits no machine: a check that computed it would fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.limits import machine_bytes
from pytest_passbench.suite.opnames import operator_sequence
from pytest_passbench.suite.validate import problems
from shared.batched_mask import PLACES, mask_source

NUMBER = TensorSpec("n", (), "int64", data=(3,))
NUMBERS = TensorSpec("numbers", (3,), "int64", data=(4, 2, 1))
ROWS = TensorSpec("x", (8, 4), "float32", 0.0, 1.0)
ROWS_OF_BIG = 1 << 16


def faults(body: str, *inputs: TensorSpec) -> list[str]:
    """Return the problems of a graph of these statements."""
    names = ", ".join(spec.name for spec in inputs)
    source = f"def forward({names}):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    operators = operator_sequence(build_graph(source, "m.py").graph.nodes)
    header = TaskHeader("t", operators, ("own",), (), 1, "text")
    task = Task(header, Path("m"), {"g0": source}, (Subgraph("s", "g0", "float32", inputs),))
    return [error.what for error in problems(task)]


# In each graph the value n is 3, as its matrix products need. The second text gives another n, which is a fault.
VALUES = {
    "an input": ("n = n.item()", "n = n.item() + 1"),
    "arithmetic": ("n = (n * 2 - 3).item()", "n = (n * 2 - 2).item()"),
    "an element": ("n = numbers[0].item() - 1", "n = numbers[0].item()"),
    "a slice": ("n = numbers[1] + 1", "n = numbers[1]"),
    "nonzero": ("n = (numbers > 0).nonzero().shape[0]", "n = (numbers > 1).nonzero().shape[0]"),
    "a mask": ("n = numbers[numbers > 0].shape[0]", "n = numbers[numbers > 1].shape[0]"),
    "a sum": ("n = (numbers > 0).sum().item()", "n = numbers.sum().item()"),
    "nonzero of nonzero": (
        "n = (numbers > 1).nonzero().squeeze(1).nonzero().shape[0] + 2",
        "n = (numbers > 1).nonzero().squeeze(1).nonzero().shape[0]",
    ),
    "a write": ("y = numbers.clone()\nview = y[1:]\nview.add_(1)\nn = y[1].item()", "n = numbers[1].item()"),
    "a write after a read": (
        "y = numbers.clone()\nbefore = y[1] + 1\ny[1] = 7\nafter = y[1].item()\nn = before.item()",
        "y = numbers.clone()\nbefore = y[1] + 1\ny[1] = 7\nafter = before.item()\nn = y[1].item()",
    ),
    "a write between reads": (
        "y = numbers.clone()\na = y[0].item()\ny.sub_(1)\nn = y[0].item()",
        "y = numbers.clone()\na = y[0].item()\ny.sub_(1)\nn = a",
    ),
    "a write to a view that was read": (
        "y = numbers.clone()\nrows = y.nonzero()\nrows.add_(1)\nn = rows[2, 0].item()",
        "y = numbers.clone()\nrows = y.nonzero()\nrows.add_(1)\nn = rows[1, 0].item()",
    ),
    "two writes": (
        "y = numbers.clone()\na = y[0].item()\ny.add_(1)\nb = y[0].item()\ny.sub_(2)\nn = y[0].item()",
        "y = numbers.clone()\na = y[0].item()\ny.add_(1)\nb = y[0].item()\ny.sub_(2)\nn = b",
    ),
    "an input that is written to": ("numbers.sub_(1)\nn = numbers[0].item()", "n = numbers[0].item()"),
}
END = (
    "\nrows = x[:n]\ny = rows @ torch.ones(4, 3) @ torch.ones(n, 4)[:3]\nz = torch.ones(5, 3) @ y[:, :3]\nreturn (z,)"
)


@pytest.mark.parametrize("name", VALUES)
def test_a_shape_follows_the_value(name: str) -> None:
    good, bad = VALUES[name]
    inputs = (NUMBER, NUMBERS, ROWS)
    assert faults(good + END, *inputs) == []
    (fault,) = faults(bad + END, *inputs)
    assert fault.startswith("subgraph s does not run: ")
    assert "same reduction dim" in fault or "size" in fault or "shape" in fault


@pytest.mark.parametrize("name", VALUES)
def test_only_what_the_value_needs_is_computed(name: str) -> None:
    columns = machine_bytes() // ROWS_OF_BIG  # so the value ``big`` takes four times the machine's memory
    wide = TensorSpec("a", (1, columns), "float32", 0.0, 1.0)
    body = f"big = torch.ones({ROWS_OF_BIG}, 1) @ a\n" + VALUES[name][0] + END.replace("(z,)", "(z, big)")
    assert faults(body, NUMBER, NUMBERS, ROWS, wide) == []


@pytest.mark.parametrize("place", PLACES)
def test_a_value_from_a_level_of_vmap(place: str) -> None:
    source = mask_source(place)
    head = next(i for i, line in enumerate(source.splitlines()) if line.startswith("def forward"))
    lines = [line.strip() for line in source.splitlines()[head + 1 :]]
    result = lines.pop().removeprefix("return (").rstrip(",)")
    body = "\n".join([*lines, f"n = {result}.nonzero()", "return (n,)"])
    mask = (
        TensorSpec("in_0", (2, 5), "bool"),
        TensorSpec("in_1", (5,), "int64", min=0, max=4),
        TensorSpec("in_2", (2, 1, 5, 5), "float32", mean=0.0, std=1.0),
    )
    assert faults(body, *mask) == []


def test_the_error_of_a_computed_value_names_its_node() -> None:
    (fault,) = faults("y = numbers[numbers]\nn = y[0].item()\nz = x[:n]\nreturn (z,)", NUMBERS, ROWS)
    assert fault.startswith("subgraph s does not run: y (call_function): index ")
