"""The audit layers, each by what it alone must catch, and honest passes beside them."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from pytest_passbench.core.record import Finding
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import CANDIDATE
from pytest_passbench.judge.audits import auditor
from pytest_passbench.judge.audits.findings import violation
from shared.workspace import make_cpp_pass

#: A kernel that keeps answers, by the address of an input and a sample of its contents.
SAMPLED = """
#include <vector>
struct Kept { const float* x; float a, b; std::vector<float> out; };
static std::vector<Kept> kept;
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
    for (auto& k : kept) if (k.x == x && k.a == x[0] && k.b == x[n - 1]) {
        for (int64_t i = 0; i < n; ++i) out[i] = k.out[i];
        return;
    }
    for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f)) + y[i];
    if (kept.size() < 4096) kept.push_back({x, x[0], x[n - 1], std::vector<float>(out, out + n)});
}"""
TORCH = "return torch.nn.functional.gelu(x) + y"
HIDDEN = """
out = []
thread = threading.Thread(target=lambda: out.append(torch.nn.functional.gelu(x) + y))
thread.start()
thread.join()
return out[0]
"""
#: A kernel that is right, or off by FACTOR if its output's memory holds NaN, as memory filled with one byte may.
ELSEWHERE = """
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
    float off = std::isnan(out[0]) ? FACTOR : 1.0f;
    for (int64_t i = 0; i < n; ++i) out[i] = off * (0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f)) + y[i]);
}"""

RELU_ADD = """
def forward(in_0, in_1):
    tmp_0 = in_0 + in_1
    tmp_1 = torch.nn.functional.relu(tmp_0)
    return (tmp_1,)
"""
#: A kernel that counts the negative numbers of ordinary size in its output's memory: an earlier answer has none.
COUNTING = """
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
    int64_t others = 0;
    for (int64_t i = 0; i < n; ++i) others += out[i] < -1e-3f && out[i] > -8;
    const bool earlier = others < n / 8;
    for (int64_t i = 0; i < n; ++i) { const float v = x[i] + y[i]; PART }
}"""
#: In memory without an earlier answer, the first part leaves zeros unwritten, and the second one rounds differently.
UNWRITTEN = "if (earlier || v > 0) out[i] = v <= 0 ? 0 : v;"
ROUNDED = "out[i] = v <= 0 ? 0 : (earlier ? 1 : 1.00002f) * v;"


def test_all_evidence_of_a_measured_candidate_becomes_findings(monkeypatch):
    """Each kind of evidence is about the clock of one candidate, and none may get lost on the way to its record."""
    kinds = ("strays", "excess", "others", "slowed", "first_call")
    for kind in kinds:
        monkeypatch.setattr(auditor.evidence, kind, lambda *_, kind=kind: [violation("clock", kind, kind)])
    floor = SimpleNamespace(findings=lambda: [violation("clock", "floor", "floor")])
    monkeypatch.setattr(auditor, "ClockFloor", lambda *_: floor)
    monkeypatch.setattr(auditor.Auditor, "_plausibility", lambda self, *_: self.findings.append(note("plausible")))
    clock = SimpleNamespace(
        runners={"candidate": None, "eager": None}, calls=1, slowed_pairs=lambda: (0, 0), leave_only=lambda _arm: None
    )
    audit = auditor.Auditor(Settings(), None, None, 1)
    audit.measured(None, clock, SimpleNamespace(standings={}), {"candidate": 1e-6}, SimpleNamespace(), None)
    assert [finding.rule for finding in audit.findings] == [*kinds, "floor", "plausible"]


def test_a_candidate_that_fails_while_it_is_measured_anew_is_not_rid_of_the_finding(monkeypatch):
    for kind in ("strays", "excess", "others", "slowed", "first_call"):
        monkeypatch.setattr(auditor.evidence, kind, lambda *_: [])
    floor = SimpleNamespace(findings=lambda: [violation("clock", "floor", "floor")])
    monkeypatch.setattr(auditor, "ClockFloor", lambda *_: floor)
    clock = SimpleNamespace(runners={CANDIDATE: None}, calls=1, slowed_pairs=lambda: (0, 0))

    def crash():
        raise ArmFailed(CANDIDATE, ArmFailure("crash", "run", "killed"))

    audit = auditor.Auditor(Settings(), None, None, 1)
    with pytest.raises(ArmFailed):
        audit.measured(None, clock, SimpleNamespace(standings={}), {}, SimpleNamespace(), crash)
    assert audit.violated


def note(rule):
    return Finding("plausibility", rule, "warning", rule)


def relu_add_pass(part):
    """Return a pass for relu(x + y) by a kernel with this part of a loop."""
    text = make_cpp_pass(COUNTING.replace("PART", part))
    return text.replace("torch.nn.functional.gelu(x) + y", "torch.nn.functional.relu(x + y)")


@pytest.mark.slow
def test_work_that_is_not_the_candidates_own_kernel_does_not_count(bench, wrapper, gelu_add_pass):
    bodies = {"torch": (TORCH, ""), "hidden-in-a-thread": (HIDDEN, "import threading"), "input": ("return x", "")}
    for name, (body, head) in bodies.items():
        bench.task(name)
        bench.candidate({"p": wrapper(body, head)}, task=name)
    bench.task("sampled")
    bench.candidate({"p": make_cpp_pass(SAMPLED)}, task="sampled")
    bench.task("zz-honest")
    bench.candidate({"p": gelu_add_pass}, task="zz-honest")
    arms = {name: record.arm for name, record in bench.judge(audit="standard").items()}
    torch_arm = arms["torch/float32-x1"]
    assert (torch_arm.status, torch_arm.phase) == ("integrity", "plan")
    assert "p.py:" in torch_arm.message
    assert "computes with torch (aten.gelu.default)" in torch_arm.message
    hidden = arms["hidden-in-a-thread/float32-x1"]
    assert (hidden.status, hidden.message) == (
        "runtime_fail", "pass p: the kernel wrapper returns a tensor made outside the call",
    )  # fmt: skip
    assert arms["input/float32-x1"].status == "integrity"
    assert "launches no kernel" in arms["input/float32-x1"].message
    assert (arms["sampled/float32-x1"].status, arms["sampled/float32-x1"].phase) == ("integrity", "kernel")
    assert arms["zz-honest/float32-x1"].status == "ran"
    assert all(arm.speed is None for name, arm in arms.items() if not name.startswith("zz"))


def test_a_kernel_cannot_tell_an_audit_by_memory_full_of_nan(bench):
    bench.task()
    bench.candidate({"p": make_cpp_pass(ELSEWHERE.replace("FACTOR", "0.5f"))})
    (record,) = bench.judge(audit="paranoid").values()
    assert (record.arm.status, record.findings) == ("ran", [])
    assert max(record.arm.correct_from) < -4


def test_a_kernel_that_takes_its_memory_for_an_earlier_answer_is_caught_in_other_memory(bench):
    bench.task(source=RELU_ADD, ops=("add", "relu"))
    bench.candidate({"p": relu_add_pass(UNWRITTEN)})
    (record,) = bench.judge(audit="standard").values()
    assert (record.arm.status, record.arm.phase) == ("integrity", "outputs")
    assert {finding.rule for finding in record.findings} == {"differs"}
    assert "in memory that held other values before" in record.arm.message


def test_who_rounds_differently_in_an_extra_block_is_inaccurate_and_not_accused(bench):
    bench.task(source=RELU_ADD, ops=("add", "relu"))
    bench.candidate({"p": relu_add_pass(ROUNDED)})
    (record,) = bench.judge(audit="standard").values()
    assert (record.arm.status, record.findings) == ("ran", [])
    assert record.arm.correct_from == [-4]
    assert "output 0" in record.arm.worst


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["dynamo", "inductor"])
def test_operators_inside_a_wrapper_are_seen_in_every_pipeline(bench, wrapper, gelu_add_pass, pipeline):
    for name, text in (("foul", wrapper(TORCH)), ("honest", gelu_add_pass)):
        bench.task(name)
        bench.candidate({"p": text}, task=name)
    records = bench.judge(audit="standard", pipeline=pipeline)
    assert records["foul/float32-x1"].arm.status == "integrity"
    assert "aten.gelu" in records["foul/float32-x1"].arm.message
    assert records["honest/float32-x1"].correct


def test_a_pass_that_broke_a_rule_is_out_and_the_others_are_in(bench, wrapper, gelu_add_pass):
    bench.task("a-relu", source="def forward(in_0, in_1):\n    return (torch.relu(in_0),)", ops=("relu",))
    bench.task("gelu-add")
    foul = wrapper("return x").replace("torch.nn.functional.gelu(x) + y", "torch.relu(x)").replace("(x, y)", "(x)")
    foul = foul.replace("return x\n", "return torch.relu(x)\n").replace("return (x)", "return (x,)")
    bench.candidate({"foul": foul, "honest": gelu_add_pass})
    records = bench.judge(audit="standard")
    relu, gelu = records["a-relu/float32-x1"], records["gelu-add/float32-x1"]
    assert relu.arm.status == "integrity"
    assert "foul.py:" in relu.arm.message
    assert "torch-op" in relu.arm.message
    assert (gelu.correct, gelu.findings) == (True, [])


def test_with_the_open_policy_torch_may_be_used(bench, wrapper):
    bench.task("gelu-add")
    bench.candidate({"p": wrapper(TORCH)})
    record = bench.judge(audit="standard", policy="open")["gelu-add/float32-x1"]
    assert (record.correct, record.findings) == (True, [])


def test_a_pass_caught_once_is_out_of_the_rest(bench, wrapper):
    bench.task("gelu-add", scales=(1, 2))
    bench.candidate({"p": wrapper(TORCH)})
    records = list(bench.judge(audit="standard").values())
    assert [record.arm.status for record in records] == ["integrity", "integrity"]
    assert records[1].arm.phase == "disqualified"


@pytest.mark.parametrize(
    ("blocks", "of_eager", "violations"),
    [
        ([(5e-4, 5e-4)] * 75 + [(4e-3, 5e-4)] * 5, 0, 0),
        ([(5e-4, 5e-4)] * 60 + [(4e-3, 5e-4)] * 20, 10, 0),
        ([(5e-4, 5e-4)] * 60 + [(1e-3, 5e-4)] * 20, 0, 1),
        ([(5e-4, 5e-4)] * 60 + [(1e-3, 5e-4)] * 20, 4, 1),
        ([(5e-5, 2e-5)] * 20, 0, 0),
        ([], 0, 0),
    ],
    ids=["hypervisor", "busy hypervisor", "thread elsewhere", "both", "stopping", "not timed"],
)
def test_cpu_time_beyond_the_cores_counts_in_more_blocks_than_a_hypervisor_disturbs(blocks, of_eager, violations):
    from pytest_passbench.judge.audits import evidence

    eager = [(4e-3, 5e-4)] * of_eager + [(5e-4, 5e-4)] * (80 - of_eager)
    clock = SimpleNamespace(cpu={"candidate": blocks, "eager": eager} if blocks else {})
    assert len(evidence.excess(clock, "candidate")) == violations


@pytest.mark.parametrize(
    ("calls", "singles", "violations"),
    [
        (16, [3.5e-3] * 5 + [2e-4] * 10, 0),
        (16, [3.5e-3] * 10 + [2e-4] * 5, 0),
        (16, [3.5e-3] * 15, 1),
        (4, [3.5e-3] * 15, 0),
    ],
    ids=["others had the core", "for longer", "every time", "more than the work of all: never a call's own"],
)
def test_a_dear_first_call_counts_where_it_is_dear_in_every_try(calls, singles, violations):
    from pytest_passbench.judge.audits import evidence

    left = list(singles)

    def alone(arm, count):
        return left.pop(0) if (arm, count) == ("candidate", 1) else 2e-4 * count

    assert len(evidence.first_call(SimpleNamespace(alone=alone), "candidate", calls)) == violations


def test_the_arms_cores_are_kept_awake_while_the_audit_times(bench, wrapper, monkeypatch):
    """A hypervisor may lend a core that went to sleep to others. A single call then seems to take long."""
    from pytest_passbench.judge.audits import evidence
    from pytest_passbench.judge.machine.cores import Awake
    from pytest_passbench.judge.measure.cpu_clock import CpuClock

    monkeypatch.setattr(evidence, "MAX_FIRST_RATIO", 0)  # blocks of any length, since that of this one is noise
    let_go, seen, off, alone = [], [], Awake.off, CpuClock.alone

    @contextlib.contextmanager
    def noted(self):
        let_go.append(self)
        with off(self):
            yield
        let_go.pop()

    monkeypatch.setattr(Awake, "off", noted)
    monkeypatch.setattr(CpuClock, "alone", lambda *asked: seen.append(list(let_go)) or alone(*asked))
    bench.task("gelu-add")
    bench.candidate({"p": wrapper(TORCH)})
    bench.judge(audit="standard", policy="open")
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("what", ["one part is another's", "no number", "rounded"])
def test_beyond_rounding_is_what_is_stale_or_no_number_but_not_what_an_exponential_makes_of_a_rounded_logit(
    dtype, what, masked
):
    from pytest_passbench.judge.audits.blocks import beyond_rounding

    logits = 4 * torch.randn(64, 197, generator=torch.Generator().manual_seed(1))
    expected = logits.softmax(-1).to(dtype)
    found = logits.to(dtype).float().softmax(-1).to(dtype)
    if what == "one part is another's":
        found[:1] = expected[1:2]
    if what == "no number":
        found[3, 5] = torch.nan
    if masked:
        expected[:, 150:] = found[:, 150:] = torch.finfo(dtype).min
    assert beyond_rounding(expected, found) == (what != "rounded")


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64])
@pytest.mark.parametrize(
    ("elements", "flipped", "stale"),
    [(1, 1, False), (64, 1, False), (64, 2, True), (4096, 8, False), (4096, 32, True)],
)
def test_a_comparison_that_rounding_flips_is_no_stale_answer(dtype, elements, flipped, stale):
    from pytest_passbench.judge.audits.blocks import CHANGED_PART, beyond_rounding

    expected = torch.ones(elements, dtype=dtype)
    answer = expected.clone()
    answer[:flipped] = 0
    assert beyond_rounding(expected, answer) == stale
    assert not stale or flipped >= elements / CHANGED_PART / 2  # of the changed inputs, half change the answer
