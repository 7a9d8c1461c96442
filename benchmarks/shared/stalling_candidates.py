"""Candidates that keep the judge waiting: while they are read, recorded, compiled, called, audited."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared.workspace import AS_EAGER, GELU_ADD, GELU_ADD_KERNEL, Workspace, make_cpp_pass, make_wrapper

SLEEP = "import time; time.sleep(600)"
STOP = "import os, signal; os.kill({whom}, signal.SIGSTOP)"
#: A plan's two recordings run at the same time. Together they fork fewer processes than a sandbox may have.
FORKS = """
import os, time
for _ in range(25):
    if os.fork() == 0:
        while True:
            pass
time.sleep(600)
"""
#: Six matches of different shapes, each with a request of its own.
MATCHES = (
    "def forward(in_0, in_1):\n"
    + "".join(f"    a_{i} = in_0[:{i + 1}]\n    b_{i} = in_1[:{i + 1}]\n" for i in range(6))
    + "".join(f"    c_{i} = torch.nn.functional.gelu(a_{i})\n    d_{i} = c_{i} + b_{i}\n" for i in range(6))
    + f"    return ({''.join(f'd_{i}, ' for i in range(6))})"
)
#: Each function takes the compiler several seconds, and none of them reaches a limit of the compiler's.
COUNT = """
template <int N> constexpr int count() {
  unsigned v = N;
  for (int i = 0; i < 200000; ++i) v = v * 31 + i;
  return v & 1;
}
"""


def _spinning(when: str = "true", rounds: str = "1000000000000L") -> str:
    """Return a pass whose kernel counts to a number before it computes, if a condition of C++ is met."""
    spin = f"volatile int64_t spun = 0; if ({when}) for (int64_t i = 0; i < {rounds}; ++i) spun = spun + 1;"
    return make_cpp_pass(GELU_ADD_KERNEL.replace("int64_t n) {", f"int64_t n) {{ {spin}"))


def _compiling() -> str:
    functions = "\n".join(f"constexpr int c{i} = count<{i}>();" for i in range(60))
    return make_cpp_pass(f"{COUNT}{functions}{GELU_ADD_KERNEL}")


@dataclass(frozen=True)
class Stalling:
    """A candidate that stalls: its pass, the phases in which that may show, and another graph than usual."""

    code: str
    phases: tuple[str, ...]
    source: str = GELU_ADD


KINDS = {
    "import": Stalling(f"{SLEEP}\n{make_wrapper(AS_EAGER)}", ("load",)),
    "pattern": Stalling(make_wrapper(AS_EAGER).replace("(x, y):\n", f"(x, y):\n    {SLEEP}\n", 1), ("load",)),
    "wrapper": Stalling(make_wrapper(f"{SLEEP}\n{AS_EAGER}"), ("plan",)),
    "requests": Stalling(make_wrapper(f"import time; time.sleep(0.7)\n{AS_EAGER}"), ("plan", "build"), MATCHES),
    "compiling": Stalling(_compiling(), ("compile",)),
    "kernel": Stalling(_spinning(), ("run", "fork")),
    "some-calls": Stalling(_spinning("x[0] > 1.5f"), ("run", "fork")),
    "large-values": Stalling(_spinning("std::fabs(x[0]) > 50.0f"), ("run", "fork")),
    "stops-itself": Stalling(f"{STOP.format(whom='os.getpid()')}\n{make_wrapper(AS_EAGER)}", ("load",)),
    "stops-its-parent": Stalling(make_wrapper(f"{STOP.format(whom='os.getppid()')}\n{AS_EAGER}"), ("plan",)),
    "stops-all": Stalling(make_wrapper(f"{STOP.format(whom='-1')}\n{AS_EAGER}"), ("plan",)),
    "forks": Stalling(make_wrapper(f"{FORKS}\n{AS_EAGER}"), ("plan",)),
}  # fmt: skip
#: A kernel that takes a while, and comes to an end. With little time left it is measured by fewer pairs.
SLOW = Stalling(_spinning(rounds="1000000000L"), ())


def write(bench: Workspace, kinds: list[str]) -> Path:
    """Write a task for each of the kinds, and after each a task for an honest pass. Return the candidate."""
    for number, kind in enumerate(kinds):
        stalling, name = KINDS.get(kind, SLOW), f"{number:02d}-{kind}"
        bench.task(name, source=stalling.source)
        bench.candidate({"p": stalling.code}, task=name)
        bench.task(f"{number:02d}z-next")
        folder = bench.candidate({"p": make_wrapper(AS_EAGER)}, task=f"{number:02d}z-next")
    return folder
