"""Every command of README.md and of the tutorial, run as it stands there; every option and link of all pages."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.options import OPTIONS
from pytest_passbench.plugin.options import FLAGS
from support.docs_pages import PAGES, ROOT, anchors, blocks, prose, unlike

README, TUTORIAL = ROOT / "README.md", ROOT / "docs/tutorial.md"
#: A task of small tensors: the README's commands judge it alone here, in place of the lite suite's twenty.
SMALL = "add-softplus-acba"
SMALL_FILE = f"tasks/state-space/{SMALL}.task.yaml"
BINARIES = Path(sys.executable).parent
#: Beginnings of lines in the README's output that a run prints for any task.
PARTS = ("candidate:", "suite:", "seed commitment:", "Board", "Tasks:", "task ", "Noise:", "results:", "seed:")
INSTALLING = ("python3 -m venv", ".venv/bin/pip ", "pip install")  # .ci/run does this

#: The actions of the commands that have actions.
ACTIONS = {
    "tasks": ("list", "show", "validate", "check"),
    "dataset": ("build", "stats", "check", "sample", "show", "to-tasks"),
}

site = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/site.py")))
Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a function that runs a script in a new folder with the candidates and the tasks of a checkout."""
    shutil.copytree(ROOT / "candidates", tmp_path / "candidates")
    (tmp_path / "tasks").symlink_to(ROOT / "tasks")

    def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{BINARIES}{os.pathsep}{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**inherited, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    return run


def commands(page: Path) -> list[str]:
    """Return a page's commands, without those that install, as they are in an activated environment."""
    lines = [line for block in blocks(page) if block.kind == "sh" for line in block.text.splitlines()]
    parts = [part for line in lines for part in line.split(" && ")]
    return [part.removeprefix(".venv/bin/") for part in parts if not part.startswith(INSTALLING)]


def test_readme_has_three_commands_and_one_of_them_is_what_ci_runs():
    judging, testing, elsewhere = commands(README)
    assert judging.startswith("pytest --passbench --candidate=candidates/cpu-fused ")
    run_by_ci = re.findall(r"^pytest .*?(?= \|\|)", (ROOT / ".ci/run").read_text(), re.M)
    assert run_by_ci == ["pytest -q -m browser tests/report", f'{testing} -m "not browser"']
    modules = (ROOT / "tests").rglob("test_*.py")
    marked = [path for path in modules if re.search("^pytestmark.*browser", path.read_text(), re.M)]
    assert {path.parent.name for path in marked} == {"report"}
    assert "--candidate=path/to/my/passes" in elsewhere


def test_readme_judges_the_shipped_candidate(shell):
    judging, *_ = commands(README)
    result = shell(judging, PYTEST_ADDOPTS=f"-k {SMALL}")
    (shown,) = (block.text for block in blocks(README) if block.kind == "text")
    assert result.returncode == 0, result.stdout
    kept = [line for line in shown.splitlines() if line.startswith(PARTS)]
    assert len(kept) >= len(PARTS)
    assert not unlike("\n".join(kept), result.stdout)


@pytest.mark.slow
def test_readme_judges_passes_of_another_repository_through_dynamo(shell, tmp_path):
    shutil.copytree(ROOT / "candidates/cpu-fused", tmp_path / "path/to/my/passes")
    result = shell(commands(README)[-1], PYTEST_ADDOPTS=f"-k {SMALL}")
    assert result.returncode == 0, result.stdout
    assert "pipeline: dynamo" in result.stdout
    assert "1 passed" in result.stdout


@pytest.mark.slow
def test_readme_evaluates_from_python(shell):
    (code,) = (block.text for block in blocks(README) if block.kind == "python")
    result = shell(f"python - <<'END_OF_CODE'\n{code}END_OF_CODE")
    assert result.returncode == 0, result.stdout
    assert re.search(r"Speed\(ratio=\d", result.stdout)


@pytest.mark.slow
def test_the_page_on_using_passes_runs_as_it_stands(shell):
    """If answers differed from eager's, the page's code would end with an error."""
    pytest.importorskip("diffusers")
    program = "".join(block.text for block in blocks(ROOT / "docs/using.md") if block.kind == "python")
    result = shell(f"python - <<'END_OF_CODE'\n{program}END_OF_CODE")
    assert result.returncode == 0, result.stdout
    assert len(re.findall(r"kernels replace [1-9]\d* of \d+ operators", result.stdout)) == 2
    assert len(re.findall(r"^\w+ \w+: (?:eager|TorchInductor|passes) \d+ us$", result.stdout, re.M)) == 6


@pytest.mark.slow
def test_the_page_on_models_runs_as_it_stands(shell):
    page = blocks(ROOT / "docs/agents.md")
    for program in (block.text for block in page if block.kind == "python"):
        result = shell(f"python - <<'END_OF_CODE'\n{program}END_OF_CODE")
        assert result.returncode == 0, result.stdout
        rewards = re.findall(r"^Reward: \S+ \((.+)\)\.|^reward (\S+)", result.stdout, re.M)
        assert rewards == ([("unreadable", ""), ("no match", ""), ("", "0.100")] if "model(" in program else [])
    evaluating, serving = (block.text for block in page if block.kind == "sh")
    pytest.importorskip("inspect_ai", reason="the extra `agents` is not installed")
    result = shell(evaluating)
    assert result.returncode == 0, result.stdout
    assert re.search(r"^turns +mean +mean +5\.000$", result.stdout, re.M), result.stdout
    assert re.search(r"^openai-api/local/ten .* 1 +5 +2 +4,600$", result.stdout, re.M), result.stdout
    result = shell(serving)
    assert result.returncode == 0, result.stdout
    assert re.search(r"5 of 5 subgraphs are correct.*\{\"reward\": [01]\.\d+\}", result.stdout, re.S), result.stdout


@pytest.mark.slow
def test_the_page_on_training_runs_as_it_stands(shell):
    pytest.importorskip("inspect_ai", reason="the extra `agents` is not installed")
    pytest.importorskip("trl", reason="the extra `train` is not installed")
    evaluating = next(block.text for block in blocks(ROOT / "docs/agents.md") if block.kind == "sh")
    (training,) = (block.text for block in blocks(ROOT / "docs/training.md") if block.kind == "sh")
    result = shell(f"set -e\n{evaluating}\n{training}", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stdout
    for name in ("trained", "preferring"):
        first, last = map(float, re.search(rf"^{name}: .* loss ([\d.]+) to ([\d.]+)$", result.stdout, re.M).groups())
        assert last < first / 2
    assert re.search(r"^rewarded: 1 steps on 1 tasks, reward [01]\.\d+", result.stdout, re.M), result.stdout


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(shell):
    """Its files are written and its commands run in one shell, one after the other, as a reader does."""
    script, shown = "", []
    for block in blocks(TUTORIAL):
        if block.path:
            script += f"mkdir -p $(dirname {block.path})\n"
            script += f"cat > {block.path} <<'END_OF_FILE'\n{block.text}END_OF_FILE\n"
        elif block.kind == "sh":
            script += f"{block.text}echo; echo '<<< end of step >>>'\n"
        else:
            assert block.kind == "text", block
            shown.append(block.text)
    *printed, _ = shell(script).stdout.split("<<< end of step >>>\n")
    assert len(printed) == len(shown) == 7
    for page, real in zip(shown, printed, strict=True):
        assert not unlike(page, real), real


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/README.md").read_text()
    lacking = [page.name for page in PAGES if page.parent == ROOT / "docs" and f"({page.name})" not in index]
    assert lacking == ["README.md"]


def test_every_page_has_a_place_in_the_navigation():
    """The site's navigation, which is made from the index, has every page, under a kind that it knows."""
    listed = repr(site.navigation())
    assert not [page.name for page in PAGES if page.parent == ROOT / "docs" and f"'{page.name}'" not in listed][1:]
    for source, name in site.PAGES.items():
        assert (ROOT / source).exists()
        assert not (ROOT / "docs" / name).exists()


def test_the_page_of_options_has_all_of_them():
    page = ROOT / "docs/options.md"
    assert page.read_text() == site.filled(page.read_text()), "run: python docs/site.py"
    options = [option.short or f"--passbench-{option.name}" for option in OPTIONS if not option.ini_only]
    settings = [option.dest for option in OPTIONS if option.ini_only]
    flags = ["--" + name.replace("_", "-") for name in FLAGS]
    named = re.findall(r"^\| `(--[a-z-]+)", page.read_text(), re.M)
    assert sorted(named) == sorted(options + flags)
    assert re.findall(r"^\| `(passbench_[a-z_]+) = ", page.read_text(), re.M) == settings


def test_links_hold_within_the_site():
    kept = "[c](scores.md) [f](https://g) [h](#i)\n```\n[j](../k)\n```\n"
    text = f"[a](../README.md#x) [b](../benchmarks/aa.py) {kept}"
    assert site.rewritten(text, ROOT / "docs") == f"[a](index.md#x) b {kept}"
    assert site.rewritten("[a](docs/b.md#c) [d](candidates/)", ROOT) == "[a](b.md#c) [d](candidates.md)"


def test_anchors_of_the_site_are_githubs():
    for page in PAGES:
        headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
        assert {site.anchor(heading, "-") for heading in headings} == anchors(page)


def test_options_and_commands_exist(shell):
    """An option beside its command is one of that command's options. An option alone is one of any command."""
    spans = [span for page in PAGES for span in re.findall(r"`([^`\n]+)`", prose(page))]
    spans += [line for page in PAGES for block in blocks(page) for line in block.text.splitlines()]
    of_passbench = [span for span in spans if span.startswith("passbench ") and "passbench: " not in span]
    names = {name for span in of_passbench if (name := span.split()[1]).islower()} - set(ACTIONS)
    actions = {f"{command} {action}" for command, named in ACTIONS.items() for action in named}
    options = {name: _options(_help(name.split())) for name in names | actions}
    for span in of_passbench:
        name = span.split()[1]
        action = f"{name} {[*span.split(), ''][2]}" if name in ACTIONS else name
        assert not (_options(span) - options.get(action, set())), span
    recipes = ((ROOT / f"pytest_passbench/recipes/{name}.py").read_text() for name in ("sft", "grpo"))
    options["recipes"] = {option for text in recipes for option in re.findall(r'add_argument\(\s*"(--[\w-]+)', text)}
    options["pytest"] = _options(shell("pytest --help").stdout)
    alone = set().union(*(_options(span) for span in spans if span.startswith(("--", "pytest "))))
    assert alone <= set().union(*options.values())


def _help(words: list[str]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    assert output.getvalue(), f"there is no command {words}"
    return output.getvalue()


def _options(text: str) -> set[str]:
    return set(re.findall(r"(?<![-\w])--[a-z]+(?:-[a-z]+)*", text))
