"""What a watched process of the candidate noted of itself, turned into findings. Untrusted: parsed and capped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocol import EVIDENCE_BYTES
from ...report.record import Finding
from ...settings import Policy
from ..failures import printable
from ..messages import BadMessage, parse
from ..replies import EVIDENCE
from ..runner import Runner
from .layers import violation

_WORDS = {
    "subprocess.Popen": "started a process", "os.system": "started a process", "os.exec": "started a process",
    "os.posix_spawn": "started a process", "os.fork": "forked", "os.forkpty": "forked", "os.kill": "sent a signal",
    "os.killpg": "sent a signal", "sys.settrace": "set a trace function", "sys.setprofile": "set a profile function",
    "sys._getframe": "looked at stack frames", "sys._current_frames": "looked at stack frames",
    "gc.get_objects": "walked the collector's objects", "gc.get_referrers": "walked the collector's objects",
    "gc.get_referents": "walked the collector's objects", "ctypes.dlopen": "opened a native library",
    "ctypes.string_at": "read raw memory", "ctypes.wstring_at": "read raw memory",
    "open": "opened a file outside scratch", "exec": "ran code made at run time",
    "compile": "compiled code at run time", "code.__new__": "made a code object",
    "object.__setattr__": "changed a function or class", "marshal.loads": "loaded byte code",
    "pickle.find_class": "unpickled",
}  # fmt: skip
#: Operators that allocate, describe, view or copy: what a wrapper may ask torch for.
_WORDS_PLAIN = """
    empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones
    full full_like new_full zero_ fill_ scalar_tensor lift lift_fresh tensor resize_ set_
    view reshape as_strided expand expand_as permute transpose t numpy_T unsqueeze squeeze flatten unflatten narrow
    select slice movedim moveaxis swapaxes swapdims diagonal chunk split tensor_split unbind detach detach_ ravel
    broadcast_to view_as view_as_real view_as_complex split_with_sizes hsplit vsplit dsplit unfold alias mT mH
    _reshape_alias _unsafe_view _reshape_copy resolve_conj resolve_neg to cpu contiguous clone copy_ reshape_as
    size stride numel dim is_contiguous storage_offset is_floating_point is_complex sym_size sym_stride sym_numel
    record_stream is_same_size data_ptr _has_compatible_shallow_copy_type
"""
_PLAIN = frozenset(_WORDS_PLAIN.split())
_MOST = 12


def from_events(events: Any) -> list[Finding]:
    """Findings of the load layer from ``[phase, event, detail, file, line]`` rows."""
    found: list[Finding] = []
    for row in events if isinstance(events, list) else []:
        if isinstance(row, list) and len(row) == 5 and len(found) < _MOST:
            phase, event, detail, file, line = (printable(str(item))[:200] for item in row)
            said = f"{_WORDS.get(event, event)} during {phase}" + (f": {detail}" if detail else "")
            found.append(violation("load", event, said, file, int(line) if line.isdecimal() else 0))
    return found


def from_operators(names: Iterable[Any], policy: Policy) -> list[Finding]:
    """Findings of the dispatch layer from the operators that ran inside replacements."""
    if policy == "open":
        return []
    foreign = sorted({printable(str(name))[:80] for name in names if not _plain(str(name))})[:_MOST]
    if not foreign:
        return []
    return [violation("dispatch", "torch-op", f"torch operators ran inside the replacement: {', '.join(foreign)}")]


def _plain(name: str) -> bool:
    space, _, rest = name.partition("::")
    return (space == "aten" and rest.split(".")[0] in _PLAIN) or space in ("c10d", "profiler")


def read(runner: Runner) -> dict[str, Any]:
    """What a stopped runner noted; empty where it is no such message. Raises ArmFailure."""
    address = runner.hello["evidence"]
    if not address:
        return {}
    data = bytes(runner.memory(address, EVIDENCE_BYTES)).split(b"\0", 1)[0]
    try:
        return dict(parse(EVIDENCE, data))
    except BadMessage:
        return {}
