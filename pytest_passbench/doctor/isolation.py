"""Checks of the kernel features that the sandbox and the judge's view into it need."""

from __future__ import annotations

import os

from pytest_passbench.doctor.machine import Check, MachineProbe

_KERNEL = "proc/sys/kernel"


def bubblewrap(machine: MachineProbe) -> Check:
    """Check that bubblewrap is installed, and that it starts a sandbox with the namespaces that a runner gets."""
    version = machine.command("bwrap", "--version")
    if version is None:
        remedy = "install bubblewrap (apt install bubblewrap); without it results say 'sandbox: weak'"
        return Check("bubblewrap", "problem", "not installed", remedy)
    options = ("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent")
    tried = machine.command("bwrap", *options, "--ro-bind", "/", "/", "true")
    if tried is not None and tried.code == 0:
        return Check("bubblewrap", "ok", version.text or "works")
    message = (tried.text.splitlines() or ["no message"])[-1] if tried is not None else "not installed"
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
