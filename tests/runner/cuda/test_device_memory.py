"""Memory of a device that one process writes to and others may only read, with a library in libcuda's place."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal

import pytest
import torch

from pytest_passbench.runner.cuda.device_memory import DeviceMemory
from pytest_passbench.runner.cuda.libcuda import DriverError
from shared.pretended_cuda import compiled_stub

SIZE = 100_000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return ctypes.CDLL(str(compiled_stub(tmp_path_factory.mktemp("stub"))))


def in_child(attempt) -> int:
    """Return minus the signal that ends a process that tries, or 7 if no signal ends it."""
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        try:
            attempt()
        finally:
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_another_process_reads_what_was_written_and_cannot_write(library: ctypes.CDLL):
    ours = DeviceMemory(library, 1, SIZE)
    assert ours.size == 131072  # whole pages of the device
    theirs = DeviceMemory(library, 1, SIZE, ours.export())
    data = torch.arange(SIZE, dtype=torch.int64).to(torch.uint8)
    ours.write(data.data_ptr(), SIZE)
    seen = theirs.tensor(torch.device("cpu"))
    assert torch.equal(seen[:SIZE], data)
    assert theirs.address != ours.address
    assert in_child(lambda: seen.zero_()) == -signal.SIGSEGV
    assert in_child(lambda: ours.tensor(torch.device("cpu")).zero_()) == 7
    assert seen.eq(0).all()
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    ours.close()
    theirs.close()
    assert len(os.listdir("/proc/self/fd")) == files - 2  # noqa: PTH208


def test_what_the_driver_refuses_is_said(library: ctypes.CDLL):
    fails = ctypes.c_int.in_dll(library, "stub_fails")
    fails.value = 1
    try:
        with pytest.raises(DriverError, match="cannot make 131072 bytes of memory that can be shared"):
            DeviceMemory(library, 0, SIZE)
    finally:
        fails.value = 0
    with pytest.raises(DriverError, match="cannot map memory"):
        DeviceMemory(library, 0, SIZE, os.open(os.devnull, os.O_RDONLY))


def test_torch_is_told_of_memory_by_its_address():
    from pytest_passbench.runner.cuda.device_memory import _Described

    told = _Described(0x7F0000, 64).__cuda_array_interface__
    assert (told["data"], told["shape"], told["typestr"]) == ((0x7F0000, False), (64,), "|u1")
