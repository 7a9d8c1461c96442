"""Checks of other work on the machine: load, busy processes, quota of the container, stolen time, GPUs in use."""

from __future__ import annotations

import os

from pytest_passbench.doctor.machine import Check, Level, MachineProbe

_TICKS = os.sysconf("SC_CLK_TCK")


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
    """Find other processes that use more than a fifth of a core just now: spinning threads and running jobs alike."""
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
    return Check("CPU quota", "warning" if throttled or cores < cpus else "ok", allowance, remedy)


def _groups(machine: MachineProbe, controller: str) -> list[str]:
    """Return our control group of a controller ("" for version 2) and all its parents, outermost first."""
    for line in (machine.read("proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            parts = [part for part in path.split("/") if part not in ("", "..")]
            return ["/".join(parts[:count]) for count in range(len(parts) + 1)]
    # Inside a container the path may be the host's; the mounted root is then our own group.
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
    if listed.code != 0:
        message = (listed.text.splitlines() or ["no message"])[0]
        return Check("GPU", "problem", f"nvidia-smi fails: {message}", "check the driver and the container")
    lines = [line.strip() for line in listed.text.splitlines() if line.strip()[:1].isdigit()]
    others = [line for line in lines if line.partition(",")[0].strip() != str(os.getpid())]
    if others:
        text = "; ".join(others[:5])
        return Check("GPU", "warning", f"shared with {text}", "stop them, or use another GPU")
    return Check("GPU", "ok", "no other process")
