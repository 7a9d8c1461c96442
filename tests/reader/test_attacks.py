"""A reader that lies: for judge and template its messages are data, whatever functions they name."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from typing import Any

import pytest

from pytest_passbench.candidate.files import pack
from pytest_passbench.candidate.layout import PassDir
from pytest_passbench.judge.arms import processes, sandbox
from pytest_passbench.judge.arms.arm import Arm, ArmSettings
from pytest_passbench.judge.planning.reader_process import start_reader
from pytest_passbench.judge.survey import survey
from pytest_passbench.plans.graphs import from_data
from pytest_passbench.protocol import READ
from pytest_passbench.rewrite.meta import evaluate, metadata_nodes
from pytest_passbench.suite.taskfile import read_task

ARGUMENTS = {"arguments": ["x", "y"], "calls": [], "result": {"tuple": [{"node": 0}, {"node": 1}]}}
TOLD = """
import json
import pytest_passbench.reader.main as reader

def told(item):
    return {"name": item.name, **json.loads('''%s''')}

reader.pass_as_data = told
"""


def call(target: str, *arguments: Any, kind: str = "call_function", **keywords: Any) -> list[Any]:
    return [kind, target, list(arguments), keywords]


def node(number: int) -> dict[str, int]:
    return {"node": number}


def hidden(*calls: list[Any]) -> dict[str, Any]:
    """Return a pattern of gelu and add. The size of the result of the last of ``calls`` is gelu's second argument."""
    last = 1 + len(calls)
    return {
        "arguments": ["x", "y"],
        "calls": [
            *calls,
            call("size", node(last), kind="call_method"),
            call("torch.nn.functional.gelu", node(0), approximate=node(last + 1), generator=node(last)),
            call("operator.add", node(last + 2), node(1)),
        ],
        "result": node(last + 3),
    }


@pytest.fixture
def forged(bench, gelu_add_pass):
    """Return a function that writes a candidate whose reader sends this as its pass."""

    def make(pattern: Any, replacement: Any = ARGUMENTS) -> Any:
        told = json.dumps({"kind": "pattern", "pattern": pattern, "replacement": replacement, "place": ""})
        return bench.candidate({"p": TOLD % told.replace("\\", "\\\\") + gelu_add_pass})

    return make


def test_a_function_named_in_a_pattern_is_not_called_by_the_judge(bench, forged, tmp_path):
    task, mark = bench.task(), tmp_path / "called"
    run = hidden(call("torch._import_dotted_name", "os.system"), call("operator.call", node(2), f"touch {mark}"))
    found = survey(forged(run), task=read_task(task))
    assert not mark.exists()
    assert not found.plans


def test_a_function_named_in_a_pattern_is_not_called_by_a_template(bench, forged):
    bench.task()
    run = hidden(call("torch._import_dotted_name", "os.system"), call("operator.call", node(2), "echo I was called"))
    (record,) = bench.judge(forged(run)).values()
    assert record.arm.status == "pass_miss"
    assert "I was called" not in record.arm.output


@pytest.mark.parametrize(
    "calls",
    [
        [call("operator.pow", 10, node(1)), call("operator.pow", node(2), 10**18)],
        [call("operator.mul", node(1), "a"), call("operator.mul", node(2), 10**18)],
        [call("operator.add", node(1 + i), node(1 + i)) for i in range(100)],
        [call("tuple", [node(1 + i), node(1 + i)]) for i in range(100)],
    ],
    ids=["a-power", "a-repetition", "a-sum-of-sums", "a-tuple-of-tuples"],
)
def test_what_is_computed_of_sizes_stays_small(calls):
    size = call("dim", node(0), kind="call_method")
    traced = from_data({"arguments": ["x"], "calls": [size, *calls], "result": node(1 + len(calls))})
    metadata = metadata_nodes(traced.graph)
    nodes = list(traced.graph.nodes)
    assert nodes[-2] in metadata
    with pytest.raises(ValueError, match=r"larger|too many"):
        evaluate(nodes[-2], {nodes[1]: 3}, metadata)


def test_a_text_is_not_formatted_with_what_describes_a_tensor():
    formatted = call("format", "{0.__class__.__mro__}", node(1), kind="call_method")
    shape = call("getattr", node(0), "shape")
    traced = from_data({"arguments": ["x"], "calls": [shape, formatted], "result": node(2)})
    assert len(metadata_nodes(traced.graph)) == 1


TWO_CALLS = """
def forward(in_0, in_1):
    tmp_0 = torch.relu(in_0)
    tmp_1 = torch.neg(tmp_0)
    return (tmp_1 + in_1,)
"""
ONE_KERNEL = """
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load('''
#include <cstdint>
extern "C" void kernel(const float* x, float* out, int64_t n) {{
    for (int64_t i = 0; i < n; ++i) out[i] = {0};
}}''')

def pattern(x):
    return torch.{1}(x)

def replacement_args(x):
    return (x,)

def wrapper(x):
    out = torch.empty_like(x)
    lib.kernel(x, out, x.numel())
    return out

def replacement_func():
    return wrapper
"""


def test_two_libraries_with_a_function_of_one_name_are_two(bench):
    """The second one's descriptor has the number of the first one's, which is closed before."""
    bench.task(source=TWO_CALLS, ops=("relu", "neg", "add"))
    passes = {"one": ONE_KERNEL.format("x[i] > 0 ? x[i] : 0", "relu"), "two": ONE_KERNEL.format("-x[i]", "neg")}
    (record,) = bench.judge(bench.candidate(passes)).values()
    assert record.correct
    assert [item.matches for item in record.passes] == [1, 1]
    assert max(record.arm.correct_from) <= -10


OTHER_NAME = """
import pytest_passbench.reader.main as reader

told, serve = reader.pass_as_data, reader._serve
reader.pass_as_data = lambda item: {**told(item), "name": "another"}
reader._serve = lambda channel, order, passes, folder: serve(
    channel, order, {**passes, "another": passes["p"]}, folder
)
"""


def test_a_pass_that_broke_a_rule_stays_out_under_another_name_too(bench, gelu_add_pass):
    bench.task(scales=(1, 2))
    first = "if x.shape[0] == 16:\n        return torch.nn.functional.gelu(x) + y\n    out = "
    bench.candidate({"p": OTHER_NAME + gelu_add_pass.replace("out = ", first, 1)})
    assert {record.arm.status for record in bench.judge().values()} == {"integrity"}


NO_PLAN_OF_16 = """
import pytest_passbench.reader.main as reader
from pytest_passbench.plans import parse

answer = reader._answer

def changed(order, *rest):
    return {"plan": {}} if parse.request(order["request"]).tensors[0].form.shape[0] == 16 else answer(order, *rest)

reader._answer = changed
"""


def test_a_refused_plan_leaves_no_answer_for_the_next_request(bench, gelu_add_pass):
    bench.task(scales=(1, 2))
    bench.candidate({"p": NO_PLAN_OF_16 + gelu_add_pass})
    assert [record.arm.status for record in bench.judge().values()] == ["runtime_fail", "ran"]


LEADERLESS = """
import ctypes, os, threading, time

def work():
    while True:
        pass

if os.fork() == 0:
    threading.Thread(target=work).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # the first thread alone ends
time.sleep(0.3)
"""
WAITS_FOR_A_CHILD = """
import os, time

os.mkfifo("/tmp/fifo")
if os.fork() == 0:  # the child of its child does not come to its program, for which its parent can't be interrupted
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/tmp/fifo", os.O_RDONLY, 0)])
time.sleep(0.3)
"""


@pytest.fixture
def frozen(bench, gelu_add_pass):
    """Return a function that starts a reader of a pass that begins like this, and returns its frozen sandbox."""
    with contextlib.ExitStack() as stack:

        def make(head: str) -> Arm:
            candidate, walls = bench.candidate({"p": head + gelu_add_pass}), sandbox.walls()
            arm = Arm(ArmSettings("reader", "cpu", 1, READ, walls, 30.0))
            stack.callback(arm.close)
            with tempfile.TemporaryFile() as file:
                pack(candidate, file)
                reader = start_reader(arm, arm.show(file) or "", PassDir(candidate, ("p",)))
            stack.callback(reader.close)
            assert len(reader.passes()) == 1
            reader.freeze()
            return arm

        yield make


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_a_process_whose_first_thread_ended_is_stopped_with_the_others(frozen):
    inside = frozen(LEADERLESS).everything_inside()
    assert len(inside) == 2  # the reader, and the process without its first thread
    clocks = [processes.cpu_clock(pid) for pid in inside]
    before = [processes.cpu_seconds(clock) for clock in clocks]
    time.sleep(0.3)
    assert [processes.cpu_seconds(clock) for clock in clocks] == before


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_a_sandbox_that_cannot_be_stopped_is_emptied(frozen):
    start = time.monotonic()
    arm = frozen(WAITS_FOR_A_CHILD)
    while arm.everything_inside() and time.monotonic() - start < 60:
        time.sleep(0.01)
    assert arm.everything_inside() == []


MORE_LIBRARIES = """
import pytest_passbench.reader.main as reader

answer = reader._answer

def more(*arguments):
    told = answer(*arguments)
    source, flags, openmp, _name = told["plan"]["kernels"][0]["cpp"]
    for number in range(8):
        table = f"static constexpr int t[3000000] = {{1, {number}}};"
        extra = f'extern "C" void more(float* o) {{ {table} *o = t[int(*o)]; }}'
        told["plan"]["kernels"].append({"cpp": [source + extra, flags, openmp, "more"]})
    return told

reader._answer = more
"""


def test_libraries_that_would_fill_the_judge_are_refused(bench, gelu_add_pass):
    bench.task()
    bench.candidate({"p": MORE_LIBRARIES + gelu_add_pass})
    (record,) = bench.judge().values()
    assert record.arm.status == "runtime_fail"
    assert "brings libraries of more than 64 MiB" in record.arm.message


def test_a_kernel_cannot_count_calls_in_a_constant_table(bench, gelu_add_pass):
    bench.task()
    counting = gelu_add_pass.replace("int64_t n) {", "int64_t n, const float* table) {\n    *(float*)table += 1.0f;")
    counting = counting.replace("x.numel())", "x.numel(), TABLE)")
    bench.candidate({"p": f"import torch\n\nTABLE = torch.zeros(4)\n{counting}"})
    (record,) = bench.judge().values()
    assert record.arm.status == "crash"
