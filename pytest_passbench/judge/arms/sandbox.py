"""The walls around an arm: bubblewrap where it works, otherwise what a process can give up by itself (weak).

One sandbox per arm, because processes of one sandbox can read each other's memory. Inside there are the system's
programs and libraries, Python, this package without its judge and its tasks, the candidate's folder (read-only, and
only in the candidate's sandbox), and an empty, limited /tmp. No home directory, no network, no other process.
"""

from __future__ import annotations

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

CANDIDATE_MOUNT = "/candidate"
SCRATCH_BYTES = 2 << 30
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime")
#: Process 1 is our own: bubblewrap's could be written to by what runs inside, is under no filter and never stopped.
_BARE = ["--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1"]


@dataclass(frozen=True)
class Walls:
    """Which form of sandbox this machine gives: ``strong`` is bubblewrap; ``reason`` says why not."""

    strong: bool
    reason: str = ""
    disable_userns: bool = True

    def __str__(self) -> str:
        return "bubblewrap" if self.strong else f"weak ({self.reason}; {_held()})"


def _held() -> str:
    """What the weak form still keeps, for the header."""
    version = _landlock_version()
    files = "Landlock: files, memory" + (", signals" if version >= 6 else "") if version > 0 else "no Landlock"
    calls = "seccomp: sockets, processes" if platform.machine() in ("x86_64", "aarch64") else "no seccomp"
    return f"{files}; {calls}"


def _landlock_version() -> int:
    libc = ctypes.CDLL(None)
    return int(libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


@functools.cache
def walls() -> Walls:
    """Find out, once per process, by trying."""
    program = shutil.which("bwrap")
    if program is None:
        return Walls(False, "bubblewrap is not installed")
    for flags in (["--disable-userns"], []):
        command = [program, *_BARE, *flags, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return Walls(True, disable_userns=bool(flags))
    return Walls(False, "bubblewrap does not work here: " + tried.stderr.strip().splitlines()[-1][:120])


def require(mode: str) -> Walls:
    """The walls, or a UserError where ``mode`` is "required" and they are weak."""
    found = walls()
    if mode == "required" and not found.strong:
        raise UserError(
            f"no strong sandbox: {found.reason}",
            where="--passbench-sandbox=required",
            remedy="install the package bubblewrap and allow user namespaces, or use --passbench-sandbox=auto",
        )
    return found


def command(
    program: list[str], walls: Walls, candidate: Path | None, devices: bool, scratch_bytes: int = SCRATCH_BYTES
) -> list[str]:
    """The command line that runs ``program`` behind these walls."""
    if not walls.strong:
        return program
    bwrap = shutil.which("bwrap") or "bwrap"
    userns = ["--disable-userns"] if walls.disable_userns else []
    mounts = [*_mounts(candidate, scratch_bytes), *_device_mounts(devices)]
    return [bwrap, *_BARE, *userns, *mounts, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", *program]


def tool_command(program: list[str], walls: Walls, readable: list[Path], scratch_bytes: int) -> list[str]:
    """The command line that runs a tool of the system's, a compiler say: with the system's folders, ``readable``
    ones, and a /tmp of its own; nothing of this package, of Python's or of a candidate's."""
    if not walls.strong:
        return program
    mounts: list[str] = []
    for folder in _SYSTEM:
        mounts += _link_or_bind(Path(folder))
    for name in _ETC:
        mounts += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    mounts += ["--proc", "/proc", "--dev", "/dev", "--size", str(scratch_bytes), "--tmpfs", "/tmp"]
    for path in readable:
        if path != Path("/") and not any(path.is_relative_to(folder) for folder in _SYSTEM):
            mounts += ["--ro-bind", str(path), str(path)]
    userns = ["--disable-userns"] if walls.disable_userns else []
    bwrap = shutil.which("bwrap") or "bwrap"
    return [bwrap, *_BARE, *userns, *mounts, "--remount-ro", "/dev", "--remount-ro", "/", *program]


def _mounts(candidate: Path | None, scratch_bytes: int) -> list[str]:
    arguments: list[str] = []
    for folder in _SYSTEM:
        arguments += _link_or_bind(Path(folder))
    for name in _ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", str(scratch_bytes), "--tmpfs", "/tmp"]
    arguments += ["--size", str(scratch_bytes), "--tmpfs", "/dev/shm"]
    for path in _python_folders():
        arguments += ["--ro-bind", str(path), str(path)]
    arguments += ["--size", "65536", "--tmpfs", str(PACKAGE)]
    for path in visible():
        arguments += ["--ro-bind", str(path), str(path)]
    arguments += ["--remount-ro", str(PACKAGE)]
    if candidate is not None:
        arguments += ["--ro-bind", str(candidate.resolve()), CANDIDATE_MOUNT]
    return arguments


def weak_paths(candidate: Path | None, scratch: Path, devices: bool) -> dict[str, list[str]]:
    """What an arm behind weak walls may read and write, as far as Landlock is there to see to it."""
    readable = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC), "/proc", "/sys/devices", "/dev/urandom", "/dev/random"]
    readable += [str(path) for path in (*_python_folders(), *visible()) if path != PACKAGE]
    readable += [str(candidate.resolve())] if candidate is not None else []
    nodes = [str(node) for node in Path("/dev").glob("nvidia*")] if devices else []
    return {"read": readable, "write": [str(scratch), "/dev/null", "/dev/zero", *nodes]}


def _link_or_bind(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", str(folder.readlink()), str(folder)]
    return ["--ro-bind-try", str(folder), str(folder)]


def _python_folders() -> list[Path]:
    """Where the interpreter, its packages and this package lie; nothing that another of them contains."""
    found = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix), PACKAGE]
    found += [Path(folder) for folder in site.getsitepackages()]
    if Path(site.getusersitepackages()).is_dir() and site.ENABLE_USER_SITE:
        found.append(Path(site.getusersitepackages()))
    found += [Path(os.path.realpath(sys.executable)).parent.parent]
    folders = sorted({folder.resolve() for folder in found if folder.is_dir()} | {f for f in found if f.is_dir()})
    system = [Path(folder) for folder in _SYSTEM]
    kept: list[Path] = []
    for folder in folders:
        if folder != Path("/") and not any(folder.is_relative_to(other) for other in [*system, *kept]):
            kept.append(folder)
    return kept


def _device_mounts(devices: bool) -> list[str]:
    if not devices:
        return []
    arguments = ["--ro-bind-try", "/sys", "/sys"]
    for node in sorted(Path("/dev").glob("nvidia*")):
        arguments += ["--dev-bind", str(node), str(node)]
    return arguments


def environment(threads: int, device: str, extra: dict[str, str]) -> dict[str, str]:
    """The whole environment of an arm: nothing of the judge's own but what is listed here."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "CUDA_VISIBLE_DEVICES", "CXX") if name in os.environ}
    fixed = {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONHASHSEED": "0",  # the same dictionaries in every arm, laid out alike
        "PYTHONNOUSERSITE": "" if site.ENABLE_USER_SITE else "1",
        "OMP_NUM_THREADS": str(threads),
        "OMP_THREAD_LIMIT": str(threads),  # a kernel that asks for more gets these, instead of being refused any
        "OPENBLAS_NUM_THREADS": "1",  # numpy's own pool: a process with threads can't be forked from
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # One thread per arm and outputs kept alive: give freed memory back to the next block, not to the kernel.
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
        "MALLOC_TOP_PAD_": str(1 << 24),
    }
    if not is_cuda(device):
        fixed["TRITON_INTERPRET"] = "1"
    return {name: value for name, value in {**kept, **fixed, **extra}.items() if value != ""}
