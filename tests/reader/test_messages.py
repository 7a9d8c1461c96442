"""Messages on what a wrapper must not do: one sentence, with the candidate's own file and line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

LIBRARY = '''
from pytest_passbench.kernels import cpp
lib = cpp.load("""#include <cmath>
#include <cstdint>
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f)) + y[i];
}""")
'''
LAUNCH = "out = torch.empty_like(x)\nlib.gelu_add(x, y, out, x.numel())\n"


@pytest.fixture
def judged(bench: Any, wrapper: Callable[..., str]) -> Callable[..., Any]:
    """Return a function that judges a wrapper with this body, and returns the record's arm."""

    def run(body: str, head: str = "", **settings: Any) -> Any:
        bench.task()
        bench.candidate({"gelu_add": wrapper(body, LIBRARY + head)})
        settings = {"audit": "standard", **settings}
        return bench.judge(**settings)["gelu-add/float32-x1"].arm

    return run


@pytest.mark.parametrize(
    ("body", "head", "said"),
    [
        ("if x[0, 0].item() > 9: pass\n" + LAUNCH + "return out", "", "reads a tensor's values (.item)"),
        ("if (x[0, 0] > 9): pass\n" + LAUNCH + "return out", "", "computes with torch (aten.gt.Scalar)"),
        (LAUNCH + "out.copy_(torch.from_numpy(x.numpy() + 1))\nreturn out", "", "reads a tensor's values (.numpy)"),
        (LAUNCH + "return out * 2", "", "computes with torch (aten.mul.Tensor)"),
        (
            LAUNCH + "return torch.compile(torch.add)(x, y)", "", "calls torch.compile inside a wrapper",
        ),
        (
            "out = torch.empty_like(x)\nlib.gelu_add(x.data_ptr() + (1 << 32), y, out, x.numel())\nreturn out", "",
            "passes an address that lies in no tensor of this call",
        ),
        (
            LAUNCH + "lib.gelu_add(x, y, out, x.data_ptr())\nreturn out", "",
            "passes an address as a number (argument 4 of gelu_add)",
        ),
        (
            LAUNCH + "KEPT[0].copy_(x)\nreturn out", "KEPT = torch.zeros(9999, 16, 32)",
            "made outside the call; all such tensors together may have 512 KiB, on the CPU",
        ),
        (LAUNCH + "out.set_(x)\nreturn out", "", "changes what memory a tensor has"),
    ],
    ids=("item", "value as truth", "numpy", "torch", "compile", "address", "number", "kept tensor", "memory"),
)  # fmt: skip
def test_a_refusal_names_file_line_and_what_was_done(
    judged: Callable[..., Any], body: str, head: str, said: str
) -> None:
    arm = judged(body, head)
    assert arm.status in ("runtime_fail", "integrity")
    assert arm.phase == "plan"
    assert said in arm.message
    file, line, _rest = arm.message.split(":", 2)
    assert file.rpartition("/")[2] == "gelu_add.py"
    assert int(line) > 0
    assert "\n" not in arm.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (LAUNCH + "return out, out", "returns a tuple"),
        (LAUNCH + "return None", "returns nothing, not a tensor"),
        ("return torch.empty_like(x)", "returns memory that no step wrote"),
        ("return x", "launches no kernel"),
    ],
    ids=("two for one", "nothing", "unwritten", "no kernel"),
)
def test_a_wrong_result_is_one_sentence(judged: Callable[..., Any], body: str, said: str) -> None:
    arm = judged(body)
    assert arm.status in ("runtime_fail", "integrity")
    assert said in arm.message
    if "step" not in said and "kernel" not in said:  # the judge sees a plan, and knows no line
        assert re.match(r"/.*/gelu_add\.py:\d+: ", arm.message)
    assert "gelu_add" in arm.message
    assert "\n" not in arm.message


@pytest.mark.parametrize(
    ("body", "head", "said"),
    [
        ("with torch.cuda.stream(SIDE):\n    pass\n" + LAUNCH, "SIDE = torch.cuda.Stream()", "uses streams"),
        ("torch.cuda.current_stream().wait_stream(None)\n" + LAUNCH, "", "uses streams"),
        ("torch.cuda.Event().record()\n" + LAUNCH, "", "uses streams"),
        ("with torch.cuda.graph(GRAPH):\n    pass\n" + LAUNCH, "GRAPH = torch.cuda.CUDAGraph()", "uses CUDA graphs"),
        ("GRAPH.replay()\n" + LAUNCH, "GRAPH = torch.cuda.CUDAGraph()", "uses CUDA graphs"),
    ],
    ids=("stream", "wait", "event", "capture", "replay"),
)
def test_streams_and_graphs_are_named(judged: Callable[..., Any], body: str, head: str, said: str) -> None:
    arm = judged(body + "return out", head)
    assert (arm.status, arm.phase) == ("runtime_fail", "plan")
    assert re.match(r"/.*/gelu_add\.py:\d+: ", arm.message)
    assert said in arm.message


@pytest.mark.slow
def test_contexts_and_waits_that_change_nothing_are_fine(judged: Callable[..., Any]) -> None:
    body = "with torch.cuda.device(0):\n    out = torch.empty_like(x)\n    lib.gelu_add(x, y, out, x.numel())\n"
    arm = judged(body + "torch.cuda.synchronize()\nreturn out", budget=0.5)
    assert arm.status == "ran", arm.message


def test_a_pattern_may_make_a_matrix_for_which_torch_imports_its_compiler(bench: Any) -> None:
    source = "def forward(in_0):\n    tmp_0 = torch.eye(32)\n    tmp_1 = in_0 + tmp_0\n    return (tmp_1,)\n"
    kernel = (
        "#include <cstdint>\n"
        'extern "C" void add_eye(const float* x, float* out) {\n'
        "    for (int64_t i = 0; i < 32 * 32; ++i) out[i] = x[i] + (i % 33 == 0);\n}"
    )
    bench.task(source=source, shapes=((32, 32),), ops=("eye", "add"))
    bench.candidate({"add_eye": (
        f'import torch\nfrom pytest_passbench.kernels import cpp\nlib = cpp.load("""{kernel}""")\n'
        "def pattern(x):\n    return x + torch.eye(32)\n"
        "def replacement_args(x):\n    return (x,)\n"
        "def kernel(x):\n    out = torch.empty_like(x)\n    lib.add_eye(x, out)\n    return out\n"
        "def replacement_func():\n    return kernel\n"
    )})  # fmt: skip
    record = bench.judge(audit="standard")["gelu-add/float32-x1"]
    assert record.correct, record.arm.message


def test_an_exception_of_the_wrapper_is_shown_with_its_place(judged: Callable[..., Any]) -> None:
    arm = judged("if x.shape[0] % 3: raise ValueError('rows come in threes')\n" + LAUNCH + "return out")
    assert (arm.status, arm.phase) == ("runtime_fail", "wrapper")
    assert "rows come in threes" in arm.message
    assert "gelu_add.py" in arm.message


@pytest.mark.slow
def test_a_wrapper_that_sleeps_past_the_time_out(judged: Callable[..., Any]) -> None:
    arm = judged("import time\ntime.sleep(60)\n" + LAUNCH + "return out", timeout=3.0)
    assert arm.status == "timeout"
    assert "no answer within the 3 s that a candidate has" in arm.message


def test_printing_and_keeping_numbers_is_fine_and_shown(judged: Callable[..., Any]) -> None:
    body = "KEPT.append(x.shape)\nprint('seen', len(KEPT), x.shape)\n" + LAUNCH + "return out"
    arm = judged(body, "KEPT = []", budget=0.5)
    assert arm.status == "ran", arm.message
    assert "seen 1" in arm.output


def test_state_kept_between_calls_is_not_there_in_the_next(judged: Callable[..., Any]) -> None:
    body = "if not KEPT:\n    KEPT.append(torch.empty_like(x))\n    lib.gelu_add(x, y, KEPT[0], x.numel())\n"
    body += "return KEPT[0]"
    arm = judged(body, "KEPT = []", budget=0.5)
    assert arm.status == "ran", arm.message  # the recorded call is always the first one
