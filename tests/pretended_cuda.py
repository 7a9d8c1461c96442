"""The CPU in a CUDA device's place, for whole judges: sandboxes, runners and clocks run as on a device.

The processes of arms get stand-ins for what they use of ``torch.cuda``, and tensors "on the device" are on the CPU.
Opening the device does what the driver does: it starts a thread, names it in /proc, and binds an abstract socket of
packets. So a wall that would refuse the driver refuses this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pytest_passbench.judge.arms.arm import Arm

#: Runs in a zygote before anything else. ``FAULT`` is a statement for each call of ``torch.cuda.synchronize``.
PRELUDE = """
import os, socket, threading, time
import torch
from torch.overrides import TorchFunctionMode

def here(value):
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value

class Pretended(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {name: here(value) for name, value in (kwargs or {}).items()}
        return func(*map(here, args), **kwargs)

class Event:
    def __init__(self, enable_timing=False):
        self.at = 0.0

    def record(self, stream=None):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3

class Properties:
    L2_cache_size = 1 << 20

opened = []

def set_device(index):
    ready = threading.Event()
    def helper():
        with open(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/comm", "w") as file:
            file.write("cuda-EvtHandlr")
        ready.set()
        time.sleep(1e6)
    if opened:
        return
    threading.Thread(target=helper, daemon=True).start()
    assert ready.wait(5), "the driver cannot name its thread"
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    made.bind(f"\\0cuda-uvmfd-{os.getpid()}")
    opened.append(made)
    Pretended().__enter__()

CALLS = [0]

def synchronize(device=None):
    CALLS[0] += 1
    name = open("/proc/self/cmdline").read().rstrip("\\0 ").rpartition("\\0")[2].strip()
    FAULT

torch.cuda.set_device = set_device
torch.cuda.synchronize = synchronize
torch.cuda.current_stream = lambda device=None: None
torch.cuda.Event = Event
torch.cuda.get_device_properties = lambda device: Properties
"""


@contextmanager
def pretended_cuda(fault: str = "pass") -> Iterator[None]:
    """Start all sandboxes of arms with the stand-ins, within this context.

    ``fault`` is a statement of Python that runs in each synchronisation. ``name`` is the arm's there, and
    ``CALLS[0]`` the number of calls of ``synchronize`` in the process.
    """
    command, count = Arm._command, torch.cuda.device_count
    source = PRELUDE.replace("FAULT", fault)

    def with_stand_ins(self: Arm, *arguments: Any) -> list[str]:
        line = command(self, *arguments)
        if not self.settings.on_device:
            return line
        place = line.index("-c") + 1
        line[place] = line[place].replace(
            "from pytest", f"exec(compile({source!r}, 'pretended', 'exec'), {{}}); from pytest", 1
        )
        return line

    Arm._command = with_stand_ins  # type: ignore[method-assign]
    torch.cuda.device_count = lambda: 2
    try:
        yield
    finally:
        Arm._command = command  # type: ignore[method-assign]
        torch.cuda.device_count = count
