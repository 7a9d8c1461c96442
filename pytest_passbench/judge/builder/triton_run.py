"""Runs Triton's compiler in a sandbox of its own: checked text in, machine code out.

The sandbox has Python, Triton, and this package without its judge. It has no file of a candidate, and no device.
Without bubblewrap, the compiler runs with the same limits and environment in a new empty folder.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_passbench.core.paths import IMPORTED_FROM
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.schema import Fields, Flag, Items, Kinds, Text, Whole, read
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.builder import process
from pytest_passbench.judge.builder.refusals import CompileFailed
from pytest_passbench.judge.scratch import Scratch
from pytest_passbench.plans.machine_code import ANSWER

TIMEOUT_SECONDS = 60  # for each launch
TOTAL_TIMEOUT_SECONDS = 300  # for all launches of a kernel that are ordered at once
MAX_MEMORY_BYTES = 4 << 30  # of each process
SCRATCH_BYTES = 256 << 20
_MAX_FILE_BYTES = 64 << 20
MAX_OUTPUT_BYTES = 128 << 20
_MESSAGE = Text(1 << 16)
#: The compiler's answer about a launch: a description of its code, or why there is no code.
DESCRIPTION = Kinds(
    "status",
    {
        "made": Fields(
            {
                "name": Text(400),
                "parameters": Items(Whole(1, 1 << 10), most=1 << 10),
                "shared": Whole(0, 1 << 20),
                "num_warps": Whole(1, 64),
                "num_ctas": Whole(1, 64),
                "scratch_bytes": Whole(0, 1 << 30),
                "cooperative": Flag(),
                "dependent": Flag(),
            }
        ),
        "error": Fields({"message": _MESSAGE, "line": Whole(0, 1 << 31), "said": _MESSAGE}),
        "ended": Fields({"ended": Whole(-64, 255), "said": _MESSAGE}),
        "late": Fields({}),
        "skipped": Fields({}),  # the launches before it took all the time
    },
)
_START = (
    f"import sys; sys.path.insert(0, {str(IMPORTED_FROM)!r}); "
    "from pytest_passbench.compiling.main import main; main()"
)
_SCRIPT = f"""
ulimit -c 0; ulimit -t {TIMEOUT_SECONDS}; ulimit -v {MAX_MEMORY_BYTES >> 10}; ulimit -f {_MAX_FILE_BYTES >> 9}
"$@" | head -c {MAX_OUTPUT_BYTES}
"""


def run(
    text: dict[str, Any],
    launches: Sequence[dict[str, Any]],
    capability: int,
    walls: sandbox.Walls,
    patience: float = math.inf,
) -> list[tuple[dict[str, Any], bytes]]:
    """Return a description (see :data:`DESCRIPTION`) and the machine code of each launch of a checked text.

    Raises :class:`CompileFailed` if the compiler does not start, or gives an answer of another form. Raises
    TimeoutError if it takes longer than the caller's ``patience`` in seconds.
    """
    job = {
        "text": text,
        "launches": list(launches),
        "capability": capability,
        "seconds": TIMEOUT_SECONDS,
        "seconds_in_all": TOTAL_TIMEOUT_SECONDS,
    }
    folder_context = contextlib.nullcontext(Path("/tmp")) if walls.strong else Scratch()
    with folder_context as folder:
        scratch = str(folder)
        program = ["/bin/sh", "-c", _SCRIPT, "sh", sandbox.interpreter(), "-P", "-W", "ignore", "-c", _START, scratch]
        command = sandbox.command(program, walls, devices=False, scratch_bytes=SCRATCH_BYTES)
        folders = {"HOME": scratch, "TMPDIR": scratch, "TRITON_CACHE_DIR": f"{scratch}/cache"}
        environment = sandbox.environment(1, "cuda", folders)
        limit = TIMEOUT_SECONDS + TOTAL_TIMEOUT_SECONDS
        _, data, output = process.run(command, json.dumps(job).encode(), environment, limit, patience)
    answers = list(_answers(data))
    if len(answers) != len(launches):
        message = output.decode(errors="replace").strip()[-2000:] or "it said nothing"
        raise CompileFailed(f"Triton's compiler gave {len(answers)} answers of {len(launches)}: {message}")
    return answers


def _answers(data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the description and code of each complete answer. Raises CompileFailed for an answer of another form."""
    place = 0
    while place + ANSWER.size <= len(data):
        described, code = ANSWER.unpack_from(data, place)
        place += ANSWER.size
        if place + described + code > len(data):
            return
        try:
            form = read(DESCRIPTION, data[place : place + described])
        except Rejected as error:
            raise CompileFailed(f"Triton's compiler answers in a form that is none: {error}") from error
        place += described + code
        yield form, data[place - code : place]
