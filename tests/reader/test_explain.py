"""Messages on failures of a candidate's Python: cause and places come first, with the paths that its author knows."""

from __future__ import annotations

import pytest

from pytest_passbench.core.run import Run
from pytest_passbench.judge.planning import reader_process
from pytest_passbench.judge.survey import survey
from pytest_passbench.report.report import caveats
from shared.workspace import AS_EAGER

HELPER = """
def checked(x):
    print("width", x.shape[-1])
    raise ValueError(f"needs a width of 64" + "!" * {width})
"""
BODY = "from pass_dir import helper\nreturn helper.checked(x)"


def failed(bench, wrapper, body=BODY, **helpers):
    bench.task()
    root = bench.candidate({"p": wrapper(body)}, **helpers)
    (record,) = bench.judge().values()
    return root, record.arm


def test_a_wrapper_that_raises(bench, wrapper):
    root, arm = failed(bench, wrapper, helper=HELPER.format(width=0))
    assert (arm.status, arm.phase) == ("runtime_fail", "wrapper")
    said = arm.message.splitlines()
    assert said[0] == "pass p: ValueError: needs a width of 64"
    assert said[1].startswith(f"{root}/helper.py:4 in checked: raise ValueError(")
    assert said[2] == f"{root}/p.py:11 in kernel: return helper.checked(x)"
    assert "Traceback (most recent call last):" in said
    assert "pytest_passbench/reader" not in arm.message
    assert arm.output.strip() == "width 32"


@pytest.mark.slow
@pytest.mark.sandbox
def test_what_takes_too_much_memory_while_it_is_read_is_ended(bench, wrapper, monkeypatch):
    monkeypatch.setattr(reader_process, "MAX_MEMORY_BYTES", 1 << 30)
    bench.task()
    head = "import time\nfull = b'x' * (2 << 30)\ntime.sleep(600)"
    bench.candidate({"p": wrapper(AS_EAGER, head)})
    (record,) = bench.judge().values()
    assert (record.arm.status, record.arm.phase) == ("crash", "load")
    assert record.arm.message == "took more than 1 GiB of memory while it was read"


@pytest.mark.sandbox
def test_what_is_read_by_itself_has_its_time_of_the_processor(bench, wrapper, monkeypatch):
    monkeypatch.setattr(reader_process, "LOADING_SECONDS", 1.0)
    busy = "rows = [[0 for _ in range(10) if False] for _ in range(10**10) if False]"
    folder = bench.candidate({"p": wrapper(AS_EAGER, busy)})
    (finding,) = survey(folder).findings
    assert (finding.severity, finding.rule) == ("error", "timeout")
    assert finding.message == "took more than 1 s of the processor's time while it was read"


@pytest.mark.slow
def test_a_long_message_is_cut_at_its_end(bench, wrapper):
    _, arm = failed(bench, wrapper, helper=HELPER.format(width=100_000))
    assert arm.message.startswith("pass p: ValueError: needs a width of 64!!!")


def test_a_pass_that_cannot_be_imported(bench, wrapper):
    bench.task()
    root = bench.candidate({"p": "from pass_dir import helper\n" + wrapper("return x")}, helper="import no_module")
    (record,) = bench.judge().values()
    said = f"pass p: import failed: ModuleNotFoundError: No module named 'no_module' ({root}/helper.py:1)"
    assert (record.arm.status, record.arm.message) == ("compile_fail", said)


TRITON = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def gelu_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, 0.5 * v * (1 + tl.erf(v * 0.7071067811865475)) + tl.load(y + at, mask=at < n), mask=at < n)
"""
LAUNCH = """
out = torch.empty_like(x)
gelu_add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
return out
"""
JIT = TRITON[TRITON.index("@triton.autotune") : TRITON.index("def gelu_add")]


@pytest.fixture
def triton():
    pytest.importorskip("triton")


def test_of_several_configurations_one_is_taken_where_nothing_can_be_tuned(triton, bench, wrapper):
    bench.task(dtypes=("float32",))
    bench.candidate({"p": wrapper(LAUNCH, TRITON)})
    (record,) = bench.judge().values()
    assert record.correct, record.arm.message
    assert record.arm.speed_note == "not measured (Triton's interpreter)"
    assert [item.untuned for item in record.passes] == [True]
    assert [text.partition("(")[0] for text in record.passes[0].plan][1:] == ["launch gelu_add"]
    assert record.passes[0].plan[-1].endswith(", the first of 2 configurations")
    said = "Nothing was tuned: 1 pass has @triton.autotune; the first valid configuration was taken."
    assert said in caveats(Run(records=[record]))


def test_of_a_single_configuration_there_is_nothing_to_tune(triton, bench, wrapper):
    bench.task(dtypes=("float32",))
    bench.candidate({"p": wrapper(LAUNCH, TRITON.replace(', triton.Config({"BLOCK": 512})', ""))})
    (record,) = bench.judge().values()
    assert record.correct, record.arm.message
    assert [item.untuned for item in record.passes] == [False]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text.replace("tl.erf(", "tl.erff("), "/p.py:11: pass p: triton.language has no erff"),
        (lambda text: text.replace(JIT, ""), "/p.py:19: pass p: the kernel wrapper launches a function without @"),
    ],
    ids=["typo", "no-jit"],
)
def test_a_mistake_in_a_triton_kernel(triton, bench, wrapper, spoil, said):
    bench.task()
    root = bench.candidate({"p": wrapper(LAUNCH, spoil(TRITON))})
    (record,) = bench.judge().values()
    assert (record.arm.status, record.arm.phase, record.findings) == ("compile_fail", "compile", [])
    assert record.arm.message.startswith(f"{root}{said}")


def test_a_triton_kernel_that_fails_when_it_runs(triton, bench, wrapper):
    bench.task()
    root = bench.candidate({"p": wrapper(LAUNCH, TRITON.replace("0.5 * v", "tl.arange(0, 3) * v"))})
    (record,) = bench.judge().values()
    assert (record.arm.status, record.arm.phase, record.findings) == ("compile_fail", "compile", [])
    said = record.arm.message.splitlines()
    assert "arange's range must be a power of 2" in said[0]
    assert said[1].startswith(f"{root}/p.py:11 in gelu_add: tl.store(out + at, tl.arange(0, 3) * v")


CALLED = """
import torch

def pattern(x, y):
    return torch.nn.functional.gelu(x) + y

def replacement_args({arguments}):
    return ({arguments},)

def square_sum({parameters}):
    raise AssertionError("is never called")

def replacement_func():
    return square_sum
"""


@pytest.mark.parametrize(
    ("parameters", "arguments", "said"),
    [
        ("x, dim", "x", "replacement_args returned 1 value, square_sum(x, dim) takes 2"),
        ("x", "x, y", "replacement_args returned 2 values, square_sum(x) takes 1"),
        ("x, y, z, dim=1", "x, y", "replacement_args returned 2 values, square_sum(x, y, z, dim=...) takes 3 to 4"),
        ("x, y, z, *more", "x", "replacement_args returned 1 value, square_sum(x, y, z, *more) takes 3 or more"),
    ],
)
def test_a_wrapper_that_takes_another_number_of_arguments(bench, parameters, arguments, said):
    bench.task(dtypes=("float32",), scales=(1, 2))
    root = bench.candidate({"p": CALLED.format(parameters=parameters, arguments=arguments)})
    for record in bench.judge().values():
        assert (record.arm.status, record.arm.phase) == ("runtime_fail", "plan")
        assert record.arm.message == f"{root}/p.py:7: pass p: {said}"


@pytest.mark.parametrize(
    ("pattern", "arguments", "said"),
    [
        ("x, y", "x, axis", "replacement_args takes axis; pattern has no such argument"),
        ("x, y, z", "x, z", "argument z is not used in pattern, so it stands for no value of the graph"),
    ],
)
def test_an_argument_that_stands_for_nothing_has_file_and_line(bench, pattern, arguments, said):
    bench.task(dtypes=("float32",))
    text = CALLED.format(parameters="a, b", arguments=arguments).replace("pattern(x, y)", f"pattern({pattern})")
    root = bench.candidate({"p": text})
    (record,) = bench.judge().values()
    assert (record.arm.status, record.arm.message) == ("compile_fail", f"pass p: {said} ({root}/p.py:7)")


def test_what_the_interpreter_runs_is_judged_on_the_smallest_subgraph_of_each_dtype(triton, bench, wrapper):
    bench.task(dtypes=("float32",), scales=(2, 1, 3))
    bench.candidate({"p": wrapper(LAUNCH, TRITON)})
    (record,) = bench.judge().values()
    assert record.correct, record.arm.message
    larger = [subgraph for subgraph in record.left_out if subgraph != record.subgraph]
    assert len(larger) == 2


@pytest.mark.slow
def test_an_import_of_triton_that_never_runs_leaves_nothing_out(bench, wrapper):
    bench.task(dtypes=("float32",), scales=(2, 1, 3))
    folder = bench.candidate({"p": wrapper(AS_EAGER)})
    (folder / "unused.py").write_text("if False:\n    import triton\n")
    found = bench.judge(policy="open")
    assert len(found) == 3
    assert not any(record.left_out for record in found.values())


def test_a_wrapper_that_raises_itself_is_shown_once(bench, wrapper):
    root, arm = failed(bench, wrapper, "raise ValueError('needs a width of 64')")
    text, place = arm.message.splitlines()
    assert text == "pass p: ValueError: needs a width of 64"
    assert place.startswith(f"{root}/p.py:")
    assert place.endswith(" in kernel: raise ValueError('needs a width of 64')")
