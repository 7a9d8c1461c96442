"""The forms of all control messages that the judge hears: of a sandbox's zygote, a template, a runner."""

from __future__ import annotations

from ..protocol import EVIDENCE_BYTES, MAX_OUTPUTS
from .messages import ADDRESS, Fields, Flag, Items, Kinds, Maybe, Row, Text, Whole, Word

_PID = Whole(0, 1 << 31)
_NAME = Text(400)
_LONG = Text(1 << 18)  # what explains itself: shortened where it is kept, not refused
_OPERATORS = Items(_NAME, most=1 << 16)

#: What a zygote says first.
ZYGOTE = Fields(
    {
        "status": Word("ready"),
        "pid": _PID,
        "versions": Fields({"torch": _NAME, "python": _NAME, "triton": _NAME}),
    }
)

#: A process was forked.
FORKED = Fields({"forked": _PID})

#: Children that ended, with the signal that ended them.
ENDED = Fields({"ended": Items(Row(_PID, Whole(0, 127)), most=1 << 12)})

_PASS = Fields(
    {
        "name": _LONG,
        "matches": Whole(0, 1 << 31),
        "operators": _OPERATORS,
        "miss": _LONG,
        "computed": _OPERATORS,
    }
)

#: What Python's audit hook saw: phase, event, detail, file, line.
EVENTS = Items(Row(_NAME, _NAME, _LONG, _LONG, Maybe(Whole(0, 1 << 31))), most=1 << 10)

_READY = Fields(
    {
        "passes": Items(_PASS, most=1 << 12),
        "operators": _OPERATORS,
        "rewritten": Flag(),
        "missed": Flag(),
        "mutated": Items(Whole(0, 1 << 16), most=1 << 10),
        "outputs": Whole(-1, 1 << 31),
        "events": EVENTS,
    },
    optional={"interpreted": Flag()},
)
_FAILED = Fields({"phase": _NAME, "message": _LONG})

#: A program is built, or could not be.
BUILT = Kinds("status", {"ready": _READY, "compile_fail": _FAILED, "runtime_fail": _FAILED})

_TABLES = {
    "pid": _PID,
    "filtered": Flag(),
    "pages": ADDRESS,
    "entries": ADDRESS,
    "forms": ADDRESS,
    "text": ADDRESS,
    "width": Whole(0, MAX_OUTPUTS),
    "evidence": ADDRESS,
}

#: What a runner says first: where its tables lie.
RUNNER = Fields(_TABLES)

#: The same of a runner on a device, which keeps copies on the host.
CUDA_RUNNER = Fields({**_TABLES, "copies": ADDRESS, "input_copy": ADDRESS, "device_seconds": ADDRESS})

#: What a watched process notes of itself, in its memory.
EVIDENCE = Fields({"events": EVENTS, "operators": Items(Text(EVIDENCE_BYTES), most=EVIDENCE_BYTES)})
