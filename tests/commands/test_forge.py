"""``passbench forge --model``: tasks of a user's own module, and what is said if something is wrong."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Task
from pytest_passbench.forge import curate
from pytest_passbench.forge.capture import capture
from pytest_passbench.forge.model_tasks import most_frequent
from pytest_passbench.forge.models import Variant
from pytest_passbench.forge.remake import identities
from pytest_passbench.forge.user_model import case_of_file
from pytest_passbench.suite.find import discover

RUN = "import sys; from pytest_passbench.commands.main import main; sys.exit(main())"
MODELS = '''
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)

    def forward(self, x, y):
        return self.norm(torch.tanh(x) * y + 0.5) * torch.sigmoid(y)


class Squared(nn.Module):
    """The absolute value of a square changes nothing, so a run that has both is refused."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        return torch.tanh(self.norm(torch.abs(x * x)))


class Special(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(64, 8)

    def forward(self, x, image):
        weights, chosen = torch.topk(torch.softmax(self.router(x), -1), 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        total = torch.zeros(8, 2)
        total.index_add_(0, chosen[:, 0], weights * 2.0)
        both = torch.cat([torch.tanh(x), torch.sigmoid(x)], dim=-1) * 0.5
        return total, both, F.interpolate(torch.relu(image) + 0.25, scale_factor=2.0) * 1.5


class Rows(nn.Module):
    def forward(self, table, ids):
        return torch.relu(table[ids]) * 0.5


class Mapping(nn.Module):
    def forward(self, batch):
        return F.gelu(torch.tanh(batch["x"]) * batch["y"] + 1.0)


class Breaks(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * 0.5
        if y.sum().item() > 0:
            y = y + 1
        return torch.sigmoid(y) * torch.relu(x)


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("needs three channels\\nand more")


class Unmade(nn.Module):
    def __init__(self):
        raise OSError("no weights")


class Wants(nn.Module):
    def __init__(self, width):
        super().__init__()


@torch.compiler.allow_in_graph
def with_numpy(x):
    return torch.tensor(x.numpy().sum()) + x


class Opaque(nn.Module):
    def forward(self, x):
        return with_numpy(x) * 2


class Outside(nn.Module):
    @torch._dynamo.disable
    def forward(self, x):
        return torch.tanh(x) * 2
'''
X = "--input=float b n 64"


@pytest.fixture(autouse=True)
def _any_time_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept any time: that of these small graphs depends on the machine, and some are at the lower bound."""
    monkeypatch.setattr(curate, "suits", lambda _seconds: True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _forge(name: str, *arguments: str) -> int:
    return main(["forge", f"--model=mine.py:{name}", "--out=out", *arguments])


def _tasks(folder: Path) -> list[Task]:
    return [ref.load() for ref in discover(folder / "out")]


def _ops(folder: Path) -> set[str]:
    return {op for task in _tasks(folder) for op in task.header.ops}


def _error(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the message: the only line of stderr that is not progress."""
    (text,) = (line for line in capsys.readouterr().err.splitlines() if not line.startswith("forge: "))
    assert text.startswith("passbench: error: ")
    return text


def test_a_module_becomes_task_files_and_the_next_command_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _forge("Block", X, X, "--size=2,32", "--tasks=1") == 0
    (task,) = _tasks(folder)
    assert task.header.sources == ("mine/Block",)
    assert len({s.dtype for s in task.subgraphs}) > 1
    said = capsys.readouterr()
    assert "1 task, " in said.out
    assert "pytest --passbench --candidate=DIR out" in said.out
    assert "refused" not in said.out
    assert said.err.startswith("forge: capturing mine/Block\n")


def test_the_published_layout_has_the_same_graphs_and_inputs(folder: Path) -> None:
    assert _forge("Block", X, X, "--size=2,32", "--tasks=1") == 0
    assert main(["forge", "--model=mine.py:Block", X, X, "--size=2,32", "--tasks=1", "--out=samples",
                 "--layout=published"]) == 0  # fmt: skip
    assert not list((folder / "samples").rglob("*.yaml"))
    published = [ref.load() for ref in discover(folder / "samples")]
    assert _hashes(published) == _hashes(_tasks(folder)) != []


def _hashes(tasks: list[Task]) -> list[str]:
    """Return the hashes of all subgraphs: of the graph, and of the inputs' shapes and dtypes."""
    return sorted(key for task in tasks for key, _ in identities(task))


@pytest.mark.slow
def test_runs_with_topk_index_add_cat_and_interpolate_are_kept(folder: Path) -> None:
    inputs = ["--input=float n*8 64", "--input=float b 16 n n"]
    assert _forge("Special", *inputs, "--size=2,32", "--tasks=12") == 0
    assert _ops(folder) >= {"topk", "index_add", "cat", "interpolate"}


def test_an_integer_range_is_what_the_task_records(folder: Path) -> None:
    assert _forge("Rows", "--input=float 64 32", "--input=int5..60 b n", "--size=4,128", "--tasks=1") == 0
    (task,) = _tasks(folder)
    ids = [spec for subgraph in task.subgraphs for spec in subgraph.inputs if spec.dtype == "int64"]
    assert ids
    assert all((spec.min, spec.max) == (5, 60) for spec in ids)


def test_inputs_by_name_and_an_argument_that_is_a_dict(folder: Path) -> None:
    named = ["--input=ids=int64 b n", "--input=table=float 64 32"]
    assert _forge("Rows", *named, "--size=4,128", "--tasks=1") == 0
    made = 'return ({"x": torch.randn(8, 64), "y": torch.randn(8, 64)},)'
    (folder / "mine.py").write_text(f"{MODELS}\n\ndef example_inputs():\n    {made}\n")
    assert _forge("Mapping", "--tasks=1") == 0
    assert _ops(folder) >= {"getitem", "tanh", "gelu"}


@pytest.mark.slow
def test_a_size_that_the_model_cannot_take_is_left_out_with_a_note(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _forge("Squared", "--input=float b n", "--size=128,64", "--size=128,32", "--tasks=1") == 0
    assert "forge: batch 128, size 32 is left out: the model fails there" in capsys.readouterr().err
    (task,) = _tasks(folder)
    assert all((128, 64) in [spec.shape for spec in subgraph.inputs] for subgraph in task.subgraphs)


@pytest.mark.slow
def test_fewer_tasks_than_asked_for_are_explained_by_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _forge("Squared", X, "--size=4,32", "--tasks=9") == 0
    made = len(_tasks(folder))
    out = capsys.readouterr().out
    assert f"asked for 9 tasks, made {made}: " in out
    assert "refused, by rule: " in out
    assert "  removable: mul abs" in out
    assert "nothing changes at t = -5" in out


def test_no_task_at_all_says_which_rules_refused_the_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _forge("Block", "--input=float b 2 64", "--input=float b 2 64", "--size=30000,1") == 1
    error = _error(capsys)
    assert "mine/Block: no task: " in error
    assert "elements" in error
    assert "--size" in error
    assert _forge("Outside", X) == 1
    assert "captures no two connected operators" in _error(capsys)


@pytest.mark.parametrize(
    ("spec", "said", "remedy"),
    [
        ("", "it is empty", "float b 3 n n"),
        ("int b n", "'int' has no range", "int1000 for 0 to 999"),
        ("int9..5 b", "range of 'int9..5' is empty", "int5..99"),
        ("int0 b", "range of 'int0' is empty", "int1000"),
        ("flaot b n", "'flaot' is no dtype", "float, bool, int1000"),
        ("float b x", "'x' is no size", "n/8"),
        ("float b n/0", "'n/0' is no size", "n/8"),
        ("float b 0", "'0' is no size", "above 0"),
        ('{"x": "float b n"}', "it is a dict", "x=float b n"),
        ("float b n/999", "n/999 is 0 at batch 2, size 32", "--size=B,N"),
        ("float 100000 100000 64", "GiB", "smaller sizes"),
        ("float " + "9 " * 80, "80 dimensions", "smaller sizes"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_input_spec_is_named_with_a_right_one(
    spec: str, said: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _forge("Block", f"--input={spec}", "--size=2,32") == 1
    error = _error(capsys)
    assert "error: --input: " in error
    assert said in error
    assert remedy in error


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("Nothing", [X], "has no 'Nothing' (it has Block, Squared, "),
        ("", [X], "mine.py: names no class (write mine.py:NAME"),
        ("Block", [], "does not define the model's inputs (give an --input per argument"),
        ("torch", [X], "gives a module, not a torch.nn.Module"),
        ("Wants", [X], "cannot be made without arguments: missing a required argument: 'width'"),
        ("Unmade", [X], "the model cannot be made: OSError: no weights"),
        ("Block", [X, "--size=x"], "--size: 'x' is not a size"),
        ("Block", [X, "--out=mine.py"], "--out: mine.py is no folder"),
        ("Block", [X, "--input=y=float b n"], "'float b n 64' has no name, and others have one"),
        ("Block", [X], "forward(x, y) does not take 1 input: missing a required argument: 'y'"),
        ("Squared", ["--input=float b n 65"], "forward fails on float32 [1, 224, 65]: RuntimeError: "),
        ("Mapping", [X], "a dict or a list needs example_inputs() in the file"),
        ("Opaque", [X], "torch.compile cannot capture it: RuntimeError: "),
        ("Raises", [X], "ValueError: needs three channels (give an --input"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_users_mistake_is_one_line(
    name: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _forge(name, *arguments) == 1
    assert said in _error(capsys)


LOOKED_UP = """
from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass
class Settings:
    factor: float = 0.5


def scaled(x):
    return torch.tanh(x) * Settings().factor


class Block(torch.nn.Module):
    def forward(self, x):
        return scaled(x) + x


def make():
    return torch.nn.Sequential(Block(), Block())
"""


def test_a_file_is_a_module_that_others_find_by_its_name(tmp_path: Path) -> None:
    """Dataclasses and Dynamo look for names in the module that ``sys.modules`` has."""
    path = tmp_path / "looked_up.py"
    path.write_text(LOOKED_UP)
    case = case_of_file(f"{path}:make", ["float b n"], [Variant(4, 8)])
    (captured,) = capture(case.build(), case.inputs(case.build(), case.variants[0]))
    assert [node.op for node in captured.module.graph.nodes].count("call_function") == 6
    path.write_text("raise ValueError('no')")
    with pytest.raises(UserError, match="cannot be imported: ValueError: no"):
        case_of_file(f"{path}:make", ["float b n"], [])
    assert not [name for name in sys.modules if name.endswith("looked_up")]


def test_a_run_whose_inputs_no_task_has_is_told_what_to_do() -> None:
    assert "give the model in float32" in most_frequent([])[1]


def test_a_failure_of_the_model_names_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _forge("Raises", X) == 1
    lines = (folder / "mine.py").read_text().splitlines()
    number = next(i for i, text in enumerate(lines, 1) if "raise ValueError" in text)
    assert f"error: mine.py:{number}: forward fails on float32 [1, 224, 64]: ValueError" in _error(capsys)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", "example_inputs() returns None"),
        ("return {}", "example_inputs() returns {}"),
        ("return {1: torch.ones(2)}", "keys that are no names"),
        ("raise KeyError('x')", "example_inputs() fails: KeyError"),
    ],
)
def test_wrong_example_inputs_are_one_line(
    body: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(f"{MODELS}\n\ndef example_inputs():\n    {body}\n")
    assert _forge("Mapping") == 1
    assert said in _error(capsys)
    assert _forge("Mapping", "--size=2,32") == 1
    assert "--size: has no effect on example_inputs()" in _error(capsys)


def test_options_of_a_model_without_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forge", X]) == 1
    assert "--input: goes with a model of a file only" in _error(capsys)
    assert main(["forge", "--all", "--size=2,4"]) == 1
    assert "--size: goes with a model of a file only" in _error(capsys)


def test_without_arguments_it_says_what_it_would_do_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forge"]) == 1
    error = _error(capsys)
    assert "would make 200 tasks in tasks" in error
    assert "hours in all" in error
    assert "add --all to begin" in error


COMMAND = "import sys; from pytest_passbench.commands.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.slow
def test_dynamos_log_lines_are_not_shown(folder: Path) -> None:
    command = [sys.executable, "-c", COMMAND, "forge", "--model=mine.py:Breaks", X, "--size=4,64", "--out=out"]
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_LOGS"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("forge: ") for line in done.stderr.splitlines()), done.stderr
    assert len(done.stderr.splitlines()) < 20
    assert _tasks(folder)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_on_a_terminal_one_line_changes_and_goes_before_the_message() -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-c", COMMAND, "forge", "--model=mine.py:Raises", X, "--out=out"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave, env=environment) as process:
        os.close(slave)
        said = b""
        while part := _read(master):
            said += part
    os.close(master)
    assert process.returncode == 1
    clear = b"\r\x1b[K"
    assert said.startswith(clear + b"forge: capturing mine/Raises" + clear)
    assert said.rpartition(clear)[2].startswith(b"passbench: error: ")
    assert said.count(b"\n") == 1


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # what Linux raises once the other end is closed
        return b""


@pytest.mark.slow
def test_ctrl_c_ends_a_command_with_one_line(tmp_path):
    (tmp_path / "slow.py").write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(100)\n")
    command = [sys.executable, "-c", RUN, "forge", "--model=slow.py:M", "--out=out"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "begun").exists() and running.poll() is None:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert (running.returncode, said.splitlines()[-1]) == (130, "passbench: interrupted")
    assert "Traceback" not in said
