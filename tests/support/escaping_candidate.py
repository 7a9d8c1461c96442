"""A candidate that tries to leave its sandbox, and prints what it reached: copied into a pass directory as ``probe``.

The reader and each of its recordings print a line ``PROBE <number of attempts> [what succeeded]``.
The test fills in ``TARGET``: process id and address of a secret, paths, a port.
"""

# The code is in the style of a candidate.
# ruff: noqa: PTH112, PTH114, PTH115, PTH123, PTH208, SIM115
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

TARGET = json.loads(r"""@TARGET@""")
SECRET = bytes.fromhex(TARGET["secret_reversed"])[::-1]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def call(*arguments):
    return libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])


def others():
    seen = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    return sorted((seen | {TARGET["judge"], TARGET["parent"]}) - {os.getpid()})


def fails(path, mode="rb"):
    with open(path, mode) as file:
        return file.read(32) if "r" in mode else file.write("x")


def memory_by_call():
    for pid in others():
        buffer = ctypes.create_string_buffer(len(SECRET))
        local = Vector(ctypes.addressof(buffer), len(SECRET))
        remote = Vector(TARGET["address"], len(SECRET))
        if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) > 0:
            return f"{pid}: {buffer.raw == SECRET}"
    return None


def memory_by_proc():
    for pid in others():
        try:
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
                file.seek(TARGET["address"])
                return f"{pid}: {file.read(32)!r}"
        except OSError:
            continue
    return None


def environments():
    found = []
    for pid in others():
        try:
            if b"PASSBENCH_TEST_SECRET" in open(f"/proc/{pid}/environ", "rb").read():
                found.append(pid)
        except OSError:
            continue
    return found


def trace():
    return [pid for pid in others() if libc.ptrace(16, pid, None, None) == 0]  # PTRACE_ATTACH


def process_1():
    for name, mode in (("mem", "r+b"), ("task/1/mem", "rb"), ("environ", "rb"), ("maps", "rb"), ("fd/0", "rb")):
        try:
            return name, open(f"/proc/1/{name}", mode)
        except OSError:
            continue
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        os.kill(1, number)  # if one has an effect, the judge gets no outcome of the rest
    return None


def signal_judge():
    for pid in (TARGET["judge"], TARGET["parent"]):
        os.kill(pid, 0)


def continue_oneself():
    timer = ctypes.c_void_p()
    event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)
    if call(222, 0, ctypes.byref(event), ctypes.byref(timer)) == 0:
        return "timer with SIGCONT"
    ours, _theirs = socket.socketpair()
    if libc.fcntl(ours.fileno(), 10, signal.SIGCONT) == 0:
        return "descriptor with SIGCONT"
    if libc.prctl(1, signal.SIGCONT, 0, 0, 0) == 0:
        return "parent's death with SIGCONT"
    os.kill(os.getpid(), signal.SIGCONT)
    return "kill"


def limits():
    """Return processes other than the candidate's whose limits, cores, priority or OOM score it can change."""
    changes = {
        "limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
        "cores": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
        "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)),
        "memory": lambda pid: Path(f"/proc/{pid}/oom_score_adj").write_text("1000"),
    }
    found = []
    for pid in (1, TARGET["judge"], TARGET["parent"]):
        for name, change in changes.items():
            try:
                change(pid)
                found.append((name, pid))
            except OSError:
                continue
    return found


def left_behind():
    """Make memory, queues and semaphores that stay when their process has ended. Return the ids of those made."""
    made = libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)
    return [number for number in (*made, libc.syscall(240, b"left", os.O_CREAT | os.O_RDWR, 0o600, 0)) if number >= 0]


def read_host():
    found = []
    for path in TARGET["unreadable"]:
        for variant in (path, f"/proc/1/root{path}", f"/proc/self/root{path}", f"/proc/self/cwd/..{path}"):
            try:
                found.append(f"{variant}: {os.listdir(variant) if os.path.isdir(variant) else fails(variant)}")
            except OSError:
                continue
    return [item for item in found if not item.endswith(": []")]  # a hidden folder is empty


def write_host():
    found = []
    for path in TARGET["unwritable"]:
        try:
            Path(path, "written-by-a-candidate").write_text("x")
            found.append(path)
        except OSError:
            continue
    return found


def mount():
    here = b"/tmp"
    attempts = [
        libc.mount(b"none", b"/", None, 32 | 4096, None),  # remount, bind: writable
        libc.mount(b"none", b"/", None, 32, None),
        libc.mount(b"/", here, None, 4096, None),
        libc.mount(b"none", here, b"tmpfs", 0, None),
        libc.mount(b"proc", here, b"proc", 0, None),
        libc.umount2(here, 2),
        libc.chroot(here),
        libc.unshare(0x10000000 | 0x00020000),  # user and mount namespaces
        libc.unshare(0x00020000),
    ]
    return [number for number, result in enumerate(attempts) if result == 0]


def network():
    socket.create_connection(("127.0.0.1", TARGET["port"]), 2)
    return "connected"


def abstract_socket():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + TARGET["abstract"])
    return "connected"


def input_handles():
    """Yield a file descriptor of the inputs' memory for every way to get one."""
    lines = [line for line in open("/proc/self/maps") if "passbench-inputs" in line]
    assert lines
    paths = [f"/proc/self/map_files/{line.split()[0]}" for line in lines]
    for entry in os.listdir("/proc/self/fd"):
        link = f"/proc/self/fd/{entry}"
        if os.path.islink(link) and "passbench-inputs" in os.readlink(link):
            yield int(entry)
            paths.append(link)
    for path in paths:
        try:
            yield os.open(path, os.O_RDWR)
        except OSError:
            continue


def shared_pages():
    libc.mmap.restype = ctypes.c_void_p
    failed = ctypes.c_void_p(-1).value
    found = [line for line in open("/proc/self/maps") if "passbench-inputs" in line and line.split()[1][3] == "s"]
    for handle in input_handles():
        if libc.mmap(None, ctypes.c_size_t(4096), 3, 1, handle, ctypes.c_long(0)) != failed:
            found.append("mapped")
        calls = (os.pwrite, b"x", 0), (os.ftruncate, 0), (libc.fallocate, 3, ctypes.c_long(0), ctypes.c_long(64))
        for change, *arguments in calls:
            try:
                if change(handle, *arguments) != -1:
                    found.append("changed")
            except OSError:
                continue
    return found


def environment():
    return [name for name in os.environ if name == "PASSBENCH_TEST_SECRET"]


def descriptors():
    """Return the unreadable paths to which a descriptor of any process leads."""
    found = []
    for pid in [os.getpid(), *others()]:
        for entry in os.listdir(f"/proc/{pid}/fd") if os.access(f"/proc/{pid}/fd", os.R_OK) else []:
            try:
                path = os.readlink(f"/proc/{pid}/fd/{entry}")
            except OSError:
                continue
            found += [path for bad in TARGET["unreadable"] if path.startswith(bad)]
    return found


def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return "forked"


def vfork_and_exec():
    subprocess.run(["/bin/true"], check=False)
    return "ran"


def execute():
    os.execv("/bin/true-that-is-not-there", ["x"])


def affinity():
    os.sched_setaffinity(0, range(os.cpu_count()))
    return "changed"


def priority():
    os.nice(-1)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return "changed"


ALWAYS = {
    "memory by call": memory_by_call, "memory by /proc": memory_by_proc, "trace": trace,
    "environments": environments, "process 1": process_1, "limits": limits, "left": left_behind,
    "signal": signal_judge, "continue": continue_oneself, "host": read_host, "write": write_host, "mount": mount,
    "network": network, "abstract": abstract_socket, "pages": shared_pages, "environment": environment,
    "descriptors": descriptors,
}  # fmt: skip


def tell():
    reached = []
    for name, attempt in ALWAYS.items():
        try:
            result = attempt()
        except Exception:
            continue
        if result:
            reached.append(f"{name}: {result}"[:300])
        if name == "signal":
            reached.append("signal")
    print(f"PROBE {len(ALWAYS)} {reached}", flush=True, file=sys.stderr)


tell()
