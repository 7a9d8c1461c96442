"""The steps of gpu_check.py: ``python gpu_steps.py STEP ROWS SECONDS DEVICE [--down=WALL,...] [--rehearse]``.

Each appends rows to the file ROWS as it goes, so what it has found is there if it is cut short.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpu_check import ROOT, append

#: The walls of an arm's processes. The last one is the zygote's: the device is opened in a fork of what it imports.
WALLS = ("environment", "layout", "undumpable", "landlock", "limits", "names", "untrusted", "measured", "zygote")
RUNG_SECONDS = 30  # limit of each rung of the ladder; twice this with the zygote's imports
SPARE_SECONDS = 8.0  # of a step's time, to end its sandboxes


@dataclass(frozen=True)
class Context:
    """A step's settings: the file of rows, the deadline (monotonic), the device, walls that are down, a rehearsal."""

    name: str
    rows: Path
    deadline: float
    device: str
    down: tuple[str, ...]
    refuse: str
    rehearse: bool

    def row(self, what: str, **found: Any) -> None:
        """Append a row."""
        append(self.rows, {"step": self.name, "row": what, **found})

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.monotonic()


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=sorted(STEPS))
    parser.add_argument("rows", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("device")
    parser.add_argument("--down", default="")
    parser.add_argument("--refuse", default="")
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    down = tuple(filter(None, args.down.split(",")))
    deadline = time.monotonic() + args.seconds - SPARE_SECONDS
    context = Context(args.step, args.rows, deadline, args.device, down, args.refuse, args.rehearse)
    STEPS[args.step](context)


# ---- facts


def facts(context: Context) -> None:
    """Append rows about the machine: everything that may explain a later failure."""
    import importlib.util

    import torch

    from pytest_passbench.core.settings import Settings
    from pytest_passbench.judge.arms import sandbox
    from pytest_passbench.judge.machine import gpu, process

    context.row("kernel", release=platform.release(), version=platform.version(), user=os.geteuid())
    context.row("cores", count=os.cpu_count(), usable=len(os.sched_getaffinity(0)), memory=_line("MemTotal"))
    packages = ("jsonschema", "importlinter", "hypothesis", "pytest_benchmark", "xdist", "tabulate", "yaml")
    context.row("missing", packages=[name for name in packages if importlib.util.find_spec(name) is None])
    context.row("versions", python=platform.python_version(), torch=torch.__version__, triton=_version("triton"))
    nodes = [str(path) for path in sorted(Path("/dev").rglob("nvidia*"))]
    context.row("device nodes", nodes=nodes, driver=_text("/proc/driver/nvidia/version"))
    libraries = [line.strip() for line in _said("/sbin/ldconfig", "-p").splitlines() if "libcuda" in line]
    context.row("libcuda", ldconfig=libraries, folders=[str(path) for path in sandbox.driver_folders()])
    names = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CC", "TRITON_LIBCUDA_PATH", "CUDA_DEVICE_ORDER")
    context.row("environment", **{name: os.environ.get(name) for name in names})
    context.row("device", **gpu.device_state(context.device), throttled=gpu.throttled(context.device))
    context.row("walls", form=str(sandbox.walls()), bwrap=shutil.which("bwrap"))
    version = int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    context.row("landlock", version=version)
    context.row("priority", real_time=process.allowed())
    context.row("waiting times", told=Path("/proc/self/schedstat").exists(), children=_children_told())
    context.row("sealed memory", works=_tried(_sealed))
    context.row("compilers", gcc=shutil.which("gcc"), cxx=shutil.which("g++"), nvcc=shutil.which("nvcc"))
    context.row("locks", names=_locks(Settings(device=context.device)))


def _sealed() -> None:
    from pytest_passbench.core.task import TensorSpec
    from pytest_passbench.judge.inputs.pages import Pages, plan_layout

    Pages(plan_layout([TensorSpec("x", (4,), "float32")])).close()


def _locks(settings: Any) -> list[str]:
    from pytest_passbench.judge.machine.cores import Cores

    return Cores.choose(1).locks(settings.device)


def _children_told() -> bool:
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _line(name: str) -> str:
    return next((line for line in _text("/proc/meminfo").splitlines() if line.startswith(name)), "")


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        return str(error)


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _tried(attempt: Callable[[], object]) -> object:
    try:
        return attempt() or True
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# ---- the ladder of walls


def ladder(context: Context) -> None:
    """Open the device without walls, then behind one more each time. Leave out each wall that makes it fail."""
    up: list[str] = []
    bare = _rung(context, up)
    context.row("bare", **bare)
    for wall in WALLS:
        if wall in context.down or context.left < 0:
            continue
        found = _rung(context, [*up, wall])
        guilty = {} if found["works"] or not bare["works"] else {"guilty": wall}
        context.row(f"with {wall}", **found, **guilty)
        if found["works"]:
            up.append(wall)
    if shutil.which("bwrap") is not None:
        context.row("bubblewrap", **_rung(context, ["environment"], strong=True))


def _rung(context: Context, walls: list[str], strong: bool = False) -> dict[str, Any]:
    from pytest_passbench.judge.arms import sandbox

    driver = (ROOT / "benchmarks" / "shared" / "pretended_driver.py").read_text() if context.rehearse else ""
    program = [sys.executable, "-P", "-c", _RUNG, json.dumps([walls, context.refuse, driver, str(ROOT)])]
    environment = sandbox.environment(1, "cuda", {}) if "environment" in walls else dict(os.environ)
    environment.pop("PYTHONPATH", None)
    form = sandbox.walls()
    if strong and not form.strong:
        return {"works": False, "said": str(form)}
    line = sandbox.command(program, form if strong else sandbox.Walls(False), devices=True)
    began, limit = time.monotonic(), RUNG_SECONDS * (2 if "zygote" in walls else 1)
    try:
        ran = subprocess.run(
            line, env=environment, capture_output=True, text=True, check=False, timeout=limit, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return {"works": False, "said": f"no answer in {limit} s"}
    works = ran.returncode == 0
    found: dict[str, Any] = {"works": works, "seconds": round(time.monotonic() - began, 2)}
    return found if works else {**found, "said": (ran.stderr or f"ended with {ran.returncode}")[-600:]}


_RUNG = """
import ctypes, json, os, sys, tempfile
walls, refuse, driver, root = json.loads(sys.argv[1])
sys.path.insert(0, root)
from pytest_passbench.walls import confine, harden, seccomp
if "layout" in walls:
    harden.same_layout()
if "undumpable" in walls:
    harden.not_dumpable()
scratch = tempfile.mkdtemp()
if "landlock" in walls:
    from pathlib import Path
    from pytest_passbench.judge.arms import sandbox
    paths = sandbox.weak_paths(Path(scratch), True)
    confine.confine(paths["read"], paths["write"], named=True)
if "zygote" in walls:
    from pytest_passbench.runner import zygote
    zygote._import({"pipeline": "inductor", "device": True})
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
if "limits" in walls:
    harden.limit_resources(None, None, 2048)
if "names" in walls and "landlock" in walls:
    confine.keep_own_names(paths["write"])
if "untrusted" in walls:
    seccomp.untrusted(network=False, driver=True)

def check(code, what):
    if code:
        raise SystemExit(f"{what} returned {code}")

if driver:
    if refuse in walls:
        raise SystemExit(f"the driver is made to fail behind {refuse}")
    exec(driver)
else:
    cuda = ctypes.CDLL("libcuda.so.1")
    check(cuda.cuInit(0), "cuInit")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)), "cuMemAlloc")
    if "measured" in walls:
        made = seccomp.measured(driver=True)
        if made is not None:
            made.install(1)
    check(cuda.cuMemsetD8_v2(memory, 7, ctypes.c_size_t(1 << 20)), "cuMemsetD8")
    check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
    found = ctypes.create_string_buffer(16)
    check(cuda.cuMemcpyDtoH_v2(found, memory, ctypes.c_size_t(16)), "cuMemcpyDtoH")
    assert found.raw == bytes([7]) * 16
"""


# ---- costs


def costs(context: Context) -> None:
    """Append the costs of the pieces of a block. Each is measured by itself."""
    if context.rehearse:
        from shared.pretended_cuda import PRELUDE

        exec(PRELUDE.replace("FAULT", "pass"), {})
    import torch

    from pytest_passbench.core.device import gpu_index
    from pytest_passbench.runner.cuda import block as cuda

    began = time.perf_counter()
    torch.cuda.set_device(gpu_index(context.device))
    device = torch.device(context.device)
    memory = torch.zeros(96 << 20, dtype=torch.uint8, device=device)
    cuda._synchronize()
    context.row("context", seconds=time.perf_counter() - began)
    host, small = torch.zeros(48 << 20, dtype=torch.uint8), torch.zeros(1, device=device)
    room, event = memory[: 48 << 20], torch.cuda.Event(enable_timing=True)
    l2 = cuda.l2_bytes(device)
    flush = torch.empty(2 * l2, dtype=torch.uint8, device=device)
    pieces: dict[str, Callable[[], object]] = {
        "synchronise, idle": lambda: None,
        "event": event.record,
        "launch": small.zero_,
        "copy 48 MiB, pageable": lambda: room.copy_(host),
        "copy 48 MiB on the device": lambda: room.copy_(memory[48 << 20 :]),
        "L2 flush": flush.zero_,
    }
    for name, piece in pieces.items():
        context.row(name, us=_tried(partial(_microseconds, piece, cuda._synchronize)))
    context.row(
        "100 launches",
        us=_tried(lambda: _microseconds(lambda: [small.zero_() for _ in range(100)], cuda._synchronize)),
    )
    context.row("copy 48 MiB, pinned", us=_tried(lambda: _pinned(room, host, cuda._synchronize)))
    context.row("fill rate", bytes_per_second=float(cuda.fill_rate(flush)), l2=l2)
    context.row("stopped with queued kernels", **_stopped(context))
    context.row("shared device memory", found=_tried(lambda: _shared(context)))


def _microseconds(piece: Callable[[], object], wait: Callable[[], None], tries: int = 20) -> float:
    taken = []
    for _ in range(tries):
        wait()
        began = time.perf_counter()
        piece()
        wait()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def _pinned(room: Any, host: Any, wait: Callable[[], None]) -> float:
    pinned = host.pin_memory()
    return _microseconds(lambda: room.copy_(pinned, non_blocking=True), wait)


def _stopped(context: Context) -> dict[str, Any]:
    """Stop a process that has queued a tenth of a second of work, and see whether the device goes on meanwhile."""
    if context.rehearse:
        return {"rehearsed": True}
    program = """
import sys, time, torch
torch.cuda._sleep(1000); torch.cuda.synchronize()
began = time.perf_counter(); torch.cuda._sleep(200_000_000); torch.cuda.synchronize()
whole = time.perf_counter() - began
torch.cuda._sleep(200_000_000)
print("queued", flush=True); sys.stdin.readline()
began = time.perf_counter(); torch.cuda.synchronize()
print(whole, time.perf_counter() - began, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    said, errors = process.communicate("go\n", timeout=20)
    values = said.split()
    if len(values) != 2:
        return {"said": errors[-300:]}
    return {"work_seconds": float(values[0]), "left_when_continued": float(values[1])}


def _shared(context: Context) -> object:
    """Share memory with another process, which reads it and then writes to it. The driver should refuse the write."""
    if context.rehearse:
        return "rehearsed"
    import torch

    from pytest_passbench.core.device import gpu_index
    from pytest_passbench.runner.cuda import libcuda
    from pytest_passbench.runner.cuda.device_memory import DeviceMemory

    size, index = 1 << 20, gpu_index(context.device)
    memory = DeviceMemory(libcuda.library(), index, size)
    data = torch.full((size,), 7, dtype=torch.uint8)
    memory.write(data.data_ptr(), size)
    descriptor = memory.export()
    program = [sys.executable, "-c", _SHARED, str(descriptor), str(index), str(memory.size)]
    ran = subprocess.run(
        program, pass_fds=(descriptor,), capture_output=True, text=True, check=False, timeout=40, cwd=ROOT
    )
    return ran.stdout.split("\n") if ran.stdout else ran.stderr[-400:]


_SHARED = """
import sys, torch
from pytest_passbench.runner.cuda import libcuda
from pytest_passbench.runner.cuda.device_memory import DeviceMemory
descriptor, index, size = map(int, sys.argv[1:])
torch.cuda.set_device(index); torch.cuda.synchronize()
memory = DeviceMemory(libcuda.library(), index, size, descriptor)
seen = memory.tensor(torch.device("cuda", index))
print("read:", bool((seen[: 1 << 20] == 7).all()), flush=True)
try:
    seen.zero_(); torch.cuda.synchronize()
    print("written: nothing keeps a reader from writing", flush=True)
except Exception as error:
    print("write refused:", str(error).splitlines()[0], flush=True)
"""


# ---- judging


@contextmanager
def judging(context: Context, strong: bool | None = None, candidate: str = "") -> Iterator[None]:
    """Judge within this context: without the walls that are down, and in a rehearsal with the CPU as the device.

    ``strong`` chooses the form of the sandbox. ``candidate`` is a text that runs first in the candidate's zygote.
    """
    from pytest_passbench.judge.arms import sandbox
    from shared.pretended_cuda import first_in_zygotes, pretended_cuda

    taken = "\n".join(_DOWN[wall] for wall in context.down if wall in _DOWN)
    with ExitStack() as held:
        if context.rehearse:
            held.enter_context(pretended_cuda())
        held.enter_context(
            first_in_zygotes(lambda name: textwrap.dedent(taken) + (candidate if name == "candidate" else "pass"))
        )
        if strong is False:
            weak = sandbox.Walls(False, "asked for")
            before, sandbox.walls = sandbox.walls, lambda: weak  # type: ignore[assignment]
            held.callback(setattr, sandbox, "walls", before)
        if "environment" in context.down:
            own, sandbox.environment = sandbox.environment, lambda *a: {**os.environ, **own(*a)}
            held.callback(setattr, sandbox, "environment", own)
        yield


#: Python texts that take a wall down in a zygote and in the processes forked from it.
_DOWN = {
    "layout": "from pytest_passbench.walls import harden as h1\nh1.same_layout = lambda: None\n",
    "undumpable": "from pytest_passbench.walls import harden as h2\nh2.not_dumpable = lambda: None\n",
    "landlock": "from pytest_passbench.walls import confine as c1\nc1.confine = lambda *a, **k: False\n"
    "c1.keep_own_names = lambda *a: False\n",
    "limits": "from pytest_passbench.walls import harden as h3\nh3.limit_resources = lambda *a: None\n",
    "names": "from pytest_passbench.walls import confine as c2\nc2.keep_own_names = lambda *a: False\n",
    "untrusted": "from pytest_passbench.walls import seccomp as s1\ns1.untrusted = lambda **k: False\n",
    "measured": "from pytest_passbench.walls import seccomp as s2\ns2.measured = lambda **k: None\n",
}


def imports(context: Context) -> None:
    """Start a zygote of each pipeline. It starts only if its imports open no device."""
    from pytest_passbench.judge.arms import sandbox
    from pytest_passbench.judge.arms.arm import Arm, ArmSettings
    from pytest_passbench.protocol import READ

    for pipeline in ("direct", "dynamo", "inductor", READ):
        with judging(context):
            arm = Arm(ArmSettings("eager", context.device, 1, pipeline, sandbox.walls(), 60.0))
            began = time.monotonic()
            try:
                started = _tried(arm.ready)
            finally:
                arm.close()
        context.row(pipeline, started=started, seconds=round(time.monotonic() - began, 2))


GELU_ADD = "return torch.nn.functional.gelu(x) + y"


def weak(context: Context) -> None:
    """Judge one subgraph by each pipeline, with the audit off and on, behind weak walls."""
    _pipelines(context, strong=False)


def strong(context: Context) -> None:
    """Judge the same as :func:`weak` behind bubblewrap."""
    from pytest_passbench.judge.arms import sandbox

    if not sandbox.walls().strong:
        context.row("walls", form=str(sandbox.walls()))
        return
    _pipelines(context, strong=True)


def _pipelines(context: Context, strong: bool) -> None:
    for audit in ("off", "standard"):
        for pipeline in ("direct", "dynamo", "inductor"):
            if context.rehearse and pipeline != "direct":
                continue  # the stand-ins for a device cannot be compiled
            if context.left > 0:
                with judging(context, strong):
                    record = _one(context, pipeline=pipeline, audit=audit)
                context.row(f"{pipeline}, audit {audit}", **_said_of(record))


def _one(context: Context, body: str = GELU_ADD, **settings: Any) -> Any:
    """Return the record of a candidate's pass on one subgraph."""
    from shared.workspace import Workspace, make_wrapper

    with tempfile.TemporaryDirectory() as folder:
        bench = Workspace(Path(folder))
        bench.task(shapes=((1024, 1024), (1024, 1024)) if not context.rehearse else ((64, 64), (64, 64)))
        bench.candidate({"p": make_wrapper(body)})
        asked = {"policy": "open", "device": context.device, "timeout": max(20.0, context.left), **settings}
        return bench.records(**asked)[-1]


def _said_of(record: Any) -> dict[str, Any]:
    arm, speed = record.arm, record.arm.speed
    found: dict[str, Any] = {"status": arm.status, "correct": record.correct}
    if speed is not None:
        found |= {"ratio": speed.ratio, "low": speed.low, "high": speed.high, "verdict": speed.verdict}
        found |= {"eager_us": speed.eager_us, "eager_device_us": speed.eager_device_us, "pairs": len(speed.pairs)}
        found |= {"other_us": speed.other_us, "other_device_us": speed.other_device_us}
    else:
        found |= {"phase": arm.phase, "message": arm.message[-400:]}
    if record.findings:
        found["findings"] = [f"{one.layer}: {one.rule}: {one.message}"[:160] for one in record.findings]
    return {**found, "build": record.durations.get("build"), "seconds": sum(record.durations.values())}


#: Programs in the candidate's process that cheat the clock. No candidate can bring them there, since its Python is in
#: no measured process. So they show what the clock itself withstands. ``call`` is the honest program.
EXPLOITS = {
    "honest": "def cheat(call):\n    return call\n",
    "no-op synchronise": """
def cheat(call):
    torch.cuda.synchronize = lambda *a: None
    torch.cuda.Event.synchronize = lambda self: None
    return lambda *inputs: [call(*inputs) for _ in range(3)][0]
""",
    "side stream": """
def cheat(call):
    side = torch.cuda.Stream()
    def run(*inputs):
        with torch.cuda.stream(side):
            return [call(*inputs) for _ in range(3)][0]
    return run
""",
    "graph replay": """
def cheat(call):
    state = {}
    def run(*inputs):
        key = inputs[0].data_ptr()
        if key not in state:
            call(*inputs); torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made = [call(*inputs) for _ in range(3)][0]
            state[key] = graph, made
        graph, made = state[key]
        graph.replay()
        return made
    return run
""",
    "late compute": """
def cheat(call):
    import threading, time
    def late(inputs, out):
        time.sleep(0.002)
        out[0].copy_(call(*inputs)[0])
    def run(*inputs):
        out = (torch.empty_like(inputs[0]),)
        threading.Thread(target=late, args=(inputs, out)).start()
        return out
    return run
""",
}
_CHEATING = """
import torch
{source}
from pytest_passbench.runner import program
honest = program.prepare
def prepare(order, sample, kernels):
    built = honest(order, sample, kernels)
    if order.arm == "candidate":
        built.call = cheat(built.call)
    return built
program.prepare = prepare
"""


def exploits(context: Context) -> None:
    """Judge programs that do three times the work where a clock may miss it, or that do it late.

    None may look faster than eager.
    """
    for name, source in EXPLOITS.items():
        if context.left < 0:
            return
        with judging(context, candidate=_CHEATING.format(source=textwrap.dedent(source))):
            record = _one(context, pipeline="direct", audit="off")
        speed = record.arm.speed
        held = not record.correct or speed is None or speed.low <= 1.02
        context.row(name, held=held or name == "honest", **_said_of(record))


def aa(context: Context) -> None:
    """Judge eager against eager on 20 subgraphs, and append how far the ratios are from 1."""
    errors, covered = [], 0
    for _name, record in _twins(context, 3 if context.rehearse else 20, lambda _arm, source: source):
        speed = record.arm.speed
        if speed is not None:
            errors.append(abs(speed.ratio - 1))
            covered += speed.low <= 1 <= speed.high
    if errors:
        errors.sort()
        quantile = errors[min(len(errors) - 1, int(0.95 * len(errors)))]
        context.row("all", subgraphs=len(errors), error_95=quantile, covered=covered / len(errors))


def _twins(context: Context, count: int, sources: Any) -> Iterator[tuple[str, Any]]:
    import engine

    from pytest_passbench.core.settings import Settings

    found = engine.spread(engine.cases(), count)
    settings = Settings(device=context.device, pipeline="direct", audit="off")
    with judging(context), engine.Twins(settings, sources) as twins:
        for case in found:
            if context.left < 0:
                return
            record = twins.against(case)[-1]
            context.row(case.name, **_said_of(record))
            yield case.name, record


_FIVE_PERCENT = """
def cheat(call):
    turn = [0]
    def run(*inputs):
        turn[0] += 1
        if turn[0] % 20 == 0:
            call(*inputs)
        return call(*inputs)
    return run
"""


def planted(context: Context) -> None:
    """Judge a program as it is, and with a second call in every twentieth. The ratio should be 1 / 1.05 = 0.952."""
    bare = 0.0
    for name, source in (("as it is", EXPLOITS["honest"]), ("5 % more work", _FIVE_PERCENT)):
        with judging(context, candidate=_CHEATING.format(source=source)):
            for _ in range(1 if context.rehearse else 2):
                found = _said_of(_one(context, pipeline="direct", audit="off")) if context.left > 0 else {}
                if "ratio" in found:
                    bare = bare or found["ratio"]
                    context.row(name, relative=found["ratio"] / bare, expected=1 / 1.05, **found)


def tests(context: Context) -> None:
    """Run the tests that need a device, except that of the whole lite suite, which is a step of its own."""
    chosen = ["-m", "gpu", "-k", "not shipped"] if not context.rehearse else ["-m", "not slow", "-k", "nvidia_smi"]
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *chosen]
    ran = subprocess.run(
        [*command, "tests/judge/measure/test_cuda_clock.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = ran.stdout.strip().splitlines() or ran.stderr.strip().splitlines() or ["nothing said"]
    context.row("pytest", code=ran.returncode, closing=lines[-1], failed=[line for line in lines if "FAILED" in line])
    if ran.returncode:
        context.row("said", said=(ran.stdout + ran.stderr)[-1200:])


def lite(context: Context) -> None:
    """Judge the shipped Triton kernels on tasks of the lite suite, until the time is over."""
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.core.settings import Settings
    from pytest_passbench.judge.session import Session
    from pytest_passbench.suite.find import discover, installed_tasks, select

    name = "no-match" if context.rehearse else "triton-fused"
    candidate = Candidate.open(ROOT / "candidates" / name)
    settings = Settings(device=context.device, pipeline="direct" if context.rehearse else "dynamo")
    judged = 0
    with judging(context), Session(settings, os.urandom(32)) as session:
        for ref in select(discover(installed_tasks()), "lite"):
            task = ref.load()
            passes = candidate.passes_for(task.id)
            if context.left < 0 or (context.rehearse and judged > 1):
                break
            if passes is None:
                continue
            for record in session.judge(replace(task, subgraphs=task.subgraphs[:1]), candidate):
                judged += 1
                context.row(f"{record.task}/{record.subgraph}", **_said_of(record))
    context.row("all", judged=judged)


STEPS: dict[str, Callable[[Context], None]] = {
    step.__name__: step for step in (facts, ladder, costs, imports, weak, strong, exploits, aa, planted, tests, lite)
}

if __name__ == "__main__":
    main()
