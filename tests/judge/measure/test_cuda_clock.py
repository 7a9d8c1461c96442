"""CUDA: one clear line if there is no device; the runner's side, tried on the CPU; and tests that need a device."""

from __future__ import annotations

import ctypes
import os

import pytest
import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import TensorSpec
from pytest_passbench.judge.arms import watch
from pytest_passbench.judge.audits import evidence
from pytest_passbench.judge.inputs.pages import Pages as JudgePages
from pytest_passbench.judge.inputs.pages import max_slots, plan_layout
from pytest_passbench.judge.machine.cores import Cores
from pytest_passbench.judge.machine.gpu import HeldOpen, device_state, throttled
from pytest_passbench.judge.measure.allowance import Allowance
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.measure.cuda_clock import CudaClock
from pytest_passbench.protocol import FLAG_DESCRIBE, FLAG_DEVICE_TIME, FLAG_POISON
from pytest_passbench.run.ledger import check_run
from pytest_passbench.runner.cuda import block as cuda_block
from pytest_passbench.runner.cuda.block import CudaBlock
from pytest_passbench.runner.pages import MappedPages
from support.paths import ROOT


def test_without_a_device_one_clear_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError) as caught:
        check_run(Settings(device="cuda:1"))
    message = str(caught.value)
    assert "--passbench-device=cuda:1" in message
    assert "0 CUDA devices" in message
    assert "\n" not in message.strip()


def test_the_device_is_described_only_where_nvidia_smi_is(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert device_state("cuda") == {}
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA X, 555.1, 1980, 0x0000000000000000, 40'\n")
    program.chmod(0o755)
    found = device_state("cuda:1")
    assert found["gpu"] == "NVIDIA X"
    assert found["gpu_state"]["clocks.sm"] == "1980"


def test_the_report_is_about_the_device_that_is_visible(monkeypatch, tmp_path):
    """Old drivers know the reasons for throttling by another name, and refuse the new one."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5f,")
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\necho "$@" >> "$0.asked"\ncase "$1" in *event_reasons*) echo no such field; exit 2;; esac\n'
        "case \"$1\" in *name*) echo 'X, 1, 2, 3, 0x4';; *) echo '0x00000000000000a4';; esac\n"
    )
    program.chmod(0o755)
    assert device_state("cuda:1")["gpu_state"]["clocks_event_reasons.active"] == "0x4"
    assert throttled("cuda:0") is True  # the reason is power, beside idle or a setting of the user
    asked = (tmp_path / "nvidia-smi.asked").read_text().splitlines()
    assert ["--id=GPU-5f" in line for line in asked] == [True, True, False, False]
    assert "--id=3" in asked[-1]
    assert Cores.choose(1).locks("cuda:1")[-1] == "device-GPU-5f"
    program.write_text("#!/bin/sh\necho 0x01\n")
    assert throttled("cuda") is False
    program.write_text("#!/bin/sh\nexit 9\n")
    assert throttled("cuda") is None
    assert device_state("cuda") == {}


def test_the_judge_holds_the_device_files_open(tmp_path):
    for name in ("nvidia0", "nvidiactl", "nvidia1"):
        (tmp_path / name).write_text("")
    opened = HeldOpen(tmp_path)
    assert len(opened._files) == 2
    opened.close()
    opened.close()


class Event:
    def __init__(self, enable_timing):
        pass

    def record(self, stream=None):
        LOG.append("record")

    def elapsed_time(self, other):
        return 2.0


LOG: list[str] = []


@pytest.fixture
def no_device(monkeypatch):
    """Put the CPU in the place of a device. There is nothing to wait for."""
    LOG.clear()
    monkeypatch.setattr(cuda_block, "_synchronize", lambda: LOG.append("wait"))
    monkeypatch.setattr(cuda_block, "_hold_back", lambda _cycles: LOG.append("hold back"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr("pytest_passbench.runner.cuda.block.l2_bytes", lambda device: 64)


def values(address: int, count: int) -> torch.Tensor:
    return torch.tensor((ctypes.c_float * count).from_address(address)[:])


def test_blocks_copy_inputs_before_and_outputs_after(no_device):
    specs = [TensorSpec(name, (3, 4), "float32") for name in ("in_0", "in_1")]
    layout = plan_layout(specs)
    owner = JudgePages(layout)
    block = CudaBlock("cpu", lambda x, y: (x.add_(y).t(), y.sum()), MappedPages(os.dup(owner.fd), layout), 2, (0,), 2)
    data = torch.arange(4 * layout.stride, dtype=torch.float32)[: layout.stride // 2]
    ctypes.memmove(owner.addresses[0][0], data.data_ptr(), 2 * layout.stride)
    assert values(block.inputs, 12).eq(0).all()  # no input is on the device before ``prepare``
    block.prepare(2)
    block.run(2)
    assert not any(block.tables.entries)  # no description within the clock: it would overlap with the device's work
    block.step(FLAG_DESCRIBE, 2)
    assert any(block.tables.entries)
    second = owner.addresses[0][1] - owner.addresses[0][0]
    x, y = (values(block.inputs + second + offset, 12) for offset in layout.offsets)
    assert torch.equal(x, data[second // 4 :][:12])  # the program changed only a copy
    block.collect(1)
    copies = (ctypes.c_uint64 * 3).from_address(block.places["copies"])
    assert torch.equal(values(copies[0], 12), x + y)
    assert torch.equal(values(copies[1], 1), y.sum()[None])
    assert torch.equal(values(block.places["input_copy"], 12), x)
    assert block.places["fill_rate"] > 0


def test_the_clock_has_waits_for_the_device_and_calls_in_it_only(no_device):
    specs = [TensorSpec("in_0", (3, 4), "float32")]
    layout = plan_layout(specs)
    owner = JudgePages(layout)

    def call(x):
        LOG.append("call")
        return (x.add_(1),)

    block = CudaBlock("cpu", call, MappedPages(os.dup(owner.fd), layout), 2, (0,), 1, lambda: LOG.append("poison"))
    LOG.clear()
    block.run(2)
    assert LOG == ["wait", "call", "call", "wait"]  # also for in-place graphs: copies are made before
    before = [copy.clone() for (copy,) in block.copies]
    assert all(copy.eq(1).all() for copy in before)
    block.prepare(2)
    assert all(copy.eq(0).all() for (copy,) in block.copies)
    LOG.clear()
    block.run_empty(2)
    assert LOG == ["wait", "wait"]
    LOG.clear()
    block.step(FLAG_DEVICE_TIME, 2)
    assert LOG == ["hold back", "record", "call", "call", "record", "wait"]
    assert ctypes.c_double.from_address(block.places["device_seconds"]).value == pytest.approx(2e-3)
    LOG.clear()
    assert block.step(FLAG_POISON, 0)
    assert not block.step(0, 1)
    assert LOG == ["poison"]


def test_only_the_device_s_rate_says_what_is_too_fast_for_it():
    """A hundred gigabytes a second is much for a core, and little for a device."""
    rate = 4e12
    assert evidence.bandwidth(1 << 30, 1e-2, rate) == []
    assert evidence.bandwidth(1 << 30, 1e-2, 1e9)
    assert evidence.bandwidth(1 << 30, 1e-5, rate)


def test_a_kernel_without_waiting_times_is_no_crash(monkeypatch):
    """gVisor's kernel has no file ``schedstat``, neither for the judge nor for a runner."""
    opened = os.open

    def without(path, *rest):
        if str(path).endswith("schedstat"):
            raise FileNotFoundError(2, "no such file", path)
        return opened(path, *rest)

    monkeypatch.setattr(watch.os, "open", without)
    assert watch.waited(watch.waiting_times("/proc/thread-self")) == 0.0
    seen = watch.Watch(os.getpid())
    assert seen.waited() == 0.0
    seen.close()


def test_blocks_on_a_device_are_longer():
    assert 2e-3 <= CudaClock.block_seconds <= 5e-3
    allowance, clocks = Allowance(pair=1.0), (CpuClock.block_seconds, 3e-3)
    usual, longer = (allowance.shape(2e-5, seconds, seconds, 1 << 16) for seconds in clocks)
    assert longer.calls == 6 * usual.calls
    assert longer.rounds == usual.rounds
    assert max_slots("cuda") > max_slots("cpu")
    assert plan_layout([TensorSpec("x", (4,), "float32")], max_slots("cuda")).slots == max_slots("cuda")


@pytest.mark.gpu
def test_the_shipped_triton_kernels_are_right_and_timed():
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.judge.session import Session
    from pytest_passbench.suite.taskfile import read_task

    paths = [path for path in sorted((ROOT / "tasks").rglob("*.task.yaml")) if "lite" in path.read_text()[:600]]
    candidate = Candidate.open(ROOT / "candidates" / "triton-fused")
    with Session(Settings(device="cuda"), b"a secret of the tests") as session:
        records = [record for path in paths for record in session.judge(read_task(path), candidate)]
    assert {record.arm.status for record in records} <= {"ran", "pass_miss"}
    timed = [record.arm.speed for record in records if record.correct]
    assert timed
    assert all(speed is not None and speed.other_device_us is not None for speed in timed)


#: Inputs that the driver shares are mapped read-only; if it cannot share them, a change of them is found.
FORBIDDEN = "integrity or runtime_fail or crash"


@pytest.mark.gpu
def test_wrong_results_and_faults_are_caught_on_the_device(bench, wrapper):
    bodies = {
        "honest": ("return torch.nn.functional.gelu(x) + y", "ran"),
        "zeros": ("return torch.zeros_like(x)", "ran"),
        "on-the-cpu": ("return (torch.nn.functional.gelu(x) + y).cpu()", "type_mismatch"),
        "raises": ("raise ValueError('no such luck')", "runtime_fail"),
        "changes-its-input": ("z = torch.nn.functional.gelu(x) + y\nx.zero_()\nreturn z", FORBIDDEN),
    }
    for name, (body, _status) in bodies.items():
        bench.task(name)
        bench.candidate({"p": wrapper(body)}, task=name)
    records = bench.judge(policy="open", device="cuda")
    for name, (_body, status) in bodies.items():
        found = records[f"{name}/float32-x1"].arm.status
        assert (name, found) == (name, status) or (status == FORBIDDEN and found in status.split(" or "))
    assert not records["zeros/float32-x1"].correct
    assert records["honest/float32-x1"].arm.correct_from == [-11]


SIDE_STREAM = """
stream = kernel.__dict__.setdefault("stream", torch.cuda.Stream())
with torch.cuda.stream(stream):
    z = torch.nn.functional.gelu(x)
    for _ in range(20):
        z = torch.nn.functional.gelu(x)
    return z + y
"""


@pytest.mark.gpu
def test_work_on_a_side_stream_is_in_the_time(bench, wrapper):
    """Twenty times the work, on a stream that the events do not see, is not faster by the judge's clock."""
    bench.task("side", shapes=((1024, 1024), (1024, 1024)))
    bench.candidate({"p": wrapper(SIDE_STREAM)}, task="side")
    arm = bench.judge(policy="open", device="cuda")["side/float32-x1"].arm
    assert arm.speed is None or arm.speed.ratio < 1
