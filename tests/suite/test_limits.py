"""The limits of graphs: a whole model fits. What is beyond a limit is refused with a message that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.limits import MAX_SOURCE_BYTES, MAX_STATEMENTS, MAX_TOKENS
from pytest_passbench.suite.printing import to_source
from pytest_passbench.suite.published import read_sample, write_sample
from pytest_passbench.suite.source import parse
from pytest_passbench.suite.validate import problems

INPUTS = 3_300  # no published graph has more than 3,246
LONG = "L_self_modules_encoder_modules_layer_modules_{}_modules_attention_modules_output_parameters_weight_"


def text(statements: int) -> str:
    """Return a graph of so many statements, of which the last is its return."""
    body = "\n".join(f"    tmp_{i + 1} = tmp_{i} + x" for i in range(statements - 2))
    return f"def forward(x):\n    tmp_0 = x\n{body}\n    return (tmp_{statements - 2},)\n"


def wide_graph(names: list[str]) -> str:
    """Return a graph that adds up all its inputs, in the spelling that :func:`to_source` gives it."""
    sums = "\n".join(f"    tmp_{i} = tmp_{i - 1} + {names[i + 1]}" for i in range(1, len(names) - 1))
    first = f"    tmp_0 = {names[0]} + {names[1]}"
    head = "".join(f"    {name},\n" for name in names)
    return f"def forward(\n{head}):\n{first}\n{sums}\n    return (tmp_{len(names) - 2},)\n"


def wide_sample(folder: Path) -> Task:
    """Write a published sample of thousands of inputs with long names, and return its task."""
    names = [LONG.format(i) for i in range(INPUTS)]
    inputs = tuple(TensorSpec(name, (2,), "float32", 0.0, 1.0) for name in names)
    header = TaskHeader("wide", ("add",) * (INPUTS - 1), ("own",), (), 1, "text")
    task = Task(header, folder, {"g0": wide_graph(names)}, (Subgraph("0", "g0", "float32", inputs, source="own"),))
    write_sample(task, folder)
    return task


@pytest.mark.slow
def test_a_published_graph_of_thousands_of_inputs_with_long_names_comes_back(tmp_path: Path) -> None:
    task = wide_sample(tmp_path / "wide")
    again = read_sample(tmp_path / "wide")
    assert again.graphs == task.graphs
    assert again.subgraphs == task.subgraphs


@pytest.mark.slow
def test_a_published_graph_of_thousands_of_inputs_runs(tmp_path: Path) -> None:
    wide_sample(tmp_path / "wide")
    assert list(problems(read_sample(tmp_path / "wide"))) == []


def test_the_printer_gives_a_long_signature_an_input_a_line() -> None:
    source = wide_graph([f"in_{i}" for i in range(INPUTS)])
    assert to_source(build_graph(source, "m.py")) == source


def test_a_short_signature_stays_in_one_line() -> None:
    source = "def forward(in_0, in_1):\n    tmp_0 = in_0 + in_1\n    return (tmp_0,)\n"
    assert to_source(build_graph(source, "m.py")) == source


def test_a_graph_has_at_most_so_many_statements() -> None:
    assert len(parse(text(MAX_STATEMENTS), "m.py").body) == MAX_STATEMENTS
    with pytest.raises(UserError) as caught:
        parse(text(MAX_STATEMENTS + 1), "m.py")
    place = MAX_STATEMENTS + 2  # the line, after that of ``def forward``
    assert str(caught.value) == f"m.py:{place}: more than 20,000 statements (split the graph)"


def test_a_text_has_at_most_so_many_characters() -> None:
    with pytest.raises(UserError) as caught:
        parse("#" * (MAX_SOURCE_BYTES + 1), "m.py")
    message = "m.py:1: Python text of more than 8,388,608 characters (make the graph or its recorded data smaller)"
    assert str(caught.value) == message


@pytest.mark.slow
def test_a_text_has_at_most_so_many_words_and_signs() -> None:
    line = "x = [" + "1, " * 497 + "1]\n"  # 1,000 words and signs
    with pytest.raises(UserError) as caught:
        parse(line * (MAX_TOKENS // 1_000) + "y\n", "m.py")
    message = "m.py:1001: too complex: more than 1,000,000 words and signs (split it into several assignments)"
    assert str(caught.value) == message


def test_lists_that_grow_by_themselves_are_refused() -> None:
    lines = ["a = (1,) + x.shape", *(["a = a + a"] * 40), "return (x.reshape(a[:1]),)"]
    inputs = (TensorSpec("x", (1,), "float32", 0.0, 1.0),)
    source = "def forward(x):\n" + "".join(f"    {line}\n" for line in lines)
    task = Task(TaskHeader("t", ("reshape",), ("own",), (), 1, "text"), Path("t"), {"g0": source},
                (Subgraph("s", "g0", "float32", inputs),))  # fmt: skip
    (fault,) = (error.what for error in problems(task) if "does not run" in error.what)
    assert fault.endswith(": a list of more than 1,000 items")
