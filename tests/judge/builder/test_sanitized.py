"""Kernels run with sanitizers: messages name the line of a mistake, and what cannot be run."""

from __future__ import annotations

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.failures import ProcessLost
from pytest_passbench.judge.builder import sanitized
from shared.workspace import GELU_ADD_KERNEL, make_cpp_pass, make_wrapper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sandbox.walls().strong, reason="sanitizers need bubblewrap"),
]

LAUNCH = "out = torch.empty_like(x)\ngelu_add[(1,)](x, y, out, x.numel(), BLOCK=512)\nreturn out"
TRITON = """
import triton
import triton.language as tl

@triton.jit
def gelu_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, 0.5 * v * (1 + tl.erf(v * 0.70710678118654752)) + tl.load(y + at, mask=at < n), mask=at < n)
"""


def explain(bench, capsys, kernel):
    bench.task()
    candidate = bench.candidate({"mine": make_cpp_pass(kernel)})
    code = main(["explain", str(candidate), str(next(bench.tasks.glob("*.yaml"))), "--sanitize"])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("kernel", "report"),
    [
        (
            GELU_ADD_KERNEL.replace("i < n", "i <= n"),
            "mine.py:8: error [sanitize] heap-buffer-overflow: reads 4 bytes, 0 bytes past the end of a0",
        ),
        (
            GELU_ADD_KERNEL.replace("{\n", "{\n    out[0] = int32_t(n) << 30;\n"),
            "mine.py:8: error [sanitize] undefined behaviour: left shift of 512 by 30 places cannot be represented",
        ),
    ],
    ids=["address", "undefined"],
)
def test_a_mistake_is_named_with_its_line(bench, capsys, kernel, report):
    code, output = explain(bench, capsys, kernel)
    assert code == 1
    assert report in output


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_write_of_some_lanes_past_the_end_is_seen(bench, capsys, dtype):
    bench.task(dtypes=(dtype,), shapes=((3, 5), (3, 5)))
    types = "pb::dtype t, pb::in x, pb::in y, pb::out out, int64_t n"
    body = "pb::map<T>(n + 1, out, [](pb::vec a, pb::vec b) { return pb::gelu(a) + b; }, (const T*)x, (const T*)y);"
    dispatched = f"pb::dispatch(t, [&](auto zero) {{ using T = decltype(zero); {body} }});"
    kernel = f"extern \"C\" void f({types}) {{\n  {dispatched}\n}}"
    head = f"from pytest_passbench.kernels import cpp\nlib = cpp.load('''#include <passbench.h>\n{kernel}''')"
    wrapper = make_wrapper("out = torch.empty_like(x)\nlib.f(x.dtype, x, y, out, x.numel())\nreturn out", head)
    candidate = bench.candidate({"mine": wrapper})
    assert main(["explain", str(candidate), str(next(bench.tasks.glob("*.yaml"))), "--sanitize"]) == 1
    assert "past the end of" in capsys.readouterr().out


def test_a_right_kernel_has_no_report(bench, capsys):
    code, output = explain(bench, capsys, GELU_ADD_KERNEL)
    assert (code, "[sanitize]" in output) == (0, False)
    assert output.endswith("\n1 plan run with sanitizers: 0 errors\n")


#: A kernel that exits with a killed process's code in the program with sanitizers, and traps when it is judged.
EXITS = "\n#include <cstdlib>" + GELU_ADD_KERNEL.replace(
    "{\n", "{\n    if (__FILE__[0] == '/') std::exit(137);\n    __builtin_trap();\n", 1
)


def test_a_program_that_exits_like_a_killed_one_is_no_lost_process(bench, capsys):
    code, output = explain(bench, capsys, EXITS)
    assert (code, "[sanitize]" in output) == (0, False)
    assert output.endswith("\n1 plan run with sanitizers: 0 errors\n")


def test_a_kernel_that_crashes_stays_a_crash_whatever_its_program_with_sanitizers_exits_with(bench):
    bench.task()
    bench.candidate({"mine": make_cpp_pass(EXITS)})
    (record,) = bench.judge().values()
    assert (record.arm.status, record.judged) == ("crash", True), record.arm.message


def test_a_sandbox_that_the_program_ended_is_an_error_of_the_kernels(bench, capsys, monkeypatch):
    def lost(*_called):
        raise ProcessLost("killed")

    monkeypatch.setattr(sanitized, "run_compiler", lost)
    code, output = explain(bench, capsys, GELU_ADD_KERNEL)
    assert code == 1
    assert "[sanitize] the sandbox of the program with sanitizers was ended" in output


def test_only_plans_whose_kernels_run_are_counted(bench, capsys, monkeypatch):
    pytest.importorskip("triton")
    bench.task()
    candidate = bench.candidate({"mine": make_wrapper(LAUNCH, TRITON)})
    assert main(["explain", str(candidate), str(next(bench.tasks.glob("*.yaml"))), "--sanitize"]) == 0
    assert capsys.readouterr().out.endswith("\n0 plans run with sanitizers: 0 errors\n")
    monkeypatch.setattr("pytest_passbench.judge.builder.sanitized._SANITIZERS", ("-fsanitize=nothing",))
    _code, output = explain(bench, capsys, GELU_ADD_KERNEL)
    assert "\n0 plans run with sanitizers: 1 error\n" in output


def test_a_compiler_without_sanitizers_is_named(bench, capsys, monkeypatch):
    monkeypatch.setattr("pytest_passbench.judge.builder.sanitized._SANITIZERS", ("-fsanitize=nothing",))
    code, output = explain(bench, capsys, GELU_ADD_KERNEL)
    assert code == 1
    assert "builds no program with -fsanitize=nothing: " in output


def test_without_a_task_there_is_nothing_to_run(bench, capsys):
    candidate = bench.candidate({"mine": make_cpp_pass()})
    assert main(["explain", str(candidate), "--sanitize"]) == 1
    assert "name a task" in capsys.readouterr().err
