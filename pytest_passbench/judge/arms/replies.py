"""The schemas of all control messages that the judge receives from zygotes, templates, runners and readers."""

from __future__ import annotations

from pytest_passbench.core.record import GeneratedCode
from pytest_passbench.core.schema import (
    ADDRESS,
    Anything,
    Fields,
    Flag,
    Items,
    Kinds,
    OneOf,
    Row,
    Share,
    Text,
    Whole,
    Word,
)
from pytest_passbench.core.typed import schema_of
from pytest_passbench.plans.graphs import MAX_CALLS
from pytest_passbench.plans.launch import MAX_GRAPH_CHARACTERS, MAX_SOURCE_CHARACTERS
from pytest_passbench.plans.regions import MAX_REGIONS
from pytest_passbench.protocol import MAX_OUTPUTS

_PID = Whole(0, 1 << 31)
_NAME = Text(400)
_LONG = Text(1 << 18)  # explanations: a long one is shortened when it is stored, not refused
_OPERATORS = Items(_NAME, most=1 << 16)

ZYGOTE = Fields({"status": Word("ready")})  # the zygote's first message
FORKED = Fields({"forked": _PID})  # the id of a forked process, inside the sandbox
SIGNALLED = Fields({"signalled": Flag()})  # the other processes of the sandbox were signalled
IMPORTED = Fields({"imported": Flag()})  # torch's compiler is imported
MOUNTED = Fields({"shown": Flag()})  # another candidate's files are in place, or could not be put there
ENDED = Fields({"ended": Items(Row(_PID, Whole(0, 127)), most=1 << 12)})  # children, with the signal that ended them

_PASS = Fields(
    {
        "name": _LONG,
        "matches": Whole(0, 1 << 31),
        "operators": _OPERATORS,
        "miss": _LONG,
        "computed": _OPERATORS,
        "nearness": Share(),
        "kind": Word("pattern", "region"),
        "left": Items(_LONG, most=1 << 12),
    }
)

_READY = Fields(
    {
        "passes": Items(_PASS, most=1 << 12),
        "working": Items(_LONG, most=1 << 12),
        "places": Items(Row(_LONG, _OPERATORS), most=1 << 12),
        "missed": Flag(),
        "mutated": Items(Whole(0, 1 << 16), most=1 << 10),
        "outputs": Whole(-1, 1 << 31),
    },
    optional={
        **dict.fromkeys(("interpreted", "native", "idles"), Flag()),
        "generated": schema_of(GeneratedCode),
    },
)
_FAILED = Fields({"phase": _NAME, "message": _LONG})

_REGIONS_OF = Fields({"name": _NAME, "graph": Text(MAX_GRAPH_CHARACTERS)})

#: A program is built, or could not be.
BUILT = Kinds(
    "status",
    {
        "ready": _READY,
        "compile_fail": _FAILED,
        "runtime_fail": _FAILED,
        "crash": _FAILED,  # the device cannot be used, or has no memory left
        # A launch plan that the template needs before it goes on. The capability is its CUDA device's (90 for 9.0).
        "wanted": Fields({"request": Anything()}, optional={"capability": Whole(10, 1000)}),
        # A question for the regions of a graph that a pass supports, which the template needs too.
        "regions": _REGIONS_OF,
    },
)

#: The first pass that matches a graph, the reports of passes that all miss it, a failure, or a question for regions.
MATCHED = Kinds(
    "status",
    {
        "matched": Fields({"name": _NAME}),
        "missed": Fields({"passes": Items(_PASS, most=1 << 12)}),
        "compile_fail": _FAILED,
        "runtime_fail": _FAILED,
        "regions": _REGIONS_OF,
    },
)

_TABLES = {"pages": ADDRESS, "entries": ADDRESS, "forms": ADDRESS, "text": ADDRESS, "width": Whole(0, MAX_OUTPUTS)}

_COPIES = {**dict.fromkeys(("copies", "input_copy", "device_seconds"), ADDRESS), "fill_rate": Whole(1, 1 << 60)}


def _runner(tables: dict[str, Whole]) -> Kinds:
    return Kinds("status", {"ready": Fields(tables), "crash": _FAILED, "runtime_fail": _FAILED})


#: A runner's first message: the addresses of its tables, or why it cannot serve. A runner on a device also gives the
#: addresses of its copies on the host. ``fill_rate`` is in bytes per second.
RUNNER, CUDA_RUNNER = _runner(_TABLES), _runner(_TABLES | _COPIES)

#: The keeper of the inputs on a device has made its memory, or could not.
KEEPER = Kinds("status", {"ready": Fields({}), "failed": Fields({"message": _LONG})})

#: The number of bytes of inputs that the keeper has copied to the device.
INPUTS_WRITTEN = Fields({"written": Whole(0, 1 << 60)})

_REFUSED = Fields({"rule": Text(40), "message": _LONG, "file": _NAME, "line": Whole(0, 1 << 31)})

#: A reader has loaded its passes, or could not.
READ = Kinds(
    "status",
    {
        "ready": Fields(
            {
                "passes": Items(
                    Kinds(
                        "kind",
                        {
                            # The place has file and line of replacement_args, if they are in the directory.
                            "pattern": Fields(
                                {"name": _NAME, "pattern": Anything(), "replacement": Anything(), "place": _NAME}
                            ),
                            "region": Fields({"name": _NAME}),
                            # For each registration, what it searches for.
                            "inductor": Fields(
                                {"name": _NAME, "searches": Items(Anything(), most=1 << 8), "place": _NAME}
                            ),
                        },
                    ),
                    most=1 << 12,
                )
            }
        ),
        "failed": Fields({"message": _LONG}),
    },
)

#: The kernels of a reader's modules.
KERNELS = Fields(
    {
        "libraries": Items(
            Row(Text(MAX_SOURCE_CHARACTERS), Items(_NAME, most=64), Flag(), _NAME, Whole(0, 1 << 31)), most=1 << 12
        ),
        "triton": Items(Text(MAX_SOURCE_CHARACTERS), most=1 << 12),
    }
)

#: A recording: a plan, whose content :mod:`pytest_passbench.plans.parse` checks, or why there is none.
RECORDED = OneOf({"plan": Anything(), "left": _NAME, "refused": _REFUSED, "raised": _LONG, "ended": Whole(0, 127)})

#: Regions of a graph, as names of nodes, or the reason why there are none.
REGIONS = OneOf({"regions": Items(Items(_NAME, MAX_CALLS), MAX_REGIONS), "raised": _LONG, "ended": Whole(0, 127)})
