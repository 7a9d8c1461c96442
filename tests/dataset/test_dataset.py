"""A data set built from a user's own models: its rows and files, and how an interrupted build goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core import progress
from pytest_passbench.dataset import build as building
from pytest_passbench.dataset import shards
from pytest_passbench.forge.normal_form import digest
from support.docs_pages import ROOT, blocks

pytestmark = pytest.mark.slow

MODELS = """
import os
import time

import torch

from pytest_passbench.forge.models import ModelCase, Variant

LIBRARY, LICENSE = "own", "MIT"


class Block(torch.nn.Module):
    def __init__(self, activation, norm=True):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.activation, self.norm = activation, torch.nn.LayerNorm(16) if norm else torch.nn.Identity()

    def forward(self, x):
        heads = self.activation(self.first(x)).reshape(x.shape[0], x.shape[1], 4, 8).transpose(1, 2)
        return self.norm(x + self.second(heads.transpose(1, 2).flatten(2)))


class Broken(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("no such size")


class Deadly(torch.nn.Module):
    def forward(self, x):
        os._exit(7)


class Greedy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4096
        self.table = torch.empty(pages // 4 * 3, 4096, dtype=torch.uint8)  # of which nothing is touched

    def forward(self, x):
        return torch.relu(x) + 1


def inputs(model, variant):
    return (torch.randn(variant.batch, variant.size, 16, generator=torch.Generator().manual_seed(0)),)


def seeded(module, *arguments):
    def build():
        torch.manual_seed(0)
        time.sleep(float(os.environ.get("PASSBENCH_TEST_PAUSE", "0")))
        return module(*arguments).eval()

    return build


def cases():
    rows = {
        "gelu": (Block, torch.nn.GELU()),
        "silu": (Block, torch.nn.SiLU()),
        "tanh": (Block, torch.nn.Tanh(), False),
        "broken": (Broken,),
        "deadly": (Deadly,),
        "greedy": (Greedy,),
    }
    for name, row in rows.items():
        case = ModelCase(f"own/{name}", "text", seeded(*row), inputs, (Variant(2, 8), Variant(1, 6)), "tiny")
        yield f"own/{name}", case
"""


HELD_OUT = f"--held-out={ROOT / 'tasks' / 'series'}"


def build(folder, *options):
    (folder / "models.py").write_text(MODELS, encoding="utf-8")
    files = [f"--out={folder / 'set'}", f"--also={folder / 'models.py'}", HELD_OUT]
    return ["dataset", "build", *files, "--sources=own", *options]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a data set of six architectures in ``set``, three of which cannot be captured."""
    path = tmp_path_factory.mktemp("dataset")
    assert main(build(path)) == 0
    return path


@pytest.fixture(scope="module")
def rows(folder):
    return list(shards.read(folder / "set"))


def files(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "set" / "data").glob("*.parquet"))}


def test_rows_are_unique_texts_with_their_hashes(rows):
    assert len({row.id for row in rows}) == len(rows) > 20
    assert all(row.id == digest([row.source]) for row in rows)
    assert {row.kind for row in rows} >= {"whole", "single"}
    assert len({row.form for row in rows}) < len(rows)  # two sizes of one graph have two texts if sizes are literals


def test_a_graph_that_several_families_have_is_one_row(rows):
    linear = [row for row in rows if row.operators == ["linear"]]
    assert len({row.form for row in linear}) == 1
    assert all(row.families == ["own/gelu", "own/silu", "own/tanh"] for row in linear)


def test_other_dtypes_and_sizes_of_a_text_are_its_instances(rows):
    (gelu,) = [row for row in rows if row.operators == ["gelu"]]
    assert {(item["dtype"], item["variant"]) for item in gelu.instances} == {
        ("bfloat16", "b2n8"), ("float16", "b2n8"), ("float32", "b1n6"), ("bfloat16", "b1n6"), ("float16", "b1n6"),
    }  # fmt: skip


def test_whole_graphs_give_the_models_own_outputs(rows):
    import torch

    names: dict[str, object] = {}
    exec(MODELS, names)
    for row in rows:
        if row.kind == "whole" and row.variant == "b2n8":
            case = next(case for _, case in names["cases"]() if case.name == row.architecture)
            model = case.build()
            tensors = {name.replace(".", "_"): value for name, value in model.named_parameters()}
            (x,) = case.inputs(model, case.variants[0])
            values = [tensors.get(data["original_name"].replace(".", "_"), x) for data in row.inputs]
            space: dict[str, object] = {"torch": torch}
            exec(row.source, space)
            with torch.no_grad():
                (output,) = space["forward"](*values)
                assert torch.equal(output, model(x))


def test_a_broken_architecture_costs_itself_and_is_counted(folder, capsys):
    assert main(["dataset", "stats", str(folder / "set"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["architectures"] == 3
    assert sum(counts["causes"].values()) == 3
    assert "died with exit code 7" in counts["causes"]
    assert counts["curve"][-1]["graphs"] == counts["graphs"]
    assert "can't allocate memory" in (folder / "set" / "captures" / "own__greedy.failed").read_text()


def test_a_library_that_cannot_be_imported_gets_one_message(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["dataset", "build", f"--out={tmp_path / 'set'}", "--sources=timm"]) == 1
    errors = capsys.readouterr().err
    assert "error: timm: cannot be imported: RuntimeError: operator torchvision::nms does not exist" in errors
    assert "pip uninstall torchvision" in errors
    assert main(build(folder)) == 0  # a library that is not used is not imported


def test_a_second_build_adds_nothing_and_changes_no_byte(folder):
    before = files(folder)
    assert main(build(folder)) == 0
    assert files(folder) == before


def test_a_build_goes_on_from_the_shards_if_the_captures_are_missing(folder, tmp_path, capsys):
    shutil.copytree(folder / "set", tmp_path / "set", ignore=shutil.ignore_patterns("captures"))
    assert main(build(tmp_path)) == 0
    assert files(tmp_path) == files(folder)
    for name in ("architectures.parquet", "summary.json"):
        assert (tmp_path / "set" / name).read_bytes() == (folder / "set" / name).read_bytes()
    assert "own/" not in capsys.readouterr().err  # no architecture was captured again, those that failed included


def test_captures_that_were_made_again_in_part_are_none(folder, tmp_path, monkeypatch, capsys):
    shutil.copytree(folder / "set", tmp_path / "set", ignore=shutil.ignore_patterns("captures"))
    write, written = building.write_text, []

    def stopped(path, text):
        if written:
            raise KeyboardInterrupt
        written.append(path)
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(building, "write_text", stopped)
        with pytest.raises(KeyboardInterrupt):
            building.restore_captures(tmp_path / "set", tmp_path / "set" / "captures")
    assert main(build(tmp_path)) == 0
    assert files(tmp_path) == files(folder)
    assert "own/" not in capsys.readouterr().err  # no architecture was captured again


def test_a_damaged_table_of_architectures_gets_one_line(folder, tmp_path, capsys):
    shutil.copytree(folder / "set", tmp_path / "set", ignore=shutil.ignore_patterns("captures"))
    (tmp_path / "set" / "architectures.parquet").write_bytes(b"PAR1")
    assert main(build(tmp_path)) == 1
    assert "architectures.parquet: is no table of architectures" in capsys.readouterr().err


def test_sizes_say_how_shapes_depend_on_batch_and_size(folder):
    import pandas

    table = pandas.read_parquet(folder / "set" / "data")
    (gelu,) = [row for row in table.to_dict("records") if list(row["operators"]) == ["gelu"]]
    assert [list(dimensions) for dimensions in gelu["sizes"]] == [["b", "n", "32"]]


def test_head_room_is_what_fusing_saves_of_memory_traffic(folder):
    import pandas

    table = pandas.read_parquet(folder / "set" / "data")
    rooms = {tuple(row["operators"]): row["headroom"] for row in table.to_dict("records")}
    assert rooms["gelu",] == 1.0
    assert 1.5 < rooms["add", "layer_norm"] < 1.7  # five tensors are moved, three would do; two are small


FAMILY = """
import torch
from pytest_passbench.forge.models import ModelCase, Variant

LIBRARY, LICENSE = "own", "MIT"

ACTIVATIONS = (torch.nn.GELU(), torch.nn.SiLU(), torch.nn.Threshold(1e9, float("nan")))


def cases():
    for activation in ACTIVATIONS:
        def build(activation=activation):
            torch.manual_seed(0)
            return torch.nn.Sequential(activation, torch.nn.LayerNorm(8)).eval()

        def inputs(model, variant):
            return (torch.randn(variant.batch, 8, generator=torch.Generator().manual_seed(0)),)

        yield "own/mlp", ModelCase(f"own/{type(activation).__name__}", "text", build, inputs, (Variant(4, 1),))
"""


def test_the_second_architecture_of_a_family_gives_its_whole_graph_alone(tmp_path):
    (tmp_path / "mine.py").write_text(FAMILY, encoding="utf-8")
    also = f"--also={tmp_path / 'mine.py'}"
    assert main(["dataset", "build", f"--out={tmp_path / 'set'}", also, "--sources=own", HELD_OUT]) == 0
    operators = {tuple(row.operators): row.kind for row in shards.read(tmp_path / "set")}
    assert {("gelu",), ("silu", "layer_norm")} <= set(operators)
    assert ("silu",) not in operators
    counts = json.loads((tmp_path / "set" / "summary.json").read_text(encoding="utf-8"))
    assert counts["architectures"] == 3
    assert counts["curve"][-1]["graphs"] == counts["graphs"] == len(operators)  # the third's only graph is refused


def test_a_build_begins_nothing_after_its_budget_and_goes_on_without(folder, tmp_path):
    assert main(build(tmp_path, "--budget=0.01s")) == 0
    assert len(list((tmp_path / "set" / "captures").iterdir())) == 1
    assert main(build(tmp_path)) == 0
    assert files(tmp_path) == files(folder)


@pytest.mark.parametrize("kind", ["whole", "single"])
def test_a_sample_has_the_kind_that_was_asked_for(folder, rows, capsys, kind):
    assert main(["dataset", "sample", str(folder / "set"), f"--kind={kind}", "-n", "1000"]) == 0
    sample = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["id"] for row in sample} == {row.id for row in rows if row.kind == kind}


def test_a_build_that_was_killed_goes_on_where_it_was(folder, tmp_path):
    command = [sys.executable, "-c", "import sys; from pytest_passbench.commands.main import main; sys.exit(main())"]
    environment = {**os.environ, "PASSBENCH_TEST_PAUSE": "0.5"}
    process = subprocess.Popen([*command, *build(tmp_path)], env=environment, stderr=subprocess.DEVNULL)
    work = tmp_path / "set" / "captures"
    deadline = time.monotonic() + 60
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def wait_for(condition: Callable[[], bool]) -> None:
        while not condition() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)

    wait_for(lambda: bool(list(work.glob("*.json"))))
    ended = children.read_text(encoding="ascii").split()
    wait_for(lambda: bool(set(children.read_text(encoding="ascii").split()) - set(ended)))
    jobs = children.read_text(encoding="ascii").split()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    files_left = len(list(work.glob("*.json")))
    while any(Path(f"/proc/{job}").exists() for job in jobs) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(list(work.glob("*.json"))) == files_left, "its processes went on"
    assert 1 <= len(list(work.glob("*.json"))) < 3
    assert main(build(tmp_path)) == 0
    assert files(tmp_path) == files(folder)


def test_a_checked_data_set_has_no_fault_and_a_forged_one_has(folder, tmp_path, capsys):
    assert main(["dataset", "check", str(folder / "set"), HELD_OUT]) == 0
    rows = list(shards.read(folder / "set"))
    rows[0].source += "\n"
    rows[1].split = "test"
    shards.write(rows, tmp_path)
    capsys.readouterr()
    assert main(["dataset", "check", str(tmp_path), HELD_OUT]) == 1
    told = capsys.readouterr().out
    assert f"row {rows[0].id}: its text has the hash" in told
    assert f"row {rows[1].id} is in test" in told


def test_rows_become_tasks_or_say_which_rule_refuses(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    assert main(["dataset", "to-tasks", str(folder / "set"), f"--out={tmp_path}", "-n=60"]) == 0
    told, progress_lines = capsys.readouterr()
    assert "dataset to-tasks: row 60 of 60\n" in progress_lines
    paths = list(tmp_path.rglob("*.task.yaml"))
    assert re.search(rf"^{len(paths)} tasks made of [0-9]+ rows; the rules refused [0-9]+$", told, re.MULTILINE)
    assert len(paths) > 3
    assert all(str(path) in told for path in paths)
    assert main(["tasks", "validate", *map(str, paths)]) == 0


def test_sample_and_show_print_rows(folder, capsys):
    assert main(["dataset", "sample", str(folder / "set"), "-n=2", "--op=gelu"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert "gelu" in first["operators"]
    assert first["id"] != second["id"]
    assert main(["dataset", "show", str(folder / "set"), first["id"]]) == 0
    assert first["source"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "nowhere"], "has no summary"),
        (["check", "nowhere"], "has no shards"),
        (["show", "{set}", "zz"], "0 rows of"),
        (["sample", "{set}", "--op=nothing"], "has no such rows"),
        (["build", "--out={set}", "--sources=nothing"], "nothing: no such library is installed here"),
        (["build", "--out={set}", "--also={set}/README.md"], "cannot be run: SyntaxError"),
    ],
)
def test_a_mistake_gets_one_line(folder, capsys, arguments, message):
    arguments = [argument.replace("{set}", str(folder / "set")) for argument in arguments]
    assert main(["dataset", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_the_card_names_splits_operators_and_licences_and_shows_the_curve(folder, rows):
    card = (Path(folder) / "set" / "README.md").read_text(encoding="utf-8")
    assert "path: data/train-*.parquet" in card
    assert "| own |  | MIT | 3 |" in card
    graphs = [row.operators for row in rows]
    most, count = Counter(name for names in graphs for name in set(names)).most_common(1)[0]
    assert f"| `{most}` | {count} | {count / len(graphs):.1%} |" in card
    picture = ElementTree.parse(folder / "set" / re.search(r"!\[.*\]\((.*)\)", card)[1])
    assert {"CPU hours", "unique graphs by their text", "unique graphs by the strict form"} <= {
        element.text for element in picture.iter()
    }


EXAMPLES = [block.text for block in blocks(ROOT / "docs/dataset.md") if block.kind == "python"]


def test_the_examples_of_the_page_read_a_data_set(folder, tmp_path):
    shutil.copytree(folder / "set", tmp_path / "graphs")
    readers = [text for text in EXAMPLES if "graphs" in text]
    assert len(readers) == 3
    for text in readers:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
        result = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment, text=True,
                                capture_output=True, check=False)  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert re.search(r"def forward|whole|own", result.stdout)


def test_the_pages_own_architecture_can_be_built(tmp_path):
    (text,) = [text for text in EXAMPLES if "LIBRARY" in text]
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    also = f"--also={tmp_path / 'mine.py'}"
    assert main(["dataset", "build", f"--out={tmp_path / 'graphs'}", also, "--sources=own", HELD_OUT]) == 0
    assert {row.family for row in shards.read(tmp_path / "graphs")} == {"own/mlp"}


def test_the_first_architecture_has_a_shared_text_even_if_it_is_captured_last(folder, tmp_path, monkeypatch):
    gelu_broken = MODELS.replace('"gelu": (Block, torch.nn.GELU())', '"gelu": (Broken,)')
    with monkeypatch.context() as at_first:
        at_first.setitem(globals(), "MODELS", gelu_broken)
        assert main(build(tmp_path)) == 0
    assert files(tmp_path) != files(folder)
    (tmp_path / "set" / "captures" / "own__gelu.failed").unlink()
    assert main(build(tmp_path)) == 0
    assert files(tmp_path) == files(folder)
