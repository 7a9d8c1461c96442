"""What CUDA's driver does behind weak walls, tried in a process like a template: prints the outcomes as JSON."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pytest_passbench.walls import confine, harden, seccomp

SCRATCH, DRIVER = sys.argv[1], sys.argv[2] == "driver"
READABLE = ["/usr", "/lib", "/lib64", "/etc", "/proc", sys.prefix, sys.base_prefix, str(Path.cwd())]


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def named_by_thread() -> str:
    """Return the outcome in a thread that began after the rules were installed."""
    found: list[str] = []
    own = lambda: Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/comm").write_text("cuda-X")  # noqa: E731
    thread = threading.Thread(target=lambda: found.append(outcome(own)))
    thread.start()
    thread.join()
    return found[0]


def bound(kind: int) -> None:
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC) as made:
        made.bind(f"\0passbench-{os.getpid()}-{kind}")


def tell() -> None:
    parent = os.getppid()
    print(
        json.dumps(
            {
                "own name": outcome(lambda: Path("/proc/self/comm").write_text("x")),
                "thread's name": named_by_thread(),
                "parent's name": outcome(lambda: Path(f"/proc/{parent}/task/{parent}/comm").write_text("x")),
                "killed last": outcome(lambda: Path("/proc/self/oom_score_adj").write_text("0")),
                "kernel": outcome(lambda: os.close(os.open("/proc/sys/kernel/domainname", os.O_WRONLY))),
                "scratch": outcome(lambda: Path(SCRATCH, "x").write_text("x")),
                "packets": outcome(lambda: bound(socket.SOCK_SEQPACKET)),
                "stream": outcome(lambda: bound(socket.SOCK_STREAM)),
                "network": outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET)),
                "limits": [resource.getrlimit(kind)[0] == resource.RLIM_INFINITY for kind in LIMITS],
            }
        )
    )
    sys.stdout.flush()


LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)


def main() -> None:
    before = [resource.getrlimit(kind)[0] == resource.RLIM_INFINITY for kind in LIMITS]
    assert all(before), "these limits are set outside of the test"
    confine.confine(READABLE, [SCRATCH, "/dev/null"], named=DRIVER)
    child = os.fork()
    if child == 0:
        harden.limit_resources(None if DRIVER else 1 << 40, None if DRIVER else 1 << 30, 4096)
        if DRIVER:
            confine.keep_own_names([SCRATCH, "/dev/null"])
        seccomp.untrusted(network=False, driver=DRIVER)
        tell()
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
