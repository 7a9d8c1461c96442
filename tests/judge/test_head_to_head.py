"""A candidate and a reference in the same rounds, judged for real."""

from __future__ import annotations

import pytest

from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.session import Session
from pytest_passbench.timing.looks import FIRST_LOOK
from shared.workspace import AS_EAGER, GELU_ADD_KERNEL, make_cpp_pass

TWICE = GELU_ADD_KERNEL.replace("for (int64_t", "for (int t = 0; t < 2; ++t) for (int64_t").replace(
    "out[i] =", "((volatile float*)out)[i] ="
)
WRONG = GELU_ADD_KERNEL.replace("+ y[i]", "+ 1e6f")
TASKS = ("copy", "slow", "wrong", "missed", "broken", "absent")


@pytest.fixture(scope="module")
def records(shared_bench, wrapper):
    """Judge a candidate on tasks. The reference has other passes for each, and none for the last one."""
    bench = shared_bench
    passes = {
        "copy": make_cpp_pass(),
        "slow": make_cpp_pass(TWICE),
        "wrong": make_cpp_pass(WRONG),
        "missed": wrapper(AS_EAGER).replace("gelu(x) + y\n\ndef repl", "relu(x) - y\n\ndef repl"),
        "broken": "raise RuntimeError('no passes here')\n" + wrapper(AS_EAGER),
    }
    for name in TASKS:
        bench.task(name, shapes=((64, 512), (64, 512)))
    bench.candidate({"p": make_cpp_pass()})
    for name, code in passes.items():
        reference = bench.candidate({"p": code}, name="reference", task=name)
    return {record.task: record for record in bench.records(pipeline="direct", audit="standard", against=reference)}


def test_the_candidate_is_judged_whatever_the_reference_does(records):
    assert set(records) == set(TASKS)
    for record in records.values():
        assert record.correct
        assert record.arm.speed is not None


def test_a_copy_is_neither_faster_nor_slower(records):
    found = records["copy"].head_to_head
    assert found.verdict in ("SAME", "UNRESOLVED")
    assert found.ratio == pytest.approx(found.eager_us / found.other_us, rel=0.25)


def test_a_reference_that_does_it_twice_is_slower_by_the_ratio_of_both_speed_ups(records):
    record = records["slow"]
    assert record.head_to_head.verdict == "FASTER"
    assert record.head_to_head.ratio > 1.3
    speed_ups = record.arm.speed.ratio / record.against.arm.speed.ratio
    assert record.head_to_head.ratio == pytest.approx(speed_ups, rel=0.25)
    assert len(record.against.speed.pairs) == len(record.arm.speed.pairs)


@pytest.mark.slow
def test_a_difference_is_confirmed_by_programs_that_are_built_anew(bench):
    bench.task(shapes=((64, 512), (64, 512)))
    bench.candidate({"p": make_cpp_pass()})
    settings = Settings(
        pipeline="direct", audit="off", against=bench.candidate({"p": make_cpp_pass(TWICE)}, "reference")
    )
    with Session(settings, b"a secret of the tests") as session:
        first, confirmed = bench.judged_by(session)
    assert first.head_to_head.verdict == confirmed.head_to_head.verdict == "FASTER"
    assert len(first.head_to_head.pairs) == FIRST_LOOK < len(confirmed.head_to_head.pairs)


def test_a_reference_that_is_wrong_or_does_not_run_gives_no_ratio_and_says_why(records):
    for name, status, why in (
        ("wrong", "ran", "not measured: the outputs are wrong"),
        ("missed", "pass_miss", "relu"),
        ("broken", "compile_fail", "no passes here"),
        ("absent", "pass_miss", "the reference has no passes for this task"),
    ):
        against = records[name].against
        assert records[name].head_to_head is None
        assert against.speed is None
        assert against.arm.status == status
        assert why in against.arm.message + against.arm.speed_note
