"""A whole judge with the CPU in a device's place: walls, processes, steps and clocks are those of CUDA."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_passbench.judge.arms import cuda, sandbox
from pytest_passbench.judge.arms.cuda import CudaRunner, Keeper
from pytest_passbench.judge.machine import cores
from shared.pretended_cuda import compiled_stub, pretended_cuda
from shared.workspace import AS_EAGER, Workspace, make_wrapper


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sandbox.shutil, "which", lambda _name: None)
    sandbox.walls.cache_clear()
    yield
    sandbox.walls.cache_clear()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_stub(tmp_path_factory.mktemp("stub"))


def judged(
    folder: Any, fault: str = "pass", body: str = AS_EAGER, library: Path | None = None, **settings: Any
) -> Any:
    bench = Workspace(folder)
    bench.task(shapes=((64, 256), (64, 256)))
    bench.candidate({"p": make_wrapper(body)})
    asked = {"policy": "open", "device": "cuda:1", "audit": "standard", "budget": 1.0, **settings}
    with pretended_cuda(fault, library):
        return bench.judge(**asked)["gelu-add/float32-x1"]


@pytest.mark.slow
def test_behind_weak_walls_a_device_is_opened_measured_and_audited(weak, tmp_path, monkeypatch, library):
    """All arms read inputs that were copied to the device once for a round.

    The driver's threads never run on the core of a timed program, and that program never on the judge's cores.
    """
    placed: list[tuple[int, frozenset[int]]] = []
    runners: list[CudaRunner] = []
    held: list[list[str]] = []
    poisoned: list[int] = []
    place, settle, exclusive, poison = cuda.place, CudaRunner.settle_threads, cores.exclusive, CudaRunner.poison

    def noted(thread: int, where: frozenset[int]) -> None:
        placed.append((thread, where))
        place(thread, where)

    def settled(self: CudaRunner, core: frozenset[int]) -> None:
        runners.append(self)
        settle(self, core)

    @contextlib.contextmanager
    def locked(names: list[str]) -> Any:
        held.append(names)
        with exclusive(names):
            yield

    def noted_poison(self: CudaRunner) -> None:
        poisoned.append(self.pid)
        poison(self)

    monkeypatch.setattr(cuda, "place", noted)
    monkeypatch.setattr("pytest_passbench.judge.bench.exclusive", locked)
    monkeypatch.setattr(CudaRunner, "settle_threads", settled)
    monkeypatch.setattr(CudaRunner, "poison", noted_poison)
    there = Keeper._there_for
    copied: list[bool] = []
    monkeypatch.setattr(Keeper, "_there_for", lambda self, calls: copied.append(there(self, calls)) or copied[-1])
    record = judged(tmp_path, library=library)
    arm = record.arm
    assert 0.3 < sum(copied) / len(copied) < 0.7  # the second of two arms finds its inputs there
    assert (arm.status, arm.correct_from, record.findings) == ("ran", [-11], []), arm
    assert arm.speed is not None
    assert arm.speed.eager_device_us is not None
    assert arm.speed.other_device_us > 0
    firsts = {runner.pid for runner in runners}
    assert firsts == {runner.pid for runner in runners if runner.first_only}
    helpers = [where for thread, where in placed if thread not in firsts]
    assert helpers  # opening the device starts a thread
    timed = [where for thread, where in placed if thread in firsts]
    everywhere = frozenset(os.sched_getaffinity(0))  # where a process waits for the next subgraph
    if len(everywhere) > 1:
        assert all(where.isdisjoint(timed[0]) for where in helpers if where != everywhere)
    assert held[0] == ["device-1"]  # around the build
    assert "device-1" in held[1]
    assert len(held[1]) > 1
    assert len(poisoned) == 1  # the candidate's, in the audit


def test_a_live_runner_is_not_moved_by_the_forks_of_the_next_pair(monkeypatch):
    moved: list[int] = []
    monkeypatch.setattr(
        "pytest_passbench.judge.arms.template.os.sched_setaffinity", lambda pid, _c: moved.append(pid)
    )
    monkeypatch.setattr("pytest_passbench.judge.arms.template.os.sched_getaffinity", lambda _pid: {0, 1})
    nobody: Any = None
    template = cuda.CudaTemplate(nobody, nobody, nobody, 0)
    template.pid = 123
    template.pin(0)
    template.runner = object.__new__(CudaRunner)
    template.pin(1)
    assert moved == [123]
    assert template.cores == {0}


@pytest.mark.slow
def test_eager_keeps_its_process_over_subgraphs_and_a_candidate_does_not(tmp_path, library, monkeypatch):
    """A subgraph leaves no descriptor in eager's process, and the next subgraph is judged right."""
    seen: list[tuple[str, int, int]] = []
    settle = CudaRunner.settle_threads

    def settled(self: CudaRunner, core: frozenset[int]) -> None:
        settle(self, core)
        settings, files = self.template.arm.settings, os.listdir(f"/proc/{self.pid}/fd")  # noqa: PTH208
        seen.append((settings.name, self.pid, len(files)))

    monkeypatch.setattr(CudaRunner, "settle_threads", settled)
    bench = Workspace(tmp_path)
    bench.task(shapes=((64, 256), (64, 256)), scales=(1, 2, 3))
    bench.candidate({"p": make_wrapper(AS_EAGER)})
    with pretended_cuda(library=library):
        found = bench.judge(policy="open", device="cuda", audit="standard", budget=2.0)
    assert {record.arm.status for record in found.values()} == {"ran"}
    assert all(record.correct and record.arm.error64 for record in found.values())
    eager = {pid for name, pid, _files in seen if name == "eager"}
    candidate = {pid for name, pid, _files in seen if name == "candidate"}
    assert len(candidate) == 3
    assert len(eager) == 2  # eager and eager in float64
    for pid in eager:
        files = [count for _name, other, count in seen if other == pid]
        assert len(files) >= 3
        assert len(set(files)) == 1


#: By task: which call of ``synchronize`` fails in the candidate's process, how, the status, and the phase.
LATE = {
    "a": (1, "RuntimeError('CUDA driver refused')", "crash", "device"),
    "b": (2, "RuntimeError('an illegal memory access')", "runtime_fail", "first call"),
    "c": (3, "RuntimeError('an illegal memory access')", "runtime_fail", "warm-up"),
    "d": (3, "torch.OutOfMemoryError('CUDA out of memory')", "crash", "warm-up"),
    "e": (4, "RuntimeError('an illegal memory access')", "runtime_fail", "fork"),
    "f": (30, "RuntimeError('an illegal memory access')", "runtime_fail", "run"),
}


@pytest.mark.slow
def test_what_fails_on_the_device_is_told(tmp_path):
    """One judge serves all tasks, since its sandboxes take longer to start than the tasks to judge."""
    bench = Workspace(tmp_path)
    for name in LATE:
        bench.task(name, shapes=((64, 256), (64, 256)))
    bench.candidate({"p": make_wrapper(AS_EAGER)})
    cases = ", ".join(f"({at}, {error})" for at, error, *_ in LATE.values())
    failing = f"at, error = [{cases}][OPENED[0] - 1]\n    if CALLS[0] == at: raise error"
    fault = f"if name != 'candidate': return\n    {failing}"
    with pretended_cuda(fault):
        found = bench.judge(policy="open", device="cuda:1", budget=6.0)
    for name, (_at, error, status, phase) in LATE.items():
        arm = found[f"{name}/float32-x1"].arm
        assert (arm.status, arm.phase) == (status, phase), arm
        assert error.split("'")[1] in arm.message


@pytest.mark.slow
def test_in_place_graphs_and_wrong_answers_are_seen_as_on_the_cpu(tmp_path):
    bench = Workspace(tmp_path)
    source = "def forward(in_0, in_1):\n    in_0 += 1\n"
    source += "    tmp_1 = torch.nn.functional.gelu(in_0) + in_1\n    return (tmp_1,)"
    bench.task("changes", source=source, shapes=((64, 256), (64, 256)))
    bench.task("zeros", shapes=((64, 256), (64, 256)))
    bench.candidate({"p": make_wrapper(AS_EAGER)}, task="changes")
    bench.candidate({"p": make_wrapper("return x * 0")}, task="zeros")
    with pretended_cuda():
        found = bench.judge(policy="open", device="cuda", budget=1.0)
    assert found["changes/float32-x1"].correct, found["changes/float32-x1"].arm
    assert found["changes/float32-x1"].arm.speed is not None
    assert found["zeros/float32-x1"].arm.status == "ran"
    assert not found["zeros/float32-x1"].correct


@pytest.mark.slow
def test_a_zygote_that_has_opened_a_device_serves_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "shared.pretended_cuda.PRELUDE",
        "from pytest_passbench.runner import zygote\nzygote.opened_devices = lambda: ['/dev/nvidiactl']\n",
    )
    record = judged(tmp_path)
    assert record.arm.status == "harness_fail"
    assert "/dev/nvidiactl was opened by an import" in record.arm.message
    assert torch.cuda.device_count() == 0
