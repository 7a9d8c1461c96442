"""Runs over several workers: the same outcome as a serial run, also if a worker is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from types import SimpleNamespace

import pytest

from pytest_passbench.plugin import xdist
from support.plugin_runs import OK, PytestFolder


@pytest.fixture
def bench(pytester, monkeypatch):
    return PytestFolder(pytester, monkeypatch)


def results(bench: PytestFolder) -> dict:
    path = max(bench.path.glob("reports/*/results.json"))
    return json.loads(path.read_text())


def test_two_workers_give_what_a_serial_run_gives(bench):
    bench.task("a", OK, {"status": "crash"})
    bench.task("b", OK, OK, OK)
    bench.task("c", {"correct_from": [-3]})
    serial = bench.run_apart("--candidate=passes")
    kept = results(bench)["records"]
    spread = bench.run_apart("--candidate=passes", "-n2", "--benchmark-json=out.json")
    assert results(bench)["records"] == kept
    assert spread.ret == serial.ret == 1
    spread.stdout.fnmatch_lines(["a[[]passes] F 1/2 correct*"])
    spread.stdout.fnmatch_lines(["FAILED tasks/family/a.task.yaml::a[[]passes] - crash (1 of 2)"])
    # two for each subgraph that has a speed: eager and the candidate
    assert len(json.loads((bench.path / "out.json").read_text())["benchmarks"]) == 10


@pytest.mark.slow
def test_workers_share_the_seed_and_the_gates_of_the_run(bench):
    bench.task("a")
    bench.task("b")
    bench.conftest(
        """
        class Telling(Judge):
            def judge(self, task, candidate):
                for found in super().judge(task, candidate):
                    found.arm.worst = self.seed.hex()
                    yield found

        @pytest.hookimpl(tryfirst=True)
        def pytest_passbench_make_session(config, settings, seed):
            return Telling(settings, seed)
        """
    )
    result = bench.run_apart("--candidate=passes", "-n2", "--passbench-fail-under=AS=9")
    result.stdout.fnmatch_lines(["gate failed: AS of passes is 1.5, under 9", "*2 passed*"])
    assert result.ret == 1
    run = results(bench)
    assert {record["arm"]["worst"] for record in run["records"]} == {run["seed"]["revealed"]}


@pytest.mark.slow
def test_a_killed_worker_loses_the_subgraph_that_it_judged_only(bench):
    bench.task("a")
    bench.task("b", OK, {"die": True}, OK, OK)
    bench.task("c")
    result = bench.run_apart("--candidate=passes", "-n2", "--passbench-fail-under=correct=0.9,gmean=1.1")
    said = ["gate failed: correct of passes is 0.5, under 0.9", "gate failed: gmean of passes leaves out 3 *"]
    lost = "not judged: b [[]passes] (3 of 4 subgraphs)"
    result.stdout.fnmatch_lines([lost, *said, "*1 failed, 2 passed*"])
    run = results(bench)
    assert run["selected"] == {"passes": {"a": 1, "b": 4, "c": 1}}
    assert run["tasks"] == ["a", "b", "c"]
    assert subgraphs(run) == ["a/s0", "b/s0", "c/s0"]


@pytest.mark.slow
def test_ctrl_c_writes_what_there_is(bench):
    bench.task("a", OK, OK, OK)
    bench.task("b", {"sleep": 60})
    bench.conftest(
        """
        def pytest_passbench_record(config, record):
            (config.rootpath / "seen").touch()
        """
    )
    process = bench.start_apart("--candidate=passes", "-n2")
    deadline = time.monotonic() + 40
    while not (bench.path / "seen").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    result = process.result()
    result.stdout.fnmatch_lines(["*The run was interrupted*"])
    assert result.ret == pytest.ExitCode.INTERRUPTED
    run = results(bench)
    assert run["interrupted"]
    assert {record["task"] for record in run["records"]} == {"a"}
    assert run["tasks"] == ["a", "b"]


def subgraphs(run: dict) -> list[str]:
    return [f"{record['task']}/{record['subgraph']}" for record in run["records"]]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_to_the_controller_stops_its_workers_and_keeps_all_that_they_have_judged(bench, number):
    seconds = 1.0  # for each subgraph: without the signal workers would judge seven more
    bench.task("a", *[{"sleep": seconds}] * 12)
    process = bench.start_apart("--candidate=passes", "-n1")
    while journaled(bench) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    result = process.result()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    run = results(bench)
    assert run["interrupted"]
    assert 2 <= len(run["records"]) == journaled(bench) < 9
    result.stdout.fnmatch_lines(["*not judged: a [[]passes]*"])


def journaled(bench: PytestFolder) -> int:
    """Return the number of records in the run's journals."""
    paths = bench.path.glob("reports/*/journal*.jsonl")
    return sum(max(0, path.read_bytes().count(b"\n") - 1) for path in paths)


class Node:
    """A worker as the scheduler sees it."""

    def __init__(self, name: str) -> None:
        self.gateway, self.sent, self.shutting_down = SimpleNamespace(id=name), [], False

    def send_runtest_some(self, indices):
        self.sent += indices

    def shutdown(self):
        self.shutting_down = True


def scheduler(pytestconfig, costs, nodes, together=False):
    config = SimpleNamespace(getvalue=lambda name: ["popen"] * len(nodes), getoption=lambda name: None)
    made = xdist.LongestFirst(config, None, costs, together)
    for node in nodes:
        made.add_node(node)
        made.add_node_collection(node, list(costs))
    made.schedule()
    return made


def test_the_longest_are_handed_out_first_and_one_at_a_time(pytestconfig):
    nodes = [Node("gw0"), Node("gw1")]
    made = scheduler(pytestconfig, {"s": 1, "xl": 9, "m": 3, "l": 5, "xs": 0}, nodes)
    assert [node.sent for node in nodes] == [[1, 2], [3, 0]]
    made.mark_test_complete(nodes[1], 3)
    assert nodes[1].sent == [3, 0, 4]
    assert nodes[0].shutting_down is False
    assert nodes[1].shutting_down is True


def test_what_a_crashed_worker_had_not_begun_goes_to_its_replacement(pytestconfig):
    nodes = [Node("gw0"), Node("gw1")]
    costs = {"a": 4, "b": 3, "c": 2, "d": 1}
    made = scheduler(pytestconfig, costs, nodes)
    assert made.remove_node(nodes[0]) == "a"
    made.mark_test_complete(nodes[1], 1)  # it ends after the item it has
    fresh = Node("gw2")
    made.add_node(fresh)
    made.add_node_collection(fresh, list(costs))
    made.schedule()
    assert (nodes[1].sent, fresh.sent) == ([1, 3], [2])


def test_with_a_baseline_a_worker_gets_all_candidates_of_a_task_while_there_are_other_tasks(pytestconfig):
    nodes = [Node("gw0"), Node("gw1")]
    costs = {"a::a[x]": 2, "a::a[y]": 2, "a::a[z]": 2, "b::b[x]": 1, "b::b[y]": 1, "b::b[z]": 1}
    made = scheduler(pytestconfig, costs, nodes, together=True)
    assert [node.sent for node in nodes] == [[0, 1], [3, 4]]
    made.mark_test_complete(nodes[1], 3)
    made.mark_test_complete(nodes[1], 4)  # it has one item left, and takes over one from the other worker
    assert nodes[1].sent == [3, 4, 5, 2]


def test_few_tasks_and_more_workers_all_end(pytestconfig):
    nodes = [Node("gw0"), Node("gw1"), Node("gw2")]
    scheduler(pytestconfig, {"a": 1}, nodes)
    assert [node.sent for node in nodes] == [[0], [], []]
    assert all(node.shutting_down for node in nodes)


def test_devices_go_round_and_the_callers_mask_is_kept(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    specs = [SimpleNamespace(env={}) for _ in range(3)]
    xdist.assign_devices(specs, "cuda")
    assert [spec.env["CUDA_VISIBLE_DEVICES"] for spec in specs] == ["3", "5", "3"]
    assert xdist.workers("cuda", 1) == 2
    pinned = [SimpleNamespace(env={})]
    xdist.assign_devices(pinned, "cuda:1")
    xdist.assign_devices(pinned, "cpu")
    assert pinned[0].env == {}


def test_auto_counts_cores_by_judges_and_their_threads(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert [xdist.workers("cpu", threads) for threads in (1, 3, 16)] == [4, 2, 1]
