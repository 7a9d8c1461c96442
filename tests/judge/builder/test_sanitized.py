"""Kernels run with sanitizers: the line of a mistake is named, and what cannot be run is said."""

from __future__ import annotations

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.judge.arms import sandbox
from shared.workspace import GELU_ADD_KERNEL, make_cpp_pass

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sandbox.walls().strong, reason="sanitizers need bubblewrap"),
]


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


def test_a_right_kernel_has_no_report(bench, capsys):
    code, output = explain(bench, capsys, GELU_ADD_KERNEL)
    assert (code, "sanitize" in output) == (0, False)


def test_a_compiler_without_sanitizers_is_named(bench, capsys, monkeypatch):
    monkeypatch.setattr("pytest_passbench.judge.builder.sanitized._SANITIZERS", ("-fsanitize=nothing",))
    code, output = explain(bench, capsys, GELU_ADD_KERNEL)
    assert code == 1
    assert "builds no program with -fsanitize=nothing: " in output


def test_without_a_task_there_is_nothing_to_run(bench, capsys):
    candidate = bench.candidate({"mine": make_cpp_pass()})
    assert main(["explain", str(candidate), "--sanitize"]) == 1
    assert "name a task" in capsys.readouterr().err
