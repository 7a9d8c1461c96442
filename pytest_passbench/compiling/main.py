"""The program in the sandbox of Triton's compiler: it turns checked text and launches into machine code.

Each launch is compiled in a fork, so a launch that takes too long or ends its process does not harm the others. No
device is needed: the job states the target, and Triton comes with an assembler.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_passbench.plans.machine_code import ANSWER
from pytest_passbench.runner.triton_kernels import make_kernel

MAX_PRINTED_BYTES = 4096  # that are kept of the compiler's output
MAX_MESSAGE_CHARACTERS = 8000  # that are kept of an error
NEARLY_ALL = 0.95  # of the memory that a process may have
#: A parameter in PTX: the bits of its type, and the length if it is an array. A float16 is an array of bytes.
_PARAMETER = re.compile(r"\.param\s[^,]*?\.[busf](\d+)\b[^,\[]*(?:\[(\d+)\])?")
_DIVISIBLE = [["tt.divisibility", 16]]


def main() -> None:
    """Answer the job on standard input, launch by launch, on standard output.

    The job has the fields ``text``, ``launches`` and ``capability``. Its limits are ``seconds`` for a launch and
    ``seconds_in_all``. The first argument is a folder to write in.
    """
    job, scratch = json.load(sys.stdin.buffer), Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that Triton's output does not mix with the answers
    _prepare()
    kernel = make_kernel(job["text"])
    deadline = time.monotonic() + job["seconds_in_all"]
    for launch in job["launches"]:
        left = min(job["seconds"], deadline - time.monotonic())
        described, code = _in_fork(kernel, launch, job["capability"], scratch, left)
        data = json.dumps(described).encode()
        answers.write(ANSWER.pack(len(data), len(code)) + data + code)
        answers.flush()
        shutil.rmtree(os.environ["TRITON_CACHE_DIR"], ignore_errors=True)


def _prepare() -> None:
    """Import what all forks need, and replace the hash of all of Triton's files.

    The hash takes long. It is a key of Triton's own cache, which is emptied after each launch.
    """
    import triton.compiler.code_generator  # noqa: F401
    from triton.compiler import compiler
    from triton.runtime import cache

    for module in (cache, compiler):
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: "one"


def _in_fork(
    kernel: Any, launch: dict[str, Any], capability: int, scratch: Path, seconds: float
) -> tuple[dict[str, Any], bytes]:
    """Return a launch's description and machine code, compiled in a fork within ``seconds``."""
    if seconds <= 0:
        return {"status": "skipped"}, b""
    answer = scratch / "answer"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        file = os.open(scratch / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        try:
            described, code = _compiled(kernel, launch, capability)
            answer.write_bytes(json.dumps(described).encode() + b"\n" + code)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        os._exit(0)
    ended = _wait(child, seconds)
    if ended is None:
        return {"status": "late"}, b""
    output = (scratch / "said").read_bytes()[-MAX_PRINTED_BYTES:].decode(errors="replace")
    if ended != 0:
        return {"status": "ended", "ended": ended, "said": output}, b""
    form, _, code = answer.read_bytes().partition(b"\n")
    form_data = json.loads(form)
    return (form_data | {"said": output} if form_data["status"] == "error" else form_data), code


def _wait(child: int, seconds: float) -> int | None:
    """Return the exit code of a child, or None if its time ran out. The child's own children are killed."""
    handle = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)  # it may not have made a group of its own yet
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ready else None


def _compiled(kernel: Any, launch: dict[str, Any], capability: int) -> tuple[dict[str, Any], bytes]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: _constant(kind) for name, kind in launch["signature"]}
    constants = {tuple(path): _constant(value) for path, value in launch["constants"]}
    multiples = {tuple(path): _DIVISIBLE for path in launch["multiples"]}
    try:
        source = ASTSource(kernel, signature, constants, multiples)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=launch["options"])
        return _description(compiled.metadata, compiled.asm["ptx"]), compiled.asm["cubin"]
    except Exception as error:
        line = getattr(getattr(error, "node", None), "lineno", 0)  # a CompilationError has it
        kind = "MemoryError" if _out_of_memory() else type(error).__name__
        return _error(f"{kind}: {error}", line), b""


def _out_of_memory() -> bool:
    """Return True if this process has used nearly all the memory that it may. Any error may follow from that."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    peak = re.search(r"^VmPeak:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    return limit != resource.RLIM_INFINITY and peak is not None and int(peak[1]) << 10 > NEARLY_ALL * limit


def _error(message: str, line: int = 0) -> dict[str, Any]:
    return {"status": "error", "message": message[-MAX_MESSAGE_CHARACTERS:], "line": line}


def _description(metadata: Any, ptx: str) -> dict[str, Any]:
    """Return the description of machine code that a launch needs, or an error if it needs what no launch has."""
    ctas = int(metadata.num_ctas)
    cluster = tuple(getattr(metadata, "cluster_dims", (ctas, 1, 1)))
    for name in ("profile_scratch_size", "tensordesc_meta"):
        if getattr(metadata, name, None):
            return _error(f"the kernel needs what a launch does not have ({name})")
    if cluster != (ctas, 1, 1):
        return _error(f"the kernel needs clusters of another form than {(ctas, 1, 1)}: {cluster}")
    return {
        "status": "made",
        "name": str(metadata.name),
        "parameters": _parameters(str(metadata.name), ptx),
        "shared": int(metadata.shared),
        "num_warps": int(metadata.num_warps),
        "num_ctas": ctas,
        "scratch_bytes": int(getattr(metadata, "global_scratch_size", 0) or 0),
        "cooperative": bool(getattr(metadata, "launch_cooperative_grid", False)),
        "dependent": bool(getattr(metadata, "launch_pdl", False)),
    }


def _parameters(name: str, ptx: str) -> list[int]:
    """Return the bytes of each parameter of the kernel, as its PTX declares them."""
    entry = re.search(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\n?\)", ptx, re.S)
    parameters = _PARAMETER.findall(entry[1]) if entry else []
    return [int(bits) // 8 * int(count or 1) for bits, count in parameters]


def _constant(value: Any) -> Any:
    """Return a constant, or a type of the signature, from JSON, in which a list stands for a tuple."""
    if isinstance(value, list):
        return tuple(_constant(item) for item in value)
    if isinstance(value, Mapping):
        [(tag, content)] = value.items()
        if tag == "float":
            return float(content)
        import triton.language as tl

        return getattr(tl, content)
    return value
