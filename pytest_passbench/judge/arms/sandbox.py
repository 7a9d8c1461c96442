"""The walls around an arm: bubblewrap if it works, otherwise rights that a process gives up by itself (weak).

Each arm has its own sandbox, because processes of one sandbox can read each other's memory. docs/isolation.md says
what a sandbox shows and what it lacks.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import shutil
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.paths import PACKAGE, visible

CANDIDATE_FOLDER = "/candidate"  # with a candidate's files, in the sandbox of its readers
SCRATCH_BYTES = 2 << 30
TRY_SECONDS = 20  # for bubblewrap to run a program that does nothing
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
_INHERITED = ("PATH", "LANG", "CUDA_VISIBLE_DEVICES", "CXX")  # of the judge's environment
_KEPT_ON_DEVICE = ("LD_LIBRARY_PATH", "CC", "TRITON_LIBCUDA_PATH", "CUDA_DEVICE_ORDER")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime")
#: ``--as-pid-1`` makes the zygote process 1. Bubblewrap's own process 1 has no filter and is never stopped, and the
#: processes inside could write to its memory.
_BARE = ["--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1"]


@dataclass(frozen=True)
class Walls:
    """The form of sandbox on this machine: ``strong`` is bubblewrap; ``reason`` says why it is not available."""

    strong: bool
    reason: str = ""
    disable_userns: bool = True

    def __str__(self) -> str:
        return "bubblewrap" if self.strong else f"weak ({self.reason}; {weak_protection()})"


def weak_protection() -> str:
    """Return what the weak form still protects on this machine, for the header of a run."""
    version = int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))  # of Landlock
    files = "Landlock: files, memory" + (", signals" if version >= 6 else "") if version > 0 else "no Landlock"
    calls = "seccomp: sockets, processes" if platform.machine() in ("x86_64", "aarch64") else "no seccomp"
    return f"{files}; {calls}"


@functools.cache
def walls() -> Walls:
    """Return the form of sandbox that works here. It is tried once per process."""
    program = shutil.which("bwrap")
    if program is None:
        return Walls(False, "bubblewrap is not installed")
    for flags in (["--disable-userns"], []):
        command = [program, *_BARE, *flags, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
        try:
            trial = _trial_run(command)
            if trial.returncode < 0:  # killed from outside, which says nothing about this machine
                trial = _trial_run(command)
        except subprocess.TimeoutExpired:
            return Walls(False, "bubblewrap does not answer")
        if trial.returncode == 0:
            return Walls(True, disable_userns=bool(flags))
        if trial.returncode < 0:
            return Walls(False, f"bubblewrap is killed by signal {-trial.returncode} whenever it starts")
    output = trial.stderr.strip().splitlines() or [f"it ends with {trial.returncode}"]
    return Walls(False, f"bubblewrap does not work here: {output[-1][:120]}")


def _trial_run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TRY_SECONDS)


def require(mode: str) -> Walls:
    """Return the walls. Raises UserError if ``mode`` is "required" and they are weak."""
    strength = walls()
    if mode == "required" and not strength.strong:
        raise UserError(
            f"no strong sandbox: {strength.reason}",
            where="passbench_sandbox = required",
            remedy="install the package bubblewrap and allow user namespaces, or set passbench_sandbox = auto",
        )
    return strength


def interpreter() -> str:
    """Return the path of Python's interpreter without ``..`` and without links among its folders.

    A sandbox has the folders of Python, but not the others that a path with links passes through. The last link
    stays, since Python finds a virtual environment by the folder of that link.
    """
    path = Path(sys.executable)
    return str(path.parent.resolve() / path.name)


def command(
    program: list[str], walls: Walls, devices: bool, reads: bool = False, scratch_bytes: int = SCRATCH_BYTES
) -> list[str]:
    """Return the command line that runs a ``program`` of this package behind these walls.

    ``devices`` adds the GPUs, ``reads`` a folder for a candidate's files, ``scratch_bytes`` is the size of /tmp.
    """
    if not walls.strong:
        return program
    mounts = [*system_mounts(scratch_bytes), "--size", str(scratch_bytes), "--tmpfs", "/dev/shm"]
    for path in _python_folders():
        mounts += ["--ro-bind", str(path), str(path)]
    mounts += ["--size", "65536", "--tmpfs", str(PACKAGE)]
    for path in visible():
        mounts += ["--ro-bind", str(path), str(path)]
    mounts += ["--remount-ro", str(PACKAGE)]
    if reads:
        mounts += ["--size", str(scratch_bytes), "--tmpfs", CANDIDATE_FOLDER]
    if devices:  # the driver writes its threads' names to /proc
        for folder in (Path("/sys"), *driver_folders()):
            mounts += ["--ro-bind-try", str(folder), str(folder)]
        for node in sorted(Path("/dev").glob("nvidia*")):
            mounts += ["--dev-bind", str(node), str(node)]
    else:  # a user who is root could have the kernel end process 1 first when memory is short
        mounts += ["--remount-ro", "/proc"]
    return [*_bubblewrap(walls, mounts), "--chdir", "/tmp", *program]


def tool_command(program: list[str], walls: Walls, readable: list[Path], scratch_bytes: int) -> list[str]:
    """Return the command line that runs a tool of the system, such as a compiler.

    It sees the system's folders, the ``readable`` ones, and its own /tmp of ``scratch_bytes``. It sees no file of
    this package, of Python or of a candidate.
    """
    if not walls.strong:
        return program
    mounts = system_mounts(scratch_bytes)
    for path in readable:
        if path != Path("/") and not any(path.is_relative_to(folder) for folder in _SYSTEM):
            mounts += ["--ro-bind", str(path), str(path)]
    return [*_bubblewrap(walls, mounts), *program]


def _bubblewrap(walls: Walls, mounts: list[str]) -> list[str]:
    userns = ["--disable-userns"] if walls.disable_userns else []
    return [shutil.which("bwrap") or "bwrap", *_BARE, *userns, *mounts, "--remount-ro", "/dev", "--remount-ro", "/"]


def system_mounts(scratch_bytes: int) -> list[str]:
    """Return bubblewrap's arguments for the system's folders, /proc, /dev and a /tmp of ``scratch_bytes``."""
    mounts: list[str] = []
    for folder in map(Path, _SYSTEM):
        if folder.is_symlink():
            mounts += ["--symlink", str(folder.readlink()), str(folder)]
        else:
            mounts += ["--ro-bind-try", str(folder), str(folder)]
    for name in _ETC:
        mounts += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return [*mounts, "--proc", "/proc", "--dev", "/dev", "--size", str(scratch_bytes), "--tmpfs", "/tmp"]


def weak_paths(scratch: Path, devices: bool) -> dict[str, list[str]]:
    """Return the paths that an arm without bubblewrap may ``read`` and ``write``. Landlock, if any, enforces them."""
    readable = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC), "/proc", "/sys/devices", "/dev/urandom", "/dev/random"]
    readable += [str(path) for path in (*_python_folders(), *visible()) if path != PACKAGE]
    readable += ["/sys", *map(str, driver_folders())] if devices else []
    nodes = [str(node) for node in Path("/dev").glob("nvidia*")] if devices else []
    return {"read": readable, "write": [str(scratch), "/dev/null", "/dev/zero", *nodes]}


@functools.cache
def driver_folders() -> tuple[Path, ...]:
    """Return the folders that CUDA's libraries may be in, except the system's.

    They are those of LD_LIBRARY_PATH and TRITON_LIBCUDA_PATH, and that of the loader's libcuda.
    """
    named = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), os.environ.get("TRITON_LIBCUDA_PATH", "")]
    with contextlib.suppress(OSError):
        listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
        files = [line.rpartition("=> ")[2] for line in listing.splitlines() if "libcuda.so" in line]
        named += [str(Path(file).parent) for path in files for file in (path, os.path.realpath(path))]
    folders = dict.fromkeys(Path(name) for name in named if name.startswith("/") and Path(name).is_dir())
    system = [Path("/"), *map(Path, _SYSTEM)]
    return tuple(path for path in folders if path not in system and not any(map(path.is_relative_to, system[1:])))


def _python_folders() -> list[Path]:
    """Return the folders of the interpreter, its packages and this package, without folders inside each other."""
    candidates = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix), PACKAGE]
    candidates += [Path(folder) for folder in site.getsitepackages()]
    if Path(site.getusersitepackages()).is_dir() and site.ENABLE_USER_SITE:
        candidates.append(Path(site.getusersitepackages()))
    candidates += [Path(os.path.realpath(sys.executable)).parent.parent]
    folders = sorted(
        {folder.resolve() for folder in candidates if folder.is_dir()} | {f for f in candidates if f.is_dir()}
    )
    system = [Path(folder) for folder in _SYSTEM]
    roots: list[Path] = []
    for folder in folders:
        if folder != Path("/") and not any(folder.is_relative_to(other) for other in [*system, *roots]):
            roots.append(folder)
    return roots


def environment(threads: int, device: str, extra: dict[str, str]) -> dict[str, str]:
    """Return the whole environment of an arm. Only the variables listed here come from the judge's own."""
    names = (*_INHERITED, *_KEPT_ON_DEVICE) if is_cuda(device) else _INHERITED
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    fixed = {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONHASHSEED": "0",  # so that dictionaries have the same layout in every arm
        "PYTHONNOUSERSITE": "" if site.ENABLE_USER_SITE else "1",
        "OMP_NUM_THREADS": str(threads),
        "OMP_THREAD_LIMIT": str(threads),  # a kernel that asks for more threads gets these, not an error
        "OPENBLAS_NUM_THREADS": "1",  # numpy's pool, since a process with threads can't be forked
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # malloc keeps freed memory for the next block instead of giving it back to the kernel.
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
        "MALLOC_TOP_PAD_": str(1 << 24),
    }
    if is_cuda(device):
        # The order of nvidia-smi, whose report is about the device of this number. And no import may initialise CUDA.
        inherited.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        fixed["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    else:
        fixed["TRITON_INTERPRET"] = "1"
    return {name: value for name, value in {**inherited, **fixed, **extra}.items() if value != ""}
