"""Properties of this machine that hurt timings or the sandbox, each with its remedy. Imports no torch.

The checks are of the processor, of other work on the machine, and of the kernel features that the sandbox needs, and
that the judge needs to look into it. They read files under a root, and run commands. Tests replace both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Level = Literal["ok", "warning", "problem", "unknown"]
TIMEOUT_SECONDS = 10
_CPU = "sys/devices/system/cpu"
_TICKS = os.sysconf("SC_CLK_TCK")
_KERNEL = "proc/sys/kernel"


@dataclass(frozen=True)
class Check:
    """The finding of one check. ``remedy`` is empty if nothing needs to be done.

    ``level`` "warning" makes intervals wider, "problem" makes results wrong or a run impossible, and "unknown"
    cannot be seen from here.
    """

    name: str
    level: Level
    found: str
    remedy: str = ""


def run_command(*command: str) -> subprocess.CompletedProcess[str] | None:
    """Run a command for at most :data:`TIMEOUT_SECONDS`. Return None if it is not installed.

    ``stdout`` has both streams. If the command cannot be run or takes longer, ``returncode`` is -1 and ``stdout`` is
    the error.
    """
    if shutil.which(command[0]) is None:
        return None
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, -1, str(error))


@dataclass(frozen=True)
class MachineProbe:
    """The source of what the checks read. ``pause`` waits between two samples of counters; it returns its seconds."""

    root: Path = Path("/")
    command: Callable[..., subprocess.CompletedProcess[str] | None] = run_command
    pause: Callable[[], float] = field(default=lambda: _pause(0.2))

    def read(self, path: str) -> str | None:
        """Return the stripped text of a file under the root, or None if it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return the whole number in a file, or None if it has none."""
        text = self.read(path)
        try:
            return int(text) if text is not None else None
        except ValueError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Return the matching paths relative to the root, sorted."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def cpus(self) -> int:
        """Return the number of logical CPUs that are online (at least 1)."""
        return max(1, len(cpu_list(self.read("sys/devices/system/cpu/online") or "0")))


def _pause(seconds: float) -> float:
    begin = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - begin


def cpu_list(text: str) -> list[int]:
    """Return the CPUs of the kernel's list form: "0-3,8" is [0, 1, 2, 3, 8]. Parts without numbers are left out."""
    result: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            result.extend(range(int(first), int(last or first) + 1))
    return result


def governor(machine: MachineProbe) -> Check:
    """Check that the clock frequency does not follow the load."""
    paths = machine.glob(f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor")
    governors = sorted({text for path in paths if (text := machine.read(path))})
    if not governors:
        return Check("governor", "unknown", "no frequency control is visible (virtual machine or container)")
    if governors == ["performance"]:
        return Check("governor", "ok", "performance")
    remedy = "sudo cpupower frequency-set -g performance"
    return Check("governor", "warning", f"{', '.join(governors)}: the frequency follows the load", remedy)


def turbo(machine: MachineProbe) -> Check:
    """Check that short bursts do not run faster than longer work."""
    no_turbo = machine.number(f"{_CPU}/intel_pstate/no_turbo")
    boost = machine.number(f"{_CPU}/cpufreq/boost")
    if no_turbo is None and boost is None:
        return Check("turbo", "unknown", "no turbo control is visible (virtual machine or container)")
    if no_turbo == 1 or boost == 0:
        return Check("turbo", "ok", "off")
    knob = (
        f"echo 1 | sudo tee /{_CPU}/intel_pstate/no_turbo"
        if no_turbo is not None
        else f"echo 0 | sudo tee /{_CPU}/cpufreq/boost"
    )
    return Check("turbo", "warning", "on: speed depends on temperature and on the other cores", knob)


def siblings(machine: MachineProbe) -> Check:
    """Check that no two logical CPUs share a core: work on one can halve the speed of a runner on the other."""
    paths = machine.glob(f"{_CPU}/cpu[0-9]*/topology/thread_siblings_list")
    groups = sorted({tuple(cpu_list(machine.read(path) or "")) for path in paths})
    if not groups:
        return Check("hyperthreads", "unknown", "no processor topology is visible")
    shared = [group for group in groups if len(group) > 1]
    if not shared:
        return Check("hyperthreads", "ok", "every logical CPU is a core of its own")
    listed = " ".join("+".join(map(str, group)) for group in shared[:8]) + (" ..." if shared[8:] else "")
    remedy = f"keep other work off the siblings, or: echo off | sudo tee /{_CPU}/smt/control"
    if len(groups) < 2:
        return Check("hyperthreads", "problem", f"judge and runner share the only core ({listed})", remedy)
    return Check("hyperthreads", "warning", f"logical CPUs share cores: {listed}", remedy)


def power(machine: MachineProbe) -> Check:
    """Check that the machine does not save power."""
    saving = _discharging(machine)
    profile = machine.read("sys/firmware/acpi/platform_profile")
    if profile in ("low-power", "quiet", "cool"):
        saving.append(f"platform profile {profile}")
    capped = machine.number(f"{_CPU}/intel_pstate/max_perf_pct")
    if capped is not None and capped < 100:
        saving.append(f"speed capped at {capped} %")
    if saving:
        remedy = "plug it in; powerprofilesctl set performance"
        return Check("power", "warning", "; ".join(saving), remedy)
    supplies = machine.glob("sys/class/power_supply/*")
    return Check("power", "ok", "on mains" if supplies else "no battery")


def _discharging(machine: MachineProbe) -> list[str]:
    batteries = []
    for supply in machine.glob("sys/class/power_supply/*"):
        # Mice and keyboards report batteries too, with the scope "Device".
        if machine.read(f"{supply}/scope") == "Device":
            continue
        if machine.read(f"{supply}/status") == "Discharging":
            batteries.append(f"{supply.rsplit('/', 1)[-1]} is discharging")
    return batteries


def load(machine: MachineProbe) -> Check:
    """Check the load average of the last minute."""
    text = (machine.read("proc/loadavg") or "").split()
    try:
        last_minute = float(text[0])
    except (IndexError, ValueError):
        return Check("load", "unknown", "no load average is visible")
    cpus = machine.cpus()
    average = f"{last_minute:.2f} on {cpus} CPUs"
    if last_minute <= 0.25 * cpus:
        return Check("load", "ok", average)
    level: Level = "problem" if last_minute >= cpus else "warning"
    return Check("load", level, average, "wait for it to fall, or stop what else runs")


def busy(machine: MachineProbe) -> Check:
    """Find other processes that use more than a fifth of a core now, whether their threads compute or spin."""
    before = _process_ticks(machine)
    seconds = machine.pause()
    after = _process_ticks(machine)
    this_process = os.getpid()
    using = {
        (pid, name): (ticks - before.get((pid, name), ticks)) / _TICKS / max(seconds, 1e-9)
        for (pid, name), ticks in after.items()
        if pid != this_process
    }
    heavy = sorted(((share, pid, name) for (pid, name), share in using.items() if share > 0.2), reverse=True)
    if not heavy:
        return Check("busy processes", "ok", "none")
    listed = ", ".join(f"{name} ({pid}) {share:.1f} cores" for share, pid, name in heavy[:5])
    remedy = "stop them (kill -STOP PID pauses one); OMP_WAIT_POLICY=passive keeps OpenMP pools from spinning"
    return Check("busy processes", "warning", listed, remedy)


def _process_ticks(machine: MachineProbe) -> dict[tuple[int, str], int]:
    """Return user and system ticks by (pid, name). The name stands in brackets, and may contain brackets itself."""
    ticks = {}
    for path in machine.glob("proc/[0-9]*/stat"):
        head, _, rest = (machine.read(path) or "").rpartition(")")
        values = rest.split()
        if len(values) > 12 and values[11].isdigit() and values[12].isdigit():
            pid, _, name = head.partition(" (")
            ticks[int(pid), name] = int(values[11]) + int(values[12])
    return ticks


def steal(machine: MachineProbe) -> Check:
    """Check the CPU time that the host gave to other machines since boot."""
    fields = (machine.read("proc/stat") or "").splitlines()[:1]
    values = [int(value) for value in fields[0].split()[1:] if value.isdigit()] if fields else []
    if len(values) < 8 or not sum(values[:8]):
        return Check("stolen time", "unknown", "no steal counter is visible")
    busy_ticks = sum(values[:8]) - values[3] - values[4]
    share = values[7] / max(busy_ticks, 1)
    stolen = f"{100 * share:.1f} % of the busy time since boot"
    if share <= 0.01:
        return Check("stolen time", "ok", stolen)
    return Check("stolen time", "warning", stolen, "use a machine with dedicated cores")


def quota(machine: MachineProbe) -> Check:
    """Check the container's CPU quota. A process that has used it up is stopped until the period ends."""
    cpus = machine.cpus()
    limits = [*_quota_v2(machine), *_quota_v1(machine)]
    if not limits:
        return Check("CPU quota", "ok", "none")
    cores, throttled = min(cores for cores, _ in limits), max(count for _, count in limits)
    allowance = f"{cores:g} of {cpus} CPUs" + (f", throttled {throttled} times" if throttled else "")
    remedy = "start the container without a quota (docker --cpuset-cpus in place of --cpus)"
    if cores < 2:
        return Check("CPU quota", "problem", f"{allowance}: judge and runner need two", remedy)
    if throttled or cores < cpus:
        return Check("CPU quota", "warning", allowance, remedy)
    return Check("CPU quota", "ok", allowance)


def _groups(machine: MachineProbe, controller: str) -> list[str]:
    """Return this process's control group of a controller ("" for version 2) and its parents, outermost first."""
    for line in (machine.read("proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            parts = [part for part in path.split("/") if part not in ("", "..")]
            return ["/".join(parts[:count]) for count in range(len(parts) + 1)]
    # Inside a container the path may be the host's; the mounted root is then this process's group.
    return [""]


def _quota_v2(machine: MachineProbe) -> list[tuple[float, int]]:
    quotas = []
    for group in _groups(machine, ""):
        folder = f"sys/fs/cgroup/{group}"
        limit, _, period = (machine.read(f"{folder}/cpu.max") or "").partition(" ")
        if limit.isdigit() and period.isdigit() and int(period):
            quotas.append((int(limit) / int(period), _throttled(machine, folder)))
    return quotas


def _quota_v1(machine: MachineProbe) -> list[tuple[float, int]]:
    quotas = []
    for mount in ("cpu", "cpu,cpuacct"):
        for group in _groups(machine, "cpu"):
            folder = f"sys/fs/cgroup/{mount}/{group}"
            limit = machine.number(f"{folder}/cpu.cfs_quota_us")
            period = machine.number(f"{folder}/cpu.cfs_period_us")
            if limit is not None and limit > 0 and period:
                quotas.append((limit / period, _throttled(machine, folder)))
    return quotas


def _throttled(machine: MachineProbe, folder: str) -> int:
    for line in (machine.read(f"{folder}/cpu.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "nr_throttled" and value.isdigit():
            return int(value)
    return 0


def gpu(machine: MachineProbe) -> Check | None:
    """Find other processes on a GPU. Return None without ``nvidia-smi``."""
    listed = machine.command("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
    if listed is None:
        return None
    if listed.returncode != 0:
        message = (listed.stdout.strip().splitlines() or ["no message"])[0]
        return Check("GPU", "problem", f"nvidia-smi fails: {message}", "check the driver and the container")
    lines = [line.strip() for line in listed.stdout.splitlines() if line.strip()[:1].isdigit()]
    others = [line for line in lines if line.partition(",")[0].strip() != str(os.getpid())]
    if others:
        text = "; ".join(others[:5])
        return Check("GPU", "warning", f"shared with {text}", "stop them, or use another GPU")
    return Check("GPU", "ok", "no other process")


def bubblewrap(machine: MachineProbe) -> Check:
    """Check that bubblewrap is installed, and that it starts a sandbox with the namespaces that a runner gets."""
    version = machine.command("bwrap", "--version")
    if version is None:
        remedy = "install bubblewrap (apt install bubblewrap); without it results say 'sandbox: weak'"
        return Check("bubblewrap", "problem", "not installed", remedy)
    options = ("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent")
    tried = machine.command("bwrap", *options, "--ro-bind", "/", "/", "true")
    if tried is not None and tried.returncode == 0:
        return Check("bubblewrap", "ok", version.stdout.strip() or "works")
    message = (tried.stdout.strip().splitlines() or ["no message"])[-1] if tried is not None else "not installed"
    remedy = "allow user namespaces; in a container: --security-opt seccomp=unconfined or a looser profile"
    return Check("bubblewrap", "problem", f"does not start: {message}", remedy)


def user_namespaces(machine: MachineProbe) -> Check:
    """Check that the kernel lets this user make user namespaces."""
    if not machine.glob("proc/sys/user/max_user_namespaces"):
        return Check("user namespaces", "unknown", "no setting is visible")
    if machine.number("proc/sys/user/max_user_namespaces") == 0:
        remedy = "sudo sysctl user.max_user_namespaces=15000"
        return Check("user namespaces", "problem", "switched off", remedy)
    if machine.number(f"{_KERNEL}/unprivileged_userns_clone") == 0:
        remedy = "sudo sysctl kernel.unprivileged_userns_clone=1"
        return Check("user namespaces", "problem", "not for ordinary users", remedy)
    if machine.number(f"{_KERNEL}/apparmor_restrict_unprivileged_userns") == 1:
        remedy = "an AppArmor profile for bwrap, or: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        return Check("user namespaces", "warning", "AppArmor restricts them", remedy)
    return Check("user namespaces", "ok", "available")


def memory_reading(machine: MachineProbe) -> Check:
    """Check that the judge may read its runners' memory (Yama's ptrace_scope; if it is absent, the judge may)."""
    scope = machine.number(f"{_KERNEL}/yama/ptrace_scope") or 0
    if scope >= 3 or (scope == 2 and os.geteuid() != 0):
        remedy = "sudo sysctl kernel.yama.ptrace_scope=1" + (" (after a restart)" if scope >= 3 else "")
        return Check("memory reading", "problem", f"forbidden (ptrace_scope {scope})", remedy)
    return Check("memory reading", "ok", "allowed")


_CHECKS = (
    governor, turbo, siblings, power,
    load, busy, quota, steal,
    gpu,
    bubblewrap, user_namespaces, memory_reading,
)  # fmt: skip


def summary(machine: MachineProbe | None = None) -> list[Check]:
    """Return every check's finding, in a fixed order, in about 0.3 s. Missing files and commands raise no error."""
    where = machine if machine is not None else MachineProbe()
    return [result for check in _CHECKS if (result := check(where)) is not None]


def text(findings: Iterable[Check]) -> str:
    """Return one line per check, and its remedy below each check that needs one."""
    lines = []
    for check in findings:
        lines.append(f"{check.level:8} {check.name:16} {check.found}")
        if check.remedy and check.level in ("warning", "problem"):
            lines.append(f"{'':8} {'':16} -> {check.remedy}")
    return "\n".join(lines)
