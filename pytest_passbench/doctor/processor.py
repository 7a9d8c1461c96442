"""Checks of the processor: governor, turbo, hyperthreads, power."""

from __future__ import annotations

from pytest_passbench.doctor.machine import Check, MachineProbe, cpu_list

_CPU = "sys/devices/system/cpu"


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
    """Check that no two logical CPUs share a core: a neighbour then halves a runner's speed."""
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
