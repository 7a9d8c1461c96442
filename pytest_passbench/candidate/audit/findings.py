"""Findings of the source layer, collected once each, in the order of the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_passbench.report.record import Finding

Severity = Literal["violation", "warning"]

RULES: dict[str, tuple[Severity, str]] = {
    "torch-op": ("violation", "compute it in your own kernel; of torch only allocation, metadata and views"),
    "tensor-method": ("violation", "compute it in your own kernel; of a tensor only metadata and views"),
    "tensor-operator": ("violation", "an operator on a tensor is a torch call: compute it in your own kernel"),
    "reads-values": ("violation", "do not look at a tensor's values on the host; only at its metadata"),
    "tensor-patch": ("violation", "do not set attributes of a tensor"),
    "tensor-class": ("violation", "do not derive from torch's classes; return plain tensors"),
    "replacement": ("violation", "return a function of your own from replacement_func"),
    "unresolved": ("violation", "call functions by name, so that what is called can be read from the source"),
    "import": ("violation", "import only what docs/integrity-rules.md lists, and your own helper files"),
    "external": ("violation", "use only what docs/integrity-rules.md lists of this library"),
    "builtin": ("violation", "write the code out; nothing is looked up or run from strings"),
    "dunder": ("violation", "do not reach into Python objects through their special attributes"),
    "frame": ("violation", "do not walk frames, code objects or tracebacks"),
    "patch": ("violation", "do not assign to attributes of imported modules and classes"),
    "exit": ("violation", "raise an ordinary exception, or return"),
    "sys-path": ("violation", "add only the folder of your own file: os.path.dirname(__file__)"),
    "special-method": ("violation", "do not define this special method"),
    "kernel-body": ("violation", "a Triton kernel may use triton.language, constants and other kernels alone"),
    "address-cache": ("violation", "compute every call anew; do not keep results by address or identity"),
    "cache": ("warning", "a tensor kept between calls must not depend on inputs"),
    "state": ("warning", "a replacement should do the same at every call"),
    "native": ("violation", "a C++ kernel computes on its arguments, and does nothing else"),
    "native-include": ("violation", "include only the headers that docs/integrity-rules.md lists"),
    "native-unresolved": ("violation", "give cpp.load source text that can be read from the file"),
    "hidden-code": ("violation", "remove the file; a candidate is Python source and C++/CUDA text"),
    "stale-bytecode": ("warning", "remove __pycache__; byte code of a candidate is never loaded"),
    "link": ("violation", "put the file itself into the folder"),
    "encoding": ("violation", "save the file as UTF-8"),
    "shadow": ("violation", "rename the file; it hides a library"),
    "unreadable": ("violation", "write the file so that Python's parser can read it"),
    "syntax": ("warning", "mend the syntax error; this pass cannot load"),
    "missing-helper": ("warning", "put the helper into the pass folder"),
    "undefined": ("warning", "define the name; this will raise NameError"),
    "opaque-data": ("warning", "long encoded data is never needed by a kernel"),
}


@dataclass
class Report:
    """Collects findings; ``muted`` while the analysis still looks for its fixpoint."""

    found: dict[tuple[str, int, str, str], Finding] = field(default_factory=dict)
    muted: bool = False

    def add(self, rule: str, file: str, line: int, what: str) -> None:
        """Record ``what`` under ``rule``; the rule says how grave it is and what to do instead."""
        if self.muted:
            return
        severity, remedy = RULES[rule]
        finding = Finding("source", rule, severity, f"{what}: {remedy}", file, line)
        self.found.setdefault((file, line, rule, what), finding)

    def findings(self) -> list[Finding]:
        """All findings, violations first, then by file and line."""
        return sorted(self.found.values(), key=lambda f: (f.severity != "violation", f.file, f.line, f.rule))
