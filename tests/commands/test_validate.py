"""``passbench tasks validate`` on published graph folders: what loads, the summary by cause, the progress line."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.suite.published import write_sample
from shared.batched_mask import PLACES, mask_source

COMMAND = [sys.executable, "-c", "import sys; from pytest_passbench.commands.main import main; sys.exit(main())"]
RELU = "def forward(in_0):\n    {}\n    tmp_0 = torch.relu(in_0)\n    {}\n    return (tmp_0,)\n"
PLAIN = RELU.format("", "")
X = TensorSpec("in_0", (4, 3), "float32", 0.0, 1.0)
FLOATS = {"dtype": "float32", "mean": 0.0, "std": 1.0}
MASK_INPUTS = (
    TensorSpec("in_0", (2, 5), "bool"),
    TensorSpec("in_1", (5,), "int64", min=0, max=4),
    TensorSpec("in_2", (2, 1, 5, 5), **FLOATS),
)
ATTENTION = """def forward(in_0, in_1, in_2, in_3, in_4):
    tmp_0 = torch._native_multi_head_attention(in_0, in_0, in_0, 8, 2, in_1, in_2, in_3, in_4, None, False)
    tmp_1 = tmp_0[0]
    return (tmp_1,)
"""
ATTENTION_INPUTS = tuple(
    TensorSpec(f"in_{i}", shape, **FLOATS) for i, shape in enumerate([(2, 3, 8), (24, 8), (24,), (8, 8), (8,)])
)
CONSTRUCTS = {
    "log": (RELU.format("log = torch._C._log_api_usage_once('python.nn_module')", "log = None"), (X,)),
    "grad": (RELU.format("grad = torch._C._set_grad_enabled(False)", "grad = None"), (X,)),
    "autocast": (
        RELU.format(
            "entered = torch.amp.autocast_mode._enter_autocast('cuda', None, False, None)",
            "left = torch.amp.autocast_mode._exit_autocast(entered)",
        ),
        (X,),
    ),
    "attention": (ATTENTION, ATTENTION_INPUTS),
    **{f"vmap-{place}": (mask_source(place), MASK_INPUTS) for place in PLACES},
}


def write(folder, source=PLAIN, inputs=(X,)):
    """Write a published sample of one graph, without what this package adds to it."""
    task = Task(
        TaskHeader(folder.name, ("relu",), (), (), 1, ""),
        folder,
        {"g0": source},
        (Subgraph("0", "g0", "float32", inputs),),
    )
    write_sample(task, folder, "cuda:0")
    (folder / "0" / "graph_net.json").write_text("{}")
    return folder


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_constructs_of_published_graphs(tmp_path, capsys, construct):
    write(tmp_path / "sample", *CONSTRUCTS[construct])
    assert main(["tasks", "validate", str(tmp_path)]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == "1 task valid\n"


@pytest.fixture
def mixed(tmp_path):
    """Write a folder of twelve samples, seven of which are bad, in three ways."""
    good = write(tmp_path / "all" / "good")
    for number in range(4):
        shutil.copytree(good, tmp_path / "all" / f"good-{number}")
        write(tmp_path / "all" / f"load-{number}", RELU.format(f"x_{number} = torch.load('a')", ""))
    for width in (5, 6):
        write(tmp_path / "all" / f"shape-{width}", RELU.format(f"y = in_0 @ torch.ones({width}, 2)", ""))
    write(tmp_path / "all" / "text")
    (tmp_path / "all" / "text" / "0" / "model.py").write_text("def forward(")
    return tmp_path / "all"


SUMMARY = """12 tasks checked, 7 bad
     4  operator 'torch.load' is not allowed
        such as {0}/load-0/0/model.py:11
     2  does not run: a and b must have same reduction dim, but got [N, ...] X [N, ...].
        such as {0}/shape-5
     1  not Python: '(' was never closed
        such as {0}/text/0/model.py:1
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_summary_by_cause(mixed, processes):
    line = [*COMMAND, "tasks", "validate", str(mixed), "--processes", processes]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout == SUMMARY.format(mixed)
    names = [
        line.removeprefix(f"passbench: error: {mixed}/").split("/")[0].split(":")[0]
        for line in done.stderr.splitlines()
        if not line.startswith("validate: ")  # the progress, every ten seconds
    ]
    assert names == ["load-0", "load-1", "load-2", "load-3", "shape-5", "shape-6", "text"]


@pytest.mark.slow
def test_progress_on_a_terminal_is_one_line(mixed):
    main_end, side = pty.openpty()
    with os.fdopen(main_end, "rb", buffering=0) as screen:
        line = [*COMMAND, "tasks", "validate", str(mixed), "--processes", "1"]
        terminal = {**os.environ, "TERM": "xterm"}  # on a dumb terminal no line is overwritten
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=side, text=True, env=terminal) as process:
            os.close(side)
            shown = bytearray()
            try:
                while data := screen.read(4096):
                    shown += data
            except OSError:  # no process has the terminal open any more
                pass
            assert process.wait(60) == 1
    text = shown.decode()
    assert "\r\x1b[Kvalidate: 1 of 12 tasks checked, 0 bad" in text
    last = text.rsplit("\r\x1b[K", 1)
    assert last[1] == ""
    assert all("checked" not in line or "\r\x1b[K" in line for line in text.split("\n"))


def test_a_path_without_tasks_is_counted_and_the_others_are_checked(tmp_path, capsys):
    good = write(tmp_path / "good")
    (tmp_path / "none").mkdir()
    assert main(["tasks", "validate", str(tmp_path / "none"), str(good)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == ["2 tasks checked, 1 bad", "     1  holds no tasks"]
    assert "none: holds no tasks" in err
