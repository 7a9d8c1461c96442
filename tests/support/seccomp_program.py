"""A process that puts itself under a filter and tries system calls: ``python seccomp_program.py measured THREADS``,
``untrusted`` or ``none``. Prints the outcome of each, as JSON: "done" or the error's name. With several threads there
are two lines: before and after the first block. With ``refused`` it starts a zygote that cannot install filters,
with ``rules`` it confines itself while the kernel refuses Landlock's rules.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import signal
import socket
import sys
import threading
from collections.abc import Callable

from pytest_passbench.walls import seccomp
from pytest_passbench.walls.confine import confine
from pytest_passbench.walls.syscalls import SYSCALL_TABLES

CALLS = SYSCALL_TABLES[platform.machine()].calls
OPENAT = {"x86_64": 257, "aarch64": 56}[platform.machine()]
MEMFD = {"x86_64": 319, "aarch64": 279}[platform.machine()]
RESTRICT_SELF = 446  # of Landlock
AT_FDCWD, CLONE_PARENT, CLONE_NEWUSER = -100, 0x8000, 0x10000000
READ, WRITE, EXECUTE, PRIVATE, ANONYMOUS = 1, 2, 4, 2, 0x20
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number: str | int, *arguments: int | bytes) -> int:
    """Make a system call, and return its result. Raises OSError."""
    made = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result = int(libc.syscall(ctypes.c_long(CALLS[number] if isinstance(number, str) else number), *made))
    if result == -1:
        raise OSError(ctypes.get_errno(), str(number))
    return result


def child(flags: int) -> None:
    """Start a process with these flags, which ends at once."""
    pid = call("clone", flags, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if flags & 0xFF == signal.SIGCHLD and not flags & CLONE_PARENT:
        os.waitpid(pid, 0)


def in_thread() -> None:
    thread = threading.Thread(target=lambda: None)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EPERM, str(error)) from error
    thread.join()


def compute() -> None:
    """Do what computing needs: allocate and free memory, set a signal handler, yield, and use the channel."""
    for size in (100, 1 << 16, 1 << 28):
        ctypes.memset(ctypes.create_string_buffer(size), 1, min(size, 1 << 16))
    place = call("mmap", 0, 1 << 20, READ | WRITE, PRIVATE | ANONYMOUS, -1, 0)
    call("mprotect", place, 4096, READ)
    call("munmap", place, 1 << 20)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.sched_yield()
    OURS.send(b"x")
    THEIRS.recv(1)


def written(code: int) -> None:
    """Have the kernel write to this memory. Raises OSError if it cannot; a write of our own would end the process."""
    call("getrandom", code, 1, 0)


ZERO = os.open("/dev/zero", os.O_RDONLY)
OURS, THEIRS = socket.socketpair()
SELF, SIGCONT = os.getpid(), int(signal.SIGCONT)
PAGE = call("mmap", 0, 4096, READ | WRITE, PRIVATE | ANONYMOUS, -1, 0)
EVENT = ctypes.addressof((ctypes.c_int * 16)(0, 0, SIGCONT, 0))
TIMER = ctypes.addressof(ctypes.c_long())

#: Ways to get a SIGCONT, or a process that is not stopped with its parent.
CONTINUED = {
    "kill with SIGCONT": lambda: call("kill", SELF, SIGCONT),
    "tkill with SIGCONT": lambda: call("tkill", SELF, SIGCONT),
    "tgkill with SIGCONT": lambda: call("tgkill", SELF, SELF, SIGCONT),
    "timer": lambda: call("timer_create", 0, EVENT, TIMER),
    "message queue": lambda: call("mq_notify", 0, EVENT),
    "descriptor's signal": lambda: call("fcntl", OURS.fileno(), 10, SIGCONT),
    "terminal of one's own": lambda: call("ioctl", 0, 0x540E, 0),
    "parent's death, SIGCONT": lambda: call("prctl", 1, SIGCONT, 0, 0, 0),
    "parent's death, no signal": lambda: call("prctl", 1, 0, 0, 0, 0),
    "group of one's own": lambda: call("setpgid", 0, 0),
    "session of one's own": lambda: call("setsid"),
    "exit signal SIGCONT": lambda: child(SIGCONT),
    "child of the parent": lambda: child(CLONE_PARENT | signal.SIGCHLD),
    "child in a namespace": lambda: child(CLONE_NEWUSER | signal.SIGCHLD),
    "clone3": lambda: call("clone3", 0, 0),
    "personality": lambda: call("personality", 0x0400000),
}  # fmt: skip
OTHER = os.getppid()
_memory = (ctypes.c_int(0), (ctypes.c_ulong * 2)(), (ctypes.c_uint32 * 12)(48))
PARAMETER, LIMITS, ATTRIBUTES = map(ctypes.addressof, _memory)
CORE_FILES, REMOVE, CREATE = 4, 0, 0o1600
READERS, TEXT, FOLDER = 0, os.open(__file__, os.O_RDONLY), os.open("/tmp", os.O_RDONLY)


def lasting(get: str, control: str, *arguments: int) -> None:
    """Make something of System V that outlives its maker, and remove it at once."""
    call(control, call(get, 0, *arguments), REMOVE, REMOVE)


def queue() -> None:
    """Make a POSIX message queue, which outlives its maker, and remove it at once."""
    call("mq_open", b"passbench-test", os.O_CREAT | os.O_RDWR, 0o600, 0)
    call("mq_unlink", b"passbench-test")


#: Calls that change other processes, or leave something behind. One call both reads and sets another's limits.
LEFT = {
    "another's limits": lambda: call("prlimit64", OTHER, CORE_FILES, 0, LIMITS),
    "another's cores": lambda: call("sched_setaffinity", OTHER, 8, b"\xff" * 8),
    "another's scheduler": lambda: call("sched_setscheduler", OTHER, 0, PARAMETER),
    "another's parameters": lambda: call("sched_setparam", OTHER, PARAMETER),
    "another's attributes": lambda: call("sched_setattr", OTHER, ATTRIBUTES, 0),
    "another's priority": lambda: call("setpriority", 0, OTHER, os.getpriority(os.PRIO_PROCESS, OTHER)),
    "another's turn at disks": lambda: call("ioprio_set", 1, OTHER, 0),
    "another's memory moved": lambda: call("move_pages", OTHER, 0, 0, 0, 0, 0),
    "shared memory": lambda: lasting("shmget", "shmctl", 4096, CREATE),
    "semaphores": lambda: lasting("semget", "semctl", 1, CREATE),
    "queue": lambda: lasting("msgget", "msgctl", CREATE),
    "named queue": queue,
    "keyring": lambda: call("keyctl", 0, -3, 0),
    "lease of a file": lambda: call("fcntl", TEXT, 1024, READERS),
    "watch of a folder": lambda: call("fcntl", FOLDER, 1026, 4),
    "memory of no process": lambda: call(MEMFD, b"x", 0),
    "watches of files": lambda: call("inotify_init1", 0),
    "watches of file systems": lambda: call("fanotify_init", 0, 0),
}  # fmt: skip
#: Calls that libraries make, mostly about their own process, which glibc names as process 0.
ASKED = {
    "limits of one's own": lambda: call("prlimit64", 0, CORE_FILES, 0, LIMITS),
    "cores of one's own": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "cores of another": lambda: os.sched_getaffinity(OTHER),
    "scheduler of one's own": lambda: call("sched_setscheduler", 0, 0, PARAMETER),
}  # fmt: skip
#: Calls that no measured process makes.
STARTED = {
    "child": lambda: child(signal.SIGCHLD),
    "program": lambda: call("execve", b"/bin/true", 0, 0),
    "file to read": lambda: call(OPENAT, AT_FDCWD, b"/proc/self/status", 0, 0),
    "file in memory": lambda: call(MEMFD, b"x", 0),
    "file mapped": lambda: call("mmap", 0, 4096, READ | WRITE, PRIVATE, ZERO, 0),
    "memory moved": lambda: call("mremap", PAGE, 4096, 4096, 3, PAGE + (1 << 30)),
    "message with descriptors": lambda: call("recvmsg", OURS.fileno(), 0, 0),
    "socket": lambda: call("socket", 1, 1, 0),
    "executable memory": lambda: call("mmap", 0, 4096, READ | EXECUTE, PRIVATE | ANONYMOUS, -1, 0),
    "memory made executable": lambda: call("mprotect", PAGE, 4096, READ | EXECUTE),
    "signal to process 1": lambda: call("kill", 1, 0),
    "end of another": lambda: call("tgkill", os.getppid(), os.getppid(), 6),
    "affinity": lambda: call("sched_setaffinity", 0, 8, b"\1" * 8),
    "priority": lambda: call("setpriority", 0, 0, 1),
    "terminal": lambda: call("ioctl", 1, 0x5401, PAGE),
    "another filter": lambda: call("seccomp", 1, 0, PAGE),
    "reading": lambda: call("read", ZERO, PAGE, 1),
}
HONEST = {"compute": compute}
BUILDS = {"child": STARTED["child"], "file to read": STARTED["file to read"], "thread": in_thread}


def in_child(attempt: Callable[[], object]) -> Callable[[], None]:
    """Return the attempt in a process of its own, so that it does not change the next one."""

    def tried() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                attempt()
            except OSError as error:
                os._exit(error.errno or 0)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            raise OSError(code, "in a child")

    return tried


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def refuse(number: int) -> None:
    """Have the kernel refuse a system call from now on."""
    lines = [*seccomp.answer(seccomp.DENY, [number]), seccomp.op(seccomp.RETURN, 0, 0, seccomp.ALLOW)]
    seccomp.Filter(SYSCALL_TABLES[platform.machine()], lines).install()


def start_zygote() -> None:
    from pytest_passbench.protocol import READ, send
    from pytest_passbench.runner import zygote

    judge, inside = socket.socketpair()
    send(judge, {"pipeline": READ, "device": False})
    judge.close()
    sys.argv[1:] = [str(inside.fileno())]
    zygote.harden.same_layout = lambda: None  # else it would start this program anew
    zygote.main()


def main() -> None:
    if sys.argv[1] == "refused":
        refuse(CALLS["seccomp"])
        start_zygote()
    if sys.argv[1] == "rules":
        refuse(RESTRICT_SELF)
        confine(["/usr"], [])
    if sys.argv[1] == "none":
        attempts = {name: in_child(attempt) for name, attempt in {**CONTINUED, **LEFT, **ASKED}.items()}
    elif sys.argv[1] == "untrusted":
        seccomp.untrusted()
        attempts = {**BUILDS, **ASKED, **CONTINUED, **LEFT}
    else:
        made, threads = seccomp.measured(), int(sys.argv[2])
        assert made is not None
        made.install(threads)
        attempts = {**HONEST, **STARTED, **CONTINUED, **LEFT, "thread": in_thread}
        if threads > 1:
            code = call("mmap", 0, 4096, READ | WRITE | EXECUTE, PRIVATE | ANONYMOUS, -1, 0)
            sys.stdout.write(json.dumps({name: outcome(attempt) for name, attempt in attempts.items()}) + "\n")
            made.settle()
            attempts["code that can be written"] = lambda: written(code)
    sys.stdout.write(json.dumps({name: outcome(attempt) for name, attempt in attempts.items()}) + "\n")
    sys.stdout.flush()
    if sys.argv[-1] == "abort":
        os.abort()
    os._exit(0)  # as a measured process ends: callbacks lie in memory that cannot be written to any more


if __name__ == "__main__":
    main()
