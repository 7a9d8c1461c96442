"""Answers that are right only for inputs like the recorded ones, and honest ones beside them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch

from pytest_passbench.judge.audits.beyond import NEAR_ANSWERS, Beyond, BeyondRounds, judged
from pytest_passbench.judge.inputs.beyond import Range, other_last_bits
from pytest_passbench.judge.measure import allowance
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.verify.outputs import Output, OutputForm
from pytest_passbench.protocol import KIND_TENSOR
from pytest_passbench.timing.looks import FIRST_LOOK

SOFTMAX = """
def forward(in_0):
    tmp_0 = torch.nn.functional.softmax(in_0, dim=-1)
    return (tmp_0,)
"""
SOFTMAX_PASS = """
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load('''
#include <algorithm>
#include <cmath>
#include <cstdint>
extern "C" void softmax(const float* x, float* out, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
        float most = GREATEST, sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += out[i] = std::exp(x[i] - most);
        for (int64_t i = 0; i < n; ++i) out[i] /= sum;
    }
}''')

def pattern(x):
    return torch.nn.functional.softmax(x, dim=-1)

def replacement_args(x):
    return (x,)

def softmax(x):
    out = torch.empty_like(x)
    lib.softmax(x, out, x.numel() // x.shape[-1], x.shape[-1])
    return out

def replacement_func():
    return softmax
"""
#: The first half of a kernel of gelu(x) + y that clamps x to the recorded range.
CLAMPED = "const double c = std::fmin(std::fmax(x[i], -2.0f), 2.0f); out[i] = "
GELU = "out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f)) + y[i];"
WITHIN = "mean: 0.0, std: 0.5, min: -2.0, max: 2.0"
BODIES = {
    "gelu-clamped": CLAMPED + "0.5 * c * (1.0 + std::erf(c * 0.70710678118654752)) + y[i];",
    "gelu-unclamped": "const double c = x[i] / std::sqrt(2.0); double term = c, erf = 0;"
    " for (int k = 0; k < 30; ++k) { erf += term / (2 * k + 1); term *= -c * c / (k + 1); }"
    " out[i] = 0.5 * x[i] * (1 + erf * 1.1283791670955126) + y[i];",
    "gelu-zero": GELU + " if (x[i] == 0) out[i] += 1;",
    "gelu-tiny": GELU + " if (std::fabs(x[i]) < 1e-30f) out[i] = 1;",
    "gelu-infinite": "if (!std::isfinite(x[i])) { for (int64_t j = 0; j < n; ++j) out[j] = x[i]; return; } " + GELU,
}

#: ``later`` is true in all calls of a block but the first: freed memory keeps the least address of an input so far.
LATER = """    volatile int64_t* memory = static_cast<volatile int64_t*>(std::malloc(1000));
    const bool later = memory[7] == 0x1234567890abcdef && (int64_t)x > memory[8];
    if (!later) memory[8] = (int64_t)x;
    memory[7] = 0x1234567890abcdef;
    std::free(const_cast<int64_t*>(memory));
"""
LOOP = "    for (int64_t i = 0; i < n; ++i) "


@pytest.mark.slow
def test_what_is_right_only_within_the_record_is_wrong_and_nobody_is_accused(bench, gelu_add_pass):
    for name, body in BODIES.items():
        bench.task(name, stats=WITHIN)
        bench.candidate({"p": gelu_add_pass.replace(GELU, f"{{ {body} }}")}, task=name)
    bench.task("honest-gelu", stats=WITHIN)
    bench.candidate({"p": gelu_add_pass}, task="honest-gelu")
    for name, most in (("softmax", "0"), ("honest-softmax", "*std::max_element(x, x + n)")):
        bench.task(name, SOFTMAX, ((16, 32),), ops=("softmax",), stats=WITHIN)
        bench.candidate({"p": SOFTMAX_PASS.replace("GREATEST", most)}, task=name)
    records = bench.judge(audit="paranoid")
    found = {key.partition("/")[0]: record for key, record in records.items()}
    assert [(name, record.findings) for name, record in found.items() if record.findings] == []
    for name in ("honest-gelu", "honest-softmax"):
        assert (found[name].arm.status, found[name].arm.correct_from[0] <= -5) == ("ran", True), found[name].arm
    for name in BODIES:
        assert (name, found[name].arm.correct_from) == (name, [99])
        assert "inputs" in found[name].arm.worst, name
    assert found["softmax"].arm.status == "nan_inf"
    assert "NaN or Inf where eager has none, for " in found["softmax"].arm.message


def test_a_kernel_that_is_right_in_the_first_call_of_a_block_alone_is_wrong(bench, gelu_add_pass, monkeypatch):
    # A slow machine may have blocks of one call, in which this kernel is honest.
    shape = allowance.shape
    monkeypatch.setattr(allowance, "shape", lambda *a, **k: replace(shape(*a, **k), calls=10))
    clamped = BODIES["gelu-clamped"].replace(
        CLAMPED, CLAMPED.replace("const double c = ", "const double c = !later ? x[i] : ")
    )
    text = gelu_add_pass.replace(LOOP, LATER + LOOP).replace(GELU, f"{{ {clamped} }}")
    bench.task(stats=WITHIN)
    bench.candidate({"p": text.replace("#include <cmath>", "#include <cmath>\n#include <cstdlib>")})
    (record,) = bench.judge(audit="standard").values()
    assert record.arm.correct_from == [99]
    assert "inputs" in record.arm.worst
    assert not record.findings


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[Output]:
    value = (q @ k.T).softmax(-1) @ v
    return [Output(OutputForm(KIND_TENSOR, "float32", "cpu", (*value.shape,), value.stride()), 0, value)]


def test_rounding_that_an_attention_makes_large_is_no_mistake_and_a_mistake_there_is():
    for seed in range(100):
        rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        inputs = [20 * torch.randn(256, 64, generator=generator) for _ in "qkv"]

        answer, *near = (
            attended(*(other_last_bits(value, rng) for value in inputs)) for _ in range(1 + NEAR_ANSWERS)
        )
        eager = attended(*inputs)
        assert not judged(eager, near, answer, -5, "for huge inputs", [-11]).broken, seed
        halves = attended(*(value / 2 for value in inputs))
        assert judged(eager, near, halves, -5, "for huge inputs", [-11]).broken, seed


def outputs(value):
    form = OutputForm(KIND_TENSOR, "float32", "cpu", tuple(value.shape), tuple(value.stride()))
    return [Output(form, 0, value)]


@pytest.mark.parametrize("error", [1e-2, 1e3])
def test_what_is_usual_in_a_matrix_is_not_what_its_first_column_has(error):
    """Of an upper triangle, the first column has a single element, which says nothing of the others' size."""
    expected = torch.full((4096, 256), 1e3).triu()
    expected[0, 0] = 1e-6
    answer = expected.clone()
    answer[4000, 0] = error
    verdict = judged(outputs(expected), [], outputs(answer), -5, "for huge inputs", [-11])
    assert verdict.broken == (error > 1)
    assert verdict.worst.startswith("output 0[4000, 0]: expected 0, got 1000 ") == (error > 1)


@pytest.mark.parametrize("shape", [(2,), (4, 1)])
def test_an_answer_of_another_form_is_wrong_there_too(shape):
    form, other = (OutputForm(KIND_TENSOR, "float32", "cpu", sizes, (1,) * len(sizes)) for sizes in ((4,), shape))
    verdict = judged([Output(form, 0, torch.zeros(4))], [], [Output(other, 0, None)], -5, "for huge inputs", [-11])
    assert (verdict.status, verdict.broken, verdict.correct_from) == ("type_mismatch", True, [99])
    right = "a float32 tensor of shape [4] on cpu"
    assert verdict.message == f"output 0 is not {right}, which eager returns for huge inputs"


@pytest.mark.parametrize("count", [3, 6, 11])
def test_each_pair_is_asked_and_the_first_look_about_all_ranges(count):
    ranges = [Range(f"range {number}", lambda of, _dtype: of) for number in range(count)]
    by_pair = [Counter() for _ in range(32)]
    for seed in range(200):
        rounds = BeyondRounds(random.Random(seed), 4, ranges)
        for pair, places in enumerate(by_pair):
            asked = [(place, beyond.name) for place in range(6) for beyond in rounds.after(place)]
            assert asked
            places.update(place for place, _ in asked)
            assert pair < FIRST_LOOK - 1 or not rounds.unasked
    assert all(set(places) >= set(range(4)) for places in by_pair)


def test_what_no_pair_was_asked_about_is_left():
    ranges = [Range(f"range {number}", lambda of, _dtype: of) for number in range(12)]
    rounds = BeyondRounds(random.Random(1), 4, ranges)
    asked = [beyond for place in range(4) for beyond in rounds.after(place)]
    assert asked
    assert len(asked) % 2 == 0
    assert [beyond for beyond in ranges if beyond not in asked] == rounds.unasked
    assert BeyondRounds(random.Random(1), 1, []).after(0) == []


TRITON = """
import triton
import triton.language as tl

@triton.jit
def gelu_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.minimum(tl.maximum(tl.load(x + at, mask=at < n), -2.0), 2.0)
    tl.store(out + at, 0.5 * v * (1 + tl.erf(v * 0.70710678118654752)) + tl.load(y + at, mask=at < n), mask=at < n)
"""


@pytest.mark.slow
@pytest.mark.parametrize("baselines", [(), ("inductor",)], ids=["alone", "beside a baseline"])
def test_a_candidate_that_is_not_timed_is_asked_too(bench, wrapper, baselines):
    pytest.importorskip("triton")
    bench.task(stats=WITHIN)
    launch = "out = torch.empty_like(x)\ngelu_add[(1,)](x, y, out, x.numel(), BLOCK=512)\nreturn out"
    bench.candidate({"p": wrapper(launch, TRITON)})
    (record,) = bench.judge(audit="standard", baselines=baselines).values()
    assert (record.arm.status, record.arm.correct_from) == ("ran", [99])
    assert "inputs" in record.arm.worst
    assert not record.findings


def test_they_are_made_in_each_pair_and_between_the_rounds(bench, gelu_add_pass, monkeypatch):
    events, fresh, run = [], CpuClock.fresh, Beyond.run
    monkeypatch.setattr(CpuClock, "fresh", lambda self: events.append("pair") or fresh(self))
    monkeypatch.setattr(Beyond, "run", lambda self, *asked: events.append("beyond") or run(self, *asked))
    bench.task()
    bench.candidate({"p": gelu_add_pass})
    (record,) = bench.judge(audit="standard").values()
    assert record.correct, record.arm.message
    pairs = "".join(event[0] for event in events).split("p")[1:]
    assert all(pairs[: len(record.arm.speed.pairs)]), events


def test_a_program_that_tells_the_range_by_the_mean_is_wrong(bench, gelu_add_pass, monkeypatch):
    """The mean tells all other ranges: a few large values among 4,096 hardly change it."""
    asked, near = [], Beyond._near
    monkeypatch.setattr(Beyond, "_near", lambda self, *question: asked.append(question) or near(self, *question))
    look = "    const float size = mean(x, n);\n"
    mean = (
        "static float mean(const float* x, int64_t n) { float sum = 0;"
        " for (int64_t k = 0; k < n; k++) sum += std::fabs(x[k]); return sum / n; }\n"
    )
    clamped = BODIES["gelu-clamped"].replace("const double c = ", "const double c = !(size < 0.8f) ? x[i] : ")
    text = gelu_add_pass.replace(LOOP, look + LOOP).replace(GELU, f"{{ {clamped} }}")
    bench.task(shapes=((64, 64), (64, 64)), stats=WITHIN)
    bench.candidate({"p": text.replace('extern "C"', mean + 'extern "C"', 1)})
    (record,) = bench.judge(audit="standard").values()
    assert record.arm.correct_from == [99]
    assert "for inputs with a few large values in " in record.arm.worst
    assert len(asked) >= NEAR_ANSWERS  # fewer answers could not exclude rounding


def test_a_sample_rarely_has_its_share_of_a_few_large_values():
    from pytest_passbench.judge.inputs.beyond import with_outliers

    near = 0
    for seed in range(300):
        values = with_outliers(torch.zeros(4096), random.Random(seed))
        assert values.count_nonzero() == 4
        near += abs(4 * float(values[::4].sum()) / float(values.sum()) - 1) < 0.1
    assert near < 300 / 5  # with equal values it would be two in five


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_variance_stays_positive_and_indices_stay_in_range(dtype):
    import torch

    from pytest_passbench.core.task import TensorSpec
    from pytest_passbench.judge.inputs import Inputs

    specs = [
        TensorSpec("variance", (500,), dtype, mean=0.5, std=1.0, min=0.0, max=9.0),
        TensorSpec("index", (500,), "int64", min=3.0, max=20.0),
        TensorSpec("given", (2,), dtype, data=(1.0, 2.0)),
        TensorSpec("mask", (500,), dtype, min=-3e38, max=0.0, mean=-1e38),
    ]
    inputs = Inputs(specs, b"a key")
    assert inputs.movable == [0]
    for where in inputs.ranges():
        other = inputs.beyond(where)
        variance, index, given, mask = other.call(other.draw(1), 0)
        assert variance.isfinite().all(), where.said
        assert (variance >= 0).all(), where.said
        assert not where.doubtful or variance.double().square().to(variance.dtype).isfinite().all(), where.said
        assert 3 <= int(index.min()) <= int(index.max()) <= 20
        assert given.equal(torch.tensor((1.0, 2.0), dtype=variance.dtype))
        assert len(mask.unique()) == 2
