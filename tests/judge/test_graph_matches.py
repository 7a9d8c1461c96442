"""What passes match: one process finds it for all graphs, and it is stored by content from run to run."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge import graph_matches
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.session import Session
from pytest_passbench.suite import find

SILU = "def forward(in_0, in_1):\n    return (torch.nn.functional.silu(in_0) + in_1,)\n"
REGION = """
import os
import torch
from pytest_passbench.fusion import regions

def supported(node):
    if "silu" in str(node.target):
        {on_silu}
    return "gelu" in str(node.target)

def replacement_func():
    return regions.launch
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_matches, "cache_folder", lambda: tmp_path / "cache")


@pytest.fixture
def two_tasks(bench, cache, gelu_add_pass):
    bench.task("a-gelu")
    bench.task("b-silu", source=SILU, ops=("silu", "add"))
    bench.candidate({"p": gelu_add_pass})
    return bench


def session():
    return Session(Settings(pipeline="direct"), b"a secret of the tests")


def told(bench):
    """Return, by task, the pass that matches, and why no pass does."""
    candidate = Candidate.open(bench.folder / "cand")
    with session() as judge:
        refs = find.discover(bench.tasks)
        return {ref.id: [(match.name, match.miss) for match in judge.matches(ref, candidate)] for ref in refs}


def no_process(*_):
    raise AssertionError("a graph was matched anew")


@pytest.mark.slow
def test_results_are_kept_by_the_contents_of_task_and_candidate(two_tasks, monkeypatch):
    first = told(two_tasks)
    assert first == {
        "a-gelu": [("p", "")],
        "b-silu": [("", "p: nearest: add (add): argument input: expected gelu, found silu (silu)")],
    }
    with monkeypatch.context() as without:
        without.setattr(graph_matches.Matcher, "__init__", no_process)
        assert told(two_tasks) == first
        file = two_tasks.folder / "cand" / "p.py"
        text = file.read_text()
        file.write_text(text.replace("gelu(x) + y", "silu(x) + y"))
        with pytest.raises(AssertionError, match="anew"):
            told(two_tasks)
        file.write_text(text)
        two_tasks.task("a-gelu", source=SILU)
        with pytest.raises(AssertionError, match="anew"):
            told(two_tasks)
    assert [matches for (matches,) in told(two_tasks).values()] == [first["b-silu"][0]] * 2


@pytest.mark.slow
def test_a_file_of_the_cache_that_is_not_ours_is_left_out(two_tasks, tmp_path):
    first = told(two_tasks)
    (file,) = (tmp_path / "cache").glob("matches-*")
    file.write_bytes(file.read_bytes()[:-5])
    assert told(two_tasks) == first


@pytest.fixture
def three_graphs(bench):
    path = bench.task("half", dtypes=("float32", "float16", "bfloat16"))
    graphs = "".join(f"  g{i}: |\n    def forward(in_0, in_1):\n        return (in_0 * {i}.5,)\n" for i in (1, 2))
    head, mark, subgraphs = path.read_text().rpartition("subgraphs:\n")
    for number, dtype in ((1, "float16"), (2, "bfloat16")):
        subgraphs = subgraphs.replace(f" {dtype}-x1\n  graph: g0", f" {dtype}-x1\n  graph: g{number}")
    path.write_text(head + graphs + mark + subgraphs)
    return find.single(path)


def test_the_processes_are_complete_again_after_one_could_not_be_forked(
    bench, cache, gelu_add_pass, three_graphs, monkeypatch
):
    forked = []

    class Process:
        busy = lost = False

        def __init__(self, *_arguments):
            forked.append(self)
            if len(forked) == 2:
                raise OSError(errno.EMFILE, "too many open files")

        def begin(self, *_asked):
            """Do nothing."""

        def end(self):
            return "p", ""

        def close(self):
            forked.remove(self)

    monkeypatch.setattr(graph_matches, "Matcher", Process)
    planner = SimpleNamespace(regions=list)
    readers = SimpleNamespace(passes=lambda *_: (), planner=lambda *_: planner, forget=lambda: None)
    matching = graph_matches.Matching("kernels", "cpu", readers, lambda: None)
    candidate = Candidate.open(bench.candidate({"p": gelu_add_pass}))
    with pytest.raises(OSError, match="too many open files"):
        list(matching.of(three_graphs, candidate))
    forked += [None, None]
    assert [match.name for match in matching.of(three_graphs, candidate)] == ["p", "p", "p"]


@pytest.mark.slow
def test_the_first_match_is_enough_to_tell_that_a_task_is_touched(
    bench, cache, gelu_add_pass, three_graphs, monkeypatch
):
    candidate, ref = Candidate.open(bench.candidate({"p": gelu_add_pass})), three_graphs
    with session() as judge:
        assert judge.touches(ref, candidate)
    with monkeypatch.context() as without:
        without.setattr(graph_matches.Matcher, "__init__", no_process)
        with session() as judge:
            assert judge.touches(ref, candidate)
            with pytest.raises(AssertionError, match="anew"):
                list(judge.matches(ref, candidate))
    with session() as judge:
        assert [match.name for match in judge.matches(ref, candidate)] == ["p", "", ""]
    monkeypatch.setattr(graph_matches.Matcher, "__init__", no_process)
    with session() as judge:
        assert [(match.graph, match.subgraphs) for match in judge.matches(ref, candidate)] == [
            ("g0", 1), ("g1", 1), ("g2", 1),
        ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on_silu", "message"),
    [("raise ValueError('not today')", "ValueError: not today"), ("os._exit(3)", "the process that reads the")],
)
def test_after_a_region_pass_that_fails_other_tasks_are_told(bench, cache, on_silu, message):
    bench.task("a-silu", source=SILU, ops=("silu", "add"))
    bench.task("b-gelu")
    candidate = Candidate.open(bench.candidate({"p": REGION.format(on_silu=on_silu)}))
    silu, gelu = find.discover(bench.tasks)
    with session() as judge:
        for _ in range(2):
            with pytest.raises(ArmFailure, match=message):
                list(judge.matches(silu, candidate))
            assert judge.touches(silu, candidate)  # a failure does not show that no pass matches
            assert [match.name for match in judge.matches(gelu, candidate)] == ["p"]
        for record in judge.judge(gelu.load(), candidate):
            assert record.correct, record.arm.message


@pytest.mark.slow
def test_a_task_whose_graph_cannot_be_built_is_the_users_fault(bench, cache, gelu_add_pass):
    ref = find.single(bench.task("broken", source="def forward(in_0, in_1):\n    return (torch.nothing(in_0),)\n"))
    candidate = Candidate.open(bench.candidate({"p": gelu_add_pass}))
    with session() as judge, pytest.raises(UserError, match=r"broken.task.yaml:\d+.*torch.nothing"):
        list(judge.matches(ref, candidate))
