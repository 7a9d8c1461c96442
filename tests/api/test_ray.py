"""A Ray cluster of two nodes on this machine: the results are a local run's, also if a node is lost."""

from __future__ import annotations

import json
import sys
import time
from types import ModuleType

import pytest

import pytest_passbench
from pytest_passbench.commands.main import main
from pytest_passbench.core.errors import UserError
from pytest_passbench.judge.arms import processes
from shared.workspace import Workspace, make_cpp_pass, make_wrapper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]
TASKS = 3


@pytest.fixture(scope="module")
def ray():
    return pytest.importorskip("ray")  # here, since importing it takes a second


@pytest.fixture(scope="module")
def cluster(ray):
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    found.other = found.add_node(num_cpus=2)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture
def bench(tmp_path) -> Workspace:
    made = Workspace(tmp_path)
    for number in range(TASKS):
        made.task(f"gelu-add-{number}", scales=(1 + number,))
    made.candidate({"p": "import time\ntime.sleep(1)\n" + make_cpp_pass()})
    made.candidate({"p": make_wrapper("return torch.add(x, y)")}, "cheats")
    return made


def told(run):
    return [(record.task, record.subgraph, record.arm.status, record.correct) for record in run.records]


def test_a_cluster_judges_as_one_machine_does_and_outlives_a_node(cluster, bench, tmp_path, capsys):
    candidates, tasks = [bench.folder / "cand", bench.folder / "cheats"], bench.tasks
    with pytest_passbench.Evaluator(tasks, pipeline="direct") as local:
        alone = local.evaluate_many(candidates)
    command = ["run", *map(str, candidates), "--tasks", str(tasks), "--pipeline=direct", f"--ray={cluster.address}"]
    assert main([*command, f"--report-dir={tmp_path / 'reports'}"]) == 1  # cheats fails
    assert "results:" in capsys.readouterr().out
    (path,) = (tmp_path / "reports").glob("*/results.json")
    written = [(r["task"], r["subgraph"], r["arm"]["status"]) for r in json.loads(path.read_text())["records"]]
    assert written == [item[:3] for run in alone for item in told(run)]
    assert not list(path.parent.glob("journal*"))
    with pytest_passbench.Evaluator(tasks, pipeline="direct", backend="ray", address=cluster.address) as many:
        raylet = cluster.other.all_processes["raylet"][0].process.pid
        doomed: set[int] = set()

        def kill(_record):
            if not doomed:
                doomed.update(processes.descendants(raylet))
                cluster.remove_node(cluster.other, allow_graceful=False)

        runs = many.evaluate_many(candidates, on_record=kill)
        assert [told(run) for run in runs] == [told(run) for run in alone]
        assert "ray: a judge on " in capsys.readouterr().err
        assert str(bench.folder / "cheats") not in runs[1].feedback()
        assert runs[1].reward() == 0.0
    assert len(doomed) > 3
    deadline = time.monotonic() + 20
    while any(map(processes.alive, doomed)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(processes.alive, doomed))


def test_a_cluster_without_room_for_a_judge_is_no_silence(cluster, bench, monkeypatch, capsys):
    monkeypatch.setattr("pytest_passbench.api.cluster.NODES_TIMEOUT_SECONDS", 1.0)
    many = pytest_passbench.Evaluator(bench.tasks, threads=7, backend="ray", address=cluster.address)
    with many, pytest.raises(UserError, match=r"no machine .* room for a judge, which takes 8 CPU .*has 2 CPU"):
        many.evaluate(bench.folder / "cand")
    assert "waits 1 s for one" in capsys.readouterr().err


def test_judges_that_never_start_end_the_call(cluster, bench, monkeypatch):
    absent = ModuleType("absent")  # no machine of the cluster has this module

    class Remote:
        def __init__(self, *given):
            pass

        def start(self, harness):
            pass

    Remote.__module__, Remote.__qualname__ = "absent", "Remote"
    absent.Remote = Remote
    monkeypatch.setitem(sys.modules, "absent", absent)
    monkeypatch.setattr("pytest_passbench.api.cluster.Remote", Remote)
    said = r"ray, .*: no judge starts on a machine: .*pip install .* on each machine"
    many = pytest_passbench.Evaluator(bench.tasks, backend="ray", address=cluster.address)
    with many, pytest.raises(UserError, match=said):
        many.evaluate(bench.folder / "cand")


def test_a_cluster_that_is_not_there_is_named(ray, monkeypatch):
    ray.shutdown()
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(UserError, match=f"ray, {address}: no Ray cluster answers: .*refused .start one with"):
            pytest_passbench.Evaluator(backend="ray", address=address)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UserError, match=r"no Ray cluster answers: .*refused"):
        pytest_passbench.Evaluator(backend="ray")
