"""A candidate's mistake is the failure of one subgraph, with a status of its own. The other subgraphs are judged."""

from __future__ import annotations

import pytest

from pytest_passbench.core.ladder import NEVER
from shared.workspace import make_cpp_pass, make_wrapper

HONEST = "return torch.nn.functional.gelu(x) + y"
FAULTS = {
    "raises": ("raise ValueError('no such luck')", "runtime_fail", "no such luck"),
    "exits": ("import os; os._exit(0)", "crash", "ended by itself"),
    "system-exit": ("raise SystemExit(0)", "runtime_fail", "SystemExit"),
    "segfault": ("import ctypes; ctypes.string_at(8)", "crash", "SIGSEGV"),
    "aborts": ("import os; os.abort()", "crash", "SIGABRT"),
    "too-much-memory": ("return torch.empty(1 << 46)", "runtime_fail", "memory"),
    "wrong-values": ("return torch.nn.functional.gelu(x) + y * 100", "ran", "times what t = -5 allows"),
    "nan": ("return torch.nn.functional.gelu(x) + y * float('nan')", "nan_inf", "NaN or Inf"),
    "shape": ("return (torch.nn.functional.gelu(x) + y)[:1]", "shape_mismatch", "[1, 32]"),
    "broadcastable": ("return (torch.nn.functional.gelu(x) + y)[None]", "shape_mismatch", "[1, 16, 32]"),
    "dtype": ("return (torch.nn.functional.gelu(x) + y).double()", "type_mismatch", "float64"),
    "two-outputs": ("return (torch.nn.functional.gelu(x), y)", "runtime_fail", "returns a tuple, not a tensor"),
    "not-a-tensor": ("return 3.0", "runtime_fail", "returns a float, not a tensor"),
    "strides": (
        "return (torch.nn.functional.gelu(x) + y).t().contiguous().t()",
        "type_mismatch",
        "output 0: has strides [1, 16], eager's are [32, 1]",
    ),
    "hangs": ("import time\nwhile True: time.sleep(0.01)", "timeout", "8 s"),
}


@pytest.fixture
def records(bench, wrapper):
    for name, (body, _status, _text) in FAULTS.items():
        bench.task(name)
        bench.candidate({"p": wrapper(body)}, task=name)
    bench.task("zz-honest")
    bench.candidate({"p": wrapper(HONEST)}, task="zz-honest")
    bench.task("zz-unknown", ops=("gelu", "mul"), source="def forward(in_0, in_1):\n    return (in_0 * in_1,)")
    bench.candidate({"p": wrapper(HONEST)}, task="zz-unknown")
    return bench.judge(timeout=8.0, policy="open")


CHILD = "import ctypes, os, time\nif os.fork() == 0:\n    time.sleep(600)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "head", "phase"),
    [(f"{CHILD}ctypes.string_at(8)", "", "wrapper"), (HONEST, f"{CHILD}ctypes.string_at(8)", "load")],
    ids=["recording", "reading"],
)
def test_a_crash_is_no_timeout_if_a_process_that_was_started_lives_on(bench, wrapper, body, head, phase):
    bench.task()
    bench.candidate({"p": wrapper(body, head)})
    (record,) = bench.judge(timeout=10.0, policy="open").values()
    assert (record.arm.status, record.arm.phase) == ("crash", phase)
    assert "SIGSEGV" in record.arm.message


def test_every_fault_has_its_status_and_says_why(records):
    for name, (_body, status, text) in FAULTS.items():
        arm = records[f"{name}/float32-x1"].arm
        assert (name, arm.status) == (name, status)
        assert text in arm.message + arm.worst, name
        assert status == "ran" or arm.speed is None
    honest = records["zz-honest/float32-x1"].arm
    assert (honest.status, honest.correct_from) == ("ran", [-11])
    assert honest.speed is not None
    assert honest.speed.low < honest.speed.ratio < honest.speed.high
    miss = records["zz-unknown/float32-x1"].arm
    assert miss.status == "pass_miss"
    assert "mul" in miss.message
    assert records["wrong-values/float32-x1"].arm.correct_from == [NEVER]
    assert [name for name, record in records.items() if record.correct] == ["zz-honest/float32-x1"]


SHORT = {
    "fewer-dimensions": ("torch.empty(x.shape[:1])", "shape_mismatch", "float32 [16]"),
    "one-column-less": ("torch.empty(x.shape[0], x.shape[1] - 1)", "shape_mismatch", "float32 [16, 31]"),
    "half-precision": ("torch.empty(x.shape, dtype=torch.bfloat16)", "type_mismatch", "bfloat16 [16, 32]"),
}


@pytest.mark.parametrize("pipeline", ["direct", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_a_kernel_never_runs_on_memory_of_a_wrong_form(bench, pipeline):
    for name, (out, _status, _found) in SHORT.items():
        bench.task(name)
        bench.candidate({"mine": make_cpp_pass(out=out)}, task=name)
    records = bench.judge(pipeline=pipeline)
    for name, (_out, status, found) in SHORT.items():
        arm = records[f"{name}/float32-x1"].arm
        assert (name, arm.status, arm.phase) == (name, status, "plan")
        said = f"pass mine returns {found}; the operators that it replaces give float32 [16, 32]"
        assert arm.message.endswith(f"/mine.py: {said}")


@pytest.mark.parametrize(("cast", "right"), [(".to(torch.bfloat16)", True), ("", False)])
def test_a_wider_dtype_fails_only_as_an_output(bench, cast, right):
    source = f"def forward(in_0, in_1):\n    return ((torch.nn.functional.gelu(in_0) + in_1){cast},)"
    ops = ("gelu", "add", "to") if cast else ("gelu", "add")
    bench.task(source=source, ops=ops, dtypes=("bfloat16",))
    bench.candidate({"p": make_wrapper("return (torch.nn.functional.gelu(x) + y).float()")})
    (record,) = bench.judge(policy="open").values()
    assert (record.correct, record.arm.status) == ((True, "ran") if right else (False, "type_mismatch"))


TWO_VALUES = "t = torch.nn.functional.gelu(x)\n    return (t, t + y)"


def returning(values):
    """Return a pass for gelu(x) and gelu(x) + y, whose wrapper returns ``values``."""
    text = make_cpp_pass().replace("return torch.nn.functional.gelu(x) + y", TWO_VALUES)
    return text.replace("    return out\n", f"    return {values}\n")


def test_a_value_that_nothing_uses_may_have_any_form(bench):
    bench.task()
    bench.candidate({"p": returning("(y[:1], out)")})
    (record,) = bench.judge().values()
    assert record.correct


def test_one_of_several_values_is_named_by_its_number(bench):
    bench.task()
    bench.candidate({"p": returning("(y, out[:1])")})
    (record,) = bench.judge().values()
    assert record.arm.status == "shape_mismatch"
    assert "returns float32 [1, 32] as value 2 of 2; the operators" in record.arm.message


def test_a_value_that_is_copied_into_a_tensor_may_have_another_dtype(bench):
    source = "def forward(in_0, in_1):\n    in_0.add_(in_1)\n    return (in_0,)"
    bench.task(source=source, ops=("add_",))
    text = make_wrapper("return (x + y).double()").replace("torch.nn.functional.gelu(x) + y", "x.add_(y)")
    bench.candidate({"p": text})
    (record,) = bench.judge(policy="open").values()
    assert record.correct


def test_strides_of_a_dimension_of_one_are_nobodys_concern(bench, wrapper):
    bench.task("row", shapes=((1, 32), (1, 32)))
    bench.candidate({"p": wrapper(f"z = {HONEST.removeprefix('return ')}\nreturn z.as_strided((1, 32), (7, 1))")})
    assert bench.judge(policy="open")["row/float32-x1"].correct


def test_output_of_a_candidate_is_kept_capped_and_escaped(bench, wrapper):
    bench.task("loud")
    body = "print('\\x1b[31mred', 'x' * 100000)\nreturn torch.nn.functional.gelu(x) + y"
    bench.candidate({"p": wrapper(body)}, task="loud")
    record = bench.judge(policy="open")["loud/float32-x1"]
    assert record.correct
    assert "\\x1b[31mred" in record.arm.output
    assert len(record.arm.output) < 20_000
    assert "\x1b" not in record.arm.output


CHANGING = {"one-element": "x.view(-1)[70_000] = 0.25", "all": "x.zero_()"}


@pytest.mark.parametrize("how", CHANGING)
def test_an_input_that_was_changed_is_found_whatever_its_size(bench, wrapper, how):
    bench.task("large", shapes=((256, 1024), (256, 1024)), scales=(1,))
    bench.candidate({"p": wrapper(f"z = {HONEST.removeprefix('return ')}\n{CHANGING[how]}\nreturn z")}, task="large")
    (record,) = bench.judge(policy="open").values()
    assert record.arm.status == "integrity"
    assert "input in_0 was changed in place" in record.arm.message
