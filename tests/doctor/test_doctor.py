"""The doctor on planted machines: every check, healthy and ill."""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pytest_passbench import doctor
from pytest_passbench.commands.main import main
from pytest_passbench.doctor import cpu_list, run_command

CPU = "sys/devices/system/cpu"
CGROUP = "sys/fs/cgroup"
SUPPLY = "sys/class/power_supply"
KERNEL = "proc/sys/kernel"


def done(code: int, output: str) -> CompletedProcess[str]:
    return CompletedProcess((), code, output)


class Planted:
    """A machine of planted files; ``commands`` maps a command's name to the command that was run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands = {"bwrap": done(0, "bubblewrap 0.8.0")}
        self.between: dict[str, str] = {}
        self.plant({f"{CPU}/online": "0-3", "proc/loadavg": "0.10 0.2 0.3 1/99 1234",
                    "proc/stat": "cpu 100 0 100 9000 0 0 0 0 0 0\ncpu0 1 1",
                    "proc/sys/user/max_user_namespaces": "15000"})  # fmt: skip

    def plant(self, files: dict[str, str]) -> Planted:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return self

    def pause(self) -> float:
        self.plant(self.between)
        return 1.0

    def checks(self) -> dict[str, doctor.Check]:
        machine = doctor.MachineProbe(self.root, lambda *words: self.commands.get(words[0]), self.pause)
        return {check.name: check for check in doctor.summary(machine)}

    def level(self, name: str) -> str:
        return self.checks()[name].level


@pytest.fixture
def machine(tmp_path):
    return Planted(tmp_path)


def test_a_healthy_machine_has_nothing_to_mend(machine):
    for cpu in range(4):
        machine.plant({f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "performance",
                       f"{CPU}/cpu{cpu}/topology/thread_siblings_list": str(cpu)})  # fmt: skip
    machine.plant({f"{CPU}/intel_pstate/no_turbo": "1"})
    checks = machine.checks()
    assert {check.level for check in checks.values()} == {"ok"}
    assert "GPU" not in checks
    assert "->" not in doctor.text(checks.values())


def test_a_machine_that_shows_nothing_is_unknown_and_not_a_fault(tmp_path):
    machine = doctor.MachineProbe(tmp_path, lambda *words: None, lambda: 1.0)
    levels = {check.name: check.level for check in doctor.summary(machine)}
    assert {name for name, level in levels.items() if level not in ("ok", "unknown")} == {"bubblewrap"}


ILL = [
    ("governor", {f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave"}, "warning", "cpupower"),
    ("turbo", {f"{CPU}/intel_pstate/no_turbo": "0"}, "warning", "no_turbo"),
    ("turbo", {f"{CPU}/cpufreq/boost": "1"}, "warning", "boost"),
    ("hyperthreads", {f"{CPU}/cpu0/topology/thread_siblings_list": "0,2",
                      f"{CPU}/cpu1/topology/thread_siblings_list": "1,3"}, "warning", "smt"),
    ("hyperthreads", {f"{CPU}/cpu0/topology/thread_siblings_list": "0-1"}, "problem", "smt"),
    ("power", {f"{SUPPLY}/BAT0/status": "Discharging"}, "warning", "plug"),
    ("power", {"sys/firmware/acpi/platform_profile": "low-power"}, "warning", "performance"),
    ("power", {f"{CPU}/intel_pstate/max_perf_pct": "60"}, "warning", "performance"),
    ("load", {"proc/loadavg": "2.00 1 1 1/1 1"}, "warning", "wait"),
    ("load", {"proc/loadavg": "4.00 1 1 1/1 1"}, "problem", "wait"),
    ("stolen time", {"proc/stat": "cpu 100 0 100 9000 0 0 0 20 0 0"}, "warning", "dedicated"),
    ("CPU quota", {f"{CGROUP}/cpu.max": "150000 100000"}, "problem", "quota"),
    ("CPU quota", {"proc/self/cgroup": "0::/a/b", f"{CGROUP}/a/cpu.max": "300000 100000",
                   f"{CGROUP}/a/b/cpu.max": "max 100000"}, "warning", "quota"),
    ("CPU quota", {"proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n0::/",
                   f"{CGROUP}/cpu,cpuacct/cpu.cfs_quota_us": "100000",
                   f"{CGROUP}/cpu,cpuacct/cpu.cfs_period_us": "100000"}, "problem", "quota"),
    ("CPU quota", {f"{CGROUP}/cpu.max": "400000 100000",
                   f"{CGROUP}/cpu.stat": "nr_periods 9\nnr_throttled 5"}, "warning", "quota"),
    ("user namespaces", {"proc/sys/user/max_user_namespaces": "0"}, "problem", "sysctl"),
    ("user namespaces", {f"{KERNEL}/unprivileged_userns_clone": "0"}, "problem", "sysctl"),
    ("user namespaces", {f"{KERNEL}/apparmor_restrict_unprivileged_userns": "1"}, "warning", "AppArmor"),
    ("memory reading", {f"{KERNEL}/yama/ptrace_scope": "3"}, "problem", "ptrace_scope"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "files", "level", "remedy"), ILL)
def test_an_ill_machine_is_told_its_remedy(machine, name, files, level, remedy):
    found = machine.plant(files).checks()[name]
    assert found.level == level
    assert remedy in found.remedy
    assert f"-> {found.remedy}" in doctor.text([found])


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("CPU quota", {f"{CGROUP}/cpu.max": "max 100000"}),
        ("CPU quota", {f"{CGROUP}/cpu.max": "400000 100000"}),
        ("CPU quota", {f"{CGROUP}/cpu/cpu.cfs_quota_us": "-1", f"{CGROUP}/cpu/cpu.cfs_period_us": "1"}),
        ("power", {f"{SUPPLY}/mouse/status": "Discharging", f"{SUPPLY}/mouse/scope": "Device"}),
        ("power", {f"{SUPPLY}/AC/online": "1"}),
        ("memory reading", {f"{KERNEL}/yama/ptrace_scope": "1"}),
    ],
)  # fmt: skip
def test_what_does_no_harm_is_ok(machine, name, files):
    check = machine.plant(files).checks()[name]
    assert (check.level, check.remedy) == ("ok", "")


@pytest.mark.parametrize("text", ["", "?", "cpu", "cpu x y z", "\x00\xff"])
def test_files_in_no_known_form_are_unknown(machine, text):
    machine.plant({"proc/stat": text, "proc/loadavg": text, "proc/7/stat": text})
    checks = machine.checks()
    assert checks["load"].level == checks["stolen time"].level == "unknown"
    assert checks["busy processes"].level == "ok"


def stat(pid: int, name: str, ticks: int) -> str:
    return f"{pid} ({name}) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0"


def test_spinning_processes_are_named(machine):
    machine.plant({"proc/7/stat": stat(7, "spin (a) b", 100), "proc/8/stat": stat(8, "idle", 5),
                   f"proc/{os.getpid()}/stat": stat(os.getpid(), "me", 0)})  # fmt: skip
    machine.between = {"proc/7/stat": stat(7, "spin (a) b", 290), "proc/9/stat": stat(9, "new", 900),
                       f"proc/{os.getpid()}/stat": stat(os.getpid(), "me", 999)}  # fmt: skip
    found = machine.checks()["busy processes"]
    assert found.level == "warning"
    assert found.found == "spin (a) b (7) 1.9 cores"


def test_a_shared_a_free_and_a_broken_gpu(machine):
    machine.commands["nvidia-smi"] = done(0, "4242, python\n")
    assert machine.checks()["GPU"].found == "shared with 4242, python"
    machine.commands["nvidia-smi"] = done(0, f"{os.getpid()}, python")
    assert machine.level("GPU") == "ok"
    machine.commands["nvidia-smi"] = done(9, "NVIDIA-SMI has failed\nmore")
    assert machine.level("GPU") == "problem"


def test_bubblewrap_missing_and_failing(machine):
    machine.commands["bwrap"] = done(1, "bwrap: setting up uid map: Permission denied")
    assert "Permission denied" in machine.checks()["bubblewrap"].found
    del machine.commands["bwrap"]
    assert "install" in machine.checks()["bubblewrap"].remedy


def test_commands_that_are_missing_fail_or_work():
    assert run_command("no-such-command-anywhere") is None
    failed, printed = run_command("false"), run_command("echo", "hello")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert (printed.returncode, printed.stdout) == (0, "hello\n")


def test_lists_of_cpus():
    assert cpu_list("0-3,8\n") == [0, 1, 2, 3, 8]
    assert cpu_list("") == cpu_list("a-b,-") == []


def test_the_command_prints_text_and_json(capsys):
    codes = (main(["doctor"]), main(["doctor", "--json"]))
    out = capsys.readouterr().out
    checks = json.loads(out[out.index("[\n") :])
    assert set(checks[0]) == {"name", "level", "found", "remedy"}
    # The load may change between the two calls, so only the second one's code is compared with its own output.
    assert codes[0] in (0, 1)
    assert codes[1] == int(any(c["level"] == "problem" for c in checks))
    assert all(check["name"] in out for check in checks)
