"""The CPU in a CUDA device's place, for whole judges: sandboxes, runners and clocks run as on a device.

The processes of arms get stand-ins for what they use of ``torch.cuda``, and tensors "on the device" are on the CPU.
Opening the device does what the driver does: it starts a thread, names it in /proc, and binds an abstract socket of
packets. So a wall that would refuse the driver refuses this one.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pytest_passbench.judge.arms.arm import Arm

#: Runs in a zygote before anything else. ``FAULT`` is a statement for each call of ``torch.cuda.synchronize``.
PRELUDE = """
import mmap, os, socket, threading, time
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
OPENED = mmap.mmap(-1, mmap.PAGESIZE)  # shared with all processes that are forked from here

def set_device(index):
    ready = threading.Event()
    def helper():
        with open(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/comm", "w") as file:
            file.write("cuda-EvtHandlr")
        ready.set()
        time.sleep(1e6)
    if opened:
        return
    OPENED[0] += 1
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
if hasattr(torch._C, "_cuda_synchronize"):  # a torch that is built with CUDA
    torch._C._cuda_synchronize = synchronize
    torch._C._cuda_sleep = lambda cycles: None
torch.cuda.current_stream = lambda device=None: None
torch.cuda.Event = Event
torch.cuda.get_device_properties = lambda device: Properties

class Stream:
    def wait_stream(self, other):
        pass

    synchronize = __enter__ = lambda self: None
    __exit__ = lambda self, *error: None

class Graph:
    replay = __enter__ = lambda self: None
    __exit__ = lambda self, *error: None

torch.cuda.Stream, torch.cuda.CUDAGraph = Stream, Graph
torch.cuda.stream = torch.cuda.graph = lambda entered: entered
"""


#: Puts a library in libcuda's place. The text has the library's bytes, since sandboxes cannot see its file.
LIBRARY = """
import base64, ctypes, functools
from pytest_passbench.runner.cuda import libcuda

@functools.cache
def library(data=base64.b64decode({data!r})):
    file = os.memfd_create("libcuda")
    os.write(file, data)
    return ctypes.CDLL(f"/proc/self/fd/{{file}}")

libcuda.library = library
"""


def compiled_stub(folder: Path) -> Path:
    """Compile the library that stands for libcuda. It shares memory between processes, and launches one kernel."""
    import triton

    made = folder / "libcuda.so"
    headers = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    source = Path(__file__).with_name("libcuda_stub.c")
    line = ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-s", f"-I{headers}", "-o", str(made), str(source)]
    subprocess.run(line, check=True)
    return made


@contextmanager
def pretended_cuda(fault: str = "pass", library: Path | None = None) -> Iterator[None]:
    """Start all sandboxes of arms with the stand-ins, within this context.

    With a ``library`` in libcuda's place, processes share memory of the device.

    ``fault`` is a statement of Python that runs in each synchronisation. It can use the arm's ``name``, ``CALLS[0]``
    (calls of ``synchronize`` in the process) and ``OPENED[0]`` (processes of the arm that have opened the device).
    """
    source, count = PRELUDE.replace("FAULT", fault), torch.cuda.device_count
    if library is not None:
        source += LIBRARY.format(data=base64.b64encode(library.read_bytes()).decode())
    torch.cuda.device_count = lambda: 2
    try:
        with first_in_zygotes(lambda _name: source):
            yield
    finally:
        torch.cuda.device_count = count


@contextmanager
def first_in_zygotes(source_for: Callable[[str], str]) -> Iterator[None]:
    """Have zygotes of arms on a device run a source text before anything else, within this context.

    ``source_for`` gives the text for an arm's name. Contexts within each other add up, the outer one's text first.
    """
    command = Arm._command

    def with_source(self: Arm, channel: int, status: int) -> list[str]:
        line = command(self, channel, status)
        if self.settings.on_device:
            # The zygote restarts its interpreter without address randomisation. That has to come before the text.
            again = "" if "same_layout" in source_for(self.settings.name) else f"{_LAYOUT}; "
            place, source = line.index("-c") + 1, source_for(self.settings.name)
            run = f"{again}exec(compile({source!r}, 'first', 'exec'), {{}})"
            line[place] = line[place].replace("from pytest_passbench.runner.zygote", f"{run}; {_START}", 1)
        return line

    Arm._command = with_source  # type: ignore[method-assign]
    try:
        yield
    finally:
        Arm._command = command  # type: ignore[method-assign]


_LAYOUT = "from pytest_passbench.walls import harden; harden.same_layout()"
_START = "from pytest_passbench.runner.zygote"
