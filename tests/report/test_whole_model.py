"""The report on a whole model, from made-up records."""

from __future__ import annotations

import pytest

from pytest_passbench.core.record import ArmResult, PassReport
from pytest_passbench.report.whole_model import ModelReport, OperatorCall, between, text
from support.made_records import record_of, right, speed_of

NOISE = (0.0, 0.3, -0.2, 0.1, 0.5, -0.4)
CALLS = (OperatorCall("linear", 60e-6, False), OperatorCall("gelu", 30e-6, True), OperatorCall("add", 10e-6, True))
PASSES = [
    PassReport(
        "gelu_add", 1, ["gelu", "add"], left=["tmp_3 to tmp_4: it only moves data", "tmp_7: it only moves data"]
    ),
    PassReport("never", miss="the graph has no tanh"),
]


def model(arm, inductor):
    record = record_of("m", "b1n8", arm, dtype="float32", source="m.py:M", passes=PASSES)
    record.baselines = {"inductor": inductor}
    return ModelReport(record, CALLS)


def measured(ratio, **values):
    """Return the arm of a right answer for a model that takes eager 100 us."""
    arm = right(ratio, **values)
    arm.speed = speed_of(ratio, eager_us=100.0, other_us=100.0 / ratio)
    return arm


def test_noise_of_eager_cancels_between_two_programs():
    fast, slow = ([[noise + shift] * 3 for noise in NOISE] for shift in (0.5, 0.25))
    ratio = between(speed_of(1.6, 0.4, pairs=fast), speed_of(1.3, 0.4, pairs=slow))
    assert ratio.low == pytest.approx(1.284, abs=1e-3)
    assert ratio.high == pytest.approx(1.284, abs=1e-3)
    apart = between(speed_of(1.6, 0.4, pairs=fast[1:]), speed_of(1.3, 0.4, pairs=slow))
    assert apart.low < 1.0 < apart.high


def test_where_the_time_goes_is_told_in_numbers():
    lines = text(model(measured(1.25), measured(1.0)), 100).splitlines()
    assert lines[0] == "m.py:M: b1n8, float32"
    assert "The passes are 1.250 [1.250, 1.250] times as fast as TorchInductor, in the same rounds." in lines
    assert [line.split() for line in lines if line.startswith(("linear", "gelu ", "add"))] == [
        ["linear", "1", "0", "60.0"],
        ["gelu", "1", "1", "30.0"],
        ["add", "1", "1", "10.0"],
    ]
    assert "Kernels replace 2 of 3 operators, with 40.0 % of eager's time." in lines
    assert "If they took no time at all, the model would be 1.667 times as fast as eager." in lines
    assert any(line.startswith("Of the passes' 80.00 us, about 20.00 us (25 %) are kernels") for line in lines)
    assert "left to eager: 2 regions: it only moves data" in lines
    assert not any(line.startswith("never") for line in lines)


def test_what_failed_is_said_and_compared_with_nothing():
    said = text(model(measured(1.25), ArmResult("compile_fail", message="no such luck")), 100)
    assert "inductor: compile_fail: no such luck" in said
    assert "as fast as TorchInductor" not in said
    said = text(model(ArmResult("crash", message="signal 11"), measured(1.2)), 100)
    assert "mine: crash: signal 11" in said
    assert "Where eager's time goes" not in said
