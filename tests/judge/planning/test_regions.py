"""Region passes: they are judged as any pass; a hostile or broken one gets one message that states the fault."""

from __future__ import annotations

import pytest

from support.forged_messages import CHANNELS

HEAD = CHANNELS + '''
import torch
from pytest_passbench.fusion import regions
from pytest_passbench.kernels import cpp

def tell(answer):
    say(json.dumps(answer).encode())
    os._exit(86)

BROKEN = "extern \\"C\\" void f(const float* x, float* y) { y = ; }"
EMPTY = "extern \\"C\\" void f(const float* x, float* y) {}"
'''
#: By name: the body of ``supported``, that of the wrapper, the status, and a part of the message.
SUPPORTED = {
    "no-such-node": ("tell({'regions': [['sigmoid']]})", "integrity", "with 'sigmoid', which is no call"),
    "an-input": ("tell({'regions': [['in_0']]})", "integrity", "with 'in_0', which is no call"),
    "twice": ("tell({'regions': [[node.name, node.name]]})", "integrity", "twice"),
    "in-two": ("tell({'regions': [[node.name], [node.name]]})", "integrity", "twice"),
    "empty": ("tell({'regions': [[]]})", "integrity", "an empty region"),
    "thousands": ("tell({'regions': [['gelu']] * 3000})", "integrity", "has 3000 items, not 0 to 128"),
    "numbers": ("tell({'regions': [[5]]})", "integrity", "is an integer, not a text"),
    "no-list": ("tell({'regions': 'gelu'})", "integrity", "is a text, not a list"),
    "another-answer": ("tell({'plan': {}})", "integrity", "is of unknown kind 'plan'"),
    "raises": ("raise ValueError('not today')", "runtime_fail", "ValueError: not today"),
    "no-bool": ("return 'yes'", "runtime_fail", "supported returned a str for"),
    "ends": ("os._exit(3)", "crash", "the process that runs pass p"),
    "two-parameters": ("return True", "runtime_fail", "missing 1 required positional argument"),
    "never-ends": ("time.sleep(99)", "timeout", ""),
}
WRAPPERS = {
    "wrapper-raises": ("raise KeyError('x')", "runtime_fail", "KeyError: 'x'"),
    "wrapper-computes": ("return region(*values)", "integrity", "computes with torch"),
    "wrapper-returns-nothing": ("return None", "runtime_fail", "returns nothing"),
    "wrapper-of-other-shape": (
        "out = torch.empty(3)\n    cpp.load(EMPTY).f(values[0], out)\n    return out",
        "shape_mismatch",
        "the operators that it replaces give",
    ),
}
LEFT = {
    "left-by-the-wrapper": ("raise NotImplementedError('too small')", "too small"),
    "left-as-it-does-not-compile": (
        "out = torch.empty_like(values[0])\n    cpp.load(BROKEN).f(values[0], out)\n    return out",
        "its kernel does not compile",
    ),
}


def region_pass(
    supported="return regions.supported(node)", wrapper="return regions.launch(region, *values)", extra=""
):
    return (
        f"{HEAD}\ndef supported(node{extra}):\n    {supported}\n\n"
        f"def wrapper(region, *values):\n    {wrapper}\n\ndef replacement_func():\n    return wrapper\n"
    )


@pytest.fixture(scope="module")
def records(shared_bench):
    bench = shared_bench

    def judged(name, text):
        bench.task(name)
        bench.candidate({"p": text}, task=name)

    for name, (body, _status, _message) in SUPPORTED.items():
        judged(name, region_pass(supported=body, extra=", other" if name == "two-parameters" else ""))
    for name, (body, *_rest) in {**WRAPPERS, **LEFT}.items():
        judged(name, region_pass(wrapper=body))
    judged("wrapper-of-no-tensors", region_pass().replace("def wrapper(region, *values)", "def wrapper(region)"))
    judged("nothing-supported", region_pass(supported="return False"))
    judged("two-kinds", region_pass() + "\ndef pattern(x):\n    return x.relu()\n\nreplacement_args = pattern\n")
    judged("zz-honest", region_pass())
    return bench.judge(timeout=10.0)


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_wrong_answer_about_regions_fails_with_a_message(records, name):
    arm = records[f"{name}/float32-x1"].arm
    assert arm.status == SUPPORTED[name][1], arm.message
    assert SUPPORTED[name][2] in arm.message


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_of_a_region_is_recorded_as_any(records, name):
    arm = records[f"{name}/float32-x1"].arm
    assert arm.status == WRAPPERS[name][1]
    assert WRAPPERS[name][2] in arm.message


def test_a_wrapper_that_takes_no_tensors_is_told_so(records):
    arm = records["wrapper-of-no-tensors/float32-x1"].arm
    assert "the region and its tensors are 3 values, wrapper(region) takes 1" in arm.message


@pytest.mark.parametrize("name", LEFT)
def test_a_region_without_a_kernel_is_left_to_eager(records, name):
    record = records[f"{name}/float32-x1"]
    assert record.arm.status == "pass_miss"
    (reason,) = record.passes[0].left
    assert LEFT[name][1] in reason


def test_a_pass_that_supports_nothing_has_missed(records):
    record = records["nothing-supported/float32-x1"]
    assert record.arm.status == "pass_miss"
    assert record.passes[0].miss == "it supports no operator of the graph"


def test_a_pass_has_a_pattern_or_regions(records):
    arm = records["two-kinds/float32-x1"].arm
    assert arm.status == "compile_fail"
    assert "defines both 'pattern' and 'supported'" in arm.message


def test_an_honest_region_pass_is_judged(records):
    record = records["zz-honest/float32-x1"]
    assert record.correct
    (report,) = record.passes
    assert (report.kind, report.matches, report.operators) == ("region", 1, ["gelu", "add"])
    assert any("launch" in step for step in report.plan)
