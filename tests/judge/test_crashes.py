"""A kernel that ends its process is named with its launch, its arguments, and the likely cause."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_passbench.judge import crashes
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.builder.compile_errors import CompileFailed, SourceError
from pytest_passbench.judge.crashes import crash_site
from pytest_passbench.protocol import TRACE_BYTES
from shared.workspace import GELU_ADD_KERNEL, make_cpp_pass

HEAD = 'extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {'
LOOP = "for (int64_t i = {}; i < {}; ++i) {}"
FAR = 1 << 22  # elements, which lead beyond the mapped memory of a small process
CRASHES = {
    "writes-behind": (LOOP.format("0", f"n + {FAR}", "out[i] = 1.0f;"), "SIG", "writes past the end of b0?"),
    "writes-before": (LOOP.format("1", f"{FAR}", "out[-i] = 1.0f;"), "SIG", "writes before the start of b0?"),
    "reads-behind": (LOOP.format("0", "1 << 30", "out[0] += y[n + (i << 16)];"), "SIG", "reads past the end of a1?"),
    "null-pointer": ("volatile float* p = n ? nullptr : out; *p = 1.0f;", "SIG", "writes through a null pointer?"),
    "stray": ("*(volatile float*)(out - (n << 24)) = 1.0f;", "SIGSEGV", "writes far from all of its arguments"),
    "no-address": ("*(volatile float*)(out + (n << 52)) = 1.0f;", "SIGSEGV", "uses an address that cannot exist"),
    "aborts": ("if (n) abort();", "SIGABRT", "calls abort, throws an exception"),
    "divides": ("volatile int64_t zero = 0; out[0] = n / zero;", "SIGFPE", "divides an integer by zero?"),
    "recurses": ("out[0] = deep(n, out);", "SIGSEGV", "or a stack that ran over?"),
    "spoils-malloc": (
        LOOP.format("0", "n + 10", "out[i] = 1.0f;"), "SIG", "past the end of b0? (at least 40 bytes beyond it)"
    ),
}  # fmt: skip
DEEP = "static float deep(int64_t n, volatile float* out) {\n  volatile float a[99]; a[n % 99] = 1;\n"
DEEP += "  return deep(n + 1, out) + a[n % 98] + out[0];\n}\n"


def crashing(body):
    return f"\n#include <cstdlib>\n{DEEP}{HEAD}\n  {body}\n}}"


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    from shared.workspace import Judges, Workspace

    with Judges() as judges, pytest.MonkeyPatch.context() as patch:
        patch.setattr(crashes, "MAX_SANITIZED", 0)  # sanitizers take seconds for each kernel
        bench = Workspace(tmp_path_factory.mktemp("crashes"), judges)
        for name, (body, _signal, _cause) in CRASHES.items():
            bench.task(name, shapes=((3, 7), (3, 7)))
            bench.candidate({"mine": make_cpp_pass(crashing(body))}, task=name)
        records = bench.judge()
    return {name.partition("/")[0]: record.arm for name, record in records.items()}


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_names_pass_launch_arguments_and_the_likely_cause(messages, name):
    arm, (_body, signal, cause) = messages[name], CRASHES[name][:3]
    assert arm.status == "crash", arm.message
    first, *arguments = arm.message.splitlines()
    assert first.startswith(f"the runner was killed by {signal}")
    assert "in gelu_add, launch 1 of 1 of pass mine: " in first
    assert cause in first
    assert arguments[:4] == ["  x = a0: float32 [3, 7]", "  y = a1: float32 [3, 7]", "  out = b0: float32 [3, 7]",
                         "  n = 21"]  # fmt: skip


@pytest.mark.parametrize("pipeline", ["direct", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_the_launch_of_several_is_the_one_that_crashes(bench, pipeline, monkeypatch):
    monkeypatch.setattr(crashes, "MAX_SANITIZED", int(pipeline == "direct"))
    body = LOOP.format("0", "1 << 30", "out[0] += x[n + (i << 16)];")
    second = f"{HEAD.replace('gelu_add', 'second')}\n  {body}\n}}"
    text = make_cpp_pass(GELU_ADD_KERNEL + second).replace(
        "    return out\n", "    z = torch.empty(3, 7)\n    lib.second(z, z, out, 21)\n    return out\n"
    )
    bench.task()
    bench.candidate({"mine": text})
    (record,) = bench.judge(pipeline=pipeline).values()
    assert record.arm.status == "crash", record
    first, *arguments = record.arm.message.splitlines()
    assert "in second, launch 2 of 2 of pass mine: reads past the end of b1?" in first
    assert arguments[2:4] == ["  out = b0: float32 [16, 32]", "  n = 21"]
    if sandbox.walls().strong and pipeline == "direct":
        assert "/mine.py:10: error: heap-buffer-overflow: reads 4 bytes, 0 bytes past the end of b1" in arguments[4]


PLAN = {
    "kernels": [{"cpp": [HEAD + "}", [], False, "gelu_add"]}],
    "steps": [{"launch": [0, [{"operand": ["argument", 0, 0, "float32", [4], [1]]}, 4]]}],
}


def test_each_plan_of_the_same_kernels_has_its_own_report(monkeypatch, tmp_path):
    longer = {**PLAN, "steps": [{"launch": [0, [{"operand": ["argument", 0, 0, "float32", [8], [1]]}, 8]]}]}

    def reported(plan, _walls):
        yield CompileFailed("", HEAD, (SourceError(1, 0, "heap-buffer-overflow"),) if plan == longer else ())

    monkeypatch.setattr(crashes, "sanitized", reported)
    arm = SimpleNamespace(settings=SimpleNamespace(walls=None))
    texts = [
        crashes.sanitizers_report(SimpleNamespace(arm=arm, planned=[("mine", plan)]), tmp_path)
        for plan in (PLAN, longer)
    ]
    assert texts[0] == ""
    assert "heap-buffer-overflow" in texts[1]


@settings(max_examples=200)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=22, max_size=22), st.booleans())
def test_any_page_is_read_as_data(words, likely):
    """The kernel can write to the page: any contents give a site of the plan, or none."""
    if likely:
        words[:3] = 1, 1, 1
    page = struct.pack("<22q", *words).ljust(TRACE_BYTES, b"\0")
    site = crash_site(page, [("mine", PLAN)])
    if likely:
        assert str(site).startswith("in gelu_add, launch 1 of 1 of pass mine")
        assert len(str(site)) < 400
