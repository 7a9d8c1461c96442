"""The staged reward: made-up outcomes by their stages, and real candidates in the order that AS has wrong."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytest_passbench
from pytest_passbench.api.outcome import Outcome
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import ArmResult
from shared.workspace import GELU_ADD_KERNEL, Workspace, make_cpp_pass
from support.made_records import record_of, right, run_of

STAGES = (
    [ArmResult("integrity", "plan", "computes with torch")],
    [ArmResult("compile_fail", "load", "syntax error")],
    [ArmResult("pass_miss")],
    [ArmResult(status) for status in ("compile_fail", "runtime_fail", "crash", "timeout")],
    [ArmResult(correct_from=[99]), *(ArmResult(name) for name in ("nan_inf", "shape_mismatch", "type_mismatch"))],
)
RATIOS = [2.0**power for power in (-5, -3, -1, -0.2, 0, 0.2, 0.5, 1, 2, 3, 5)]


def outcome(*arms: ArmResult, **values) -> Outcome:
    return Outcome.from_run(
        run_of(*(record_of("t", f"s{i}", copy.deepcopy(arm)) for i, arm in enumerate(arms)), **values)
    )


def staged(*arms: ArmResult, **values):
    return outcome(*arms, **values).reward(shape="staged")


failing = st.integers(0, 4).flatmap(lambda stage: st.tuples(st.just(stage), st.sampled_from(STAGES[stage])))
correct = st.tuples(st.just(5), st.sampled_from(RATIOS).map(lambda ratio: right(ratio, width=0.05)))
arms = st.lists(st.one_of(failing, correct), min_size=1, max_size=6)


@given(arms, st.data())
def test_a_subgraph_that_gets_further_never_costs(group, data):
    place = data.draw(st.integers(0, len(group) - 1))
    stage = group[place][0]
    better = data.draw(st.one_of(failing, correct).filter(lambda item: item[0] > stage))
    before = staged(*(arm for _stage, arm in group))
    after = staged(*(better[1] if index == place else arm for index, (_stage, arm) in enumerate(group)))
    assert 0 <= before <= after <= 1.5


@given(
    st.lists(st.sampled_from(RATIOS), min_size=1, max_size=4), st.floats(1, 8), st.sampled_from([0.001, 0.03, 0.4])
)
def test_a_faster_answer_never_has_less(ratios, factor, width):
    before = staged(*(right(ratio, width=width) for ratio in ratios))
    after = staged(*(right(ratio, width=width) for ratio in [ratios[0] * factor, *ratios[1:]]))
    assert 0.5 <= before <= after


@given(st.lists(correct, min_size=1, max_size=3), st.lists(failing, min_size=1, max_size=3))
def test_any_answer_that_is_right_everywhere_has_more_than_any_that_is_not(good, bad):
    assert staged(*(arm for _stage, arm in good)) >= 0.5 > 0.4 >= staged(*(arm for _stage, arm in [*good, *bad]))


def test_stages_rise_and_have_names():
    ladder = [staged(*group[:1]) for group in STAGES]
    ladder += [staged(right(9.0), STAGES[4][0]), staged(right(0.01)), staged(right(0.9)), staged(right(2.0))]
    assert ladder == sorted(set(ladder))
    assert [reward.stage for reward in ladder] == [
        "integrity", "unreadable", "no match", "fails", "wrong", "partly right", "right", "right", "right and fast",
    ]  # fmt: skip
    for group, first in zip(STAGES, ladder, strict=False):
        assert {staged(arm) for arm in group} == {first}
    shares = [staged(*[right(1.0)] * count, *[STAGES[4][0]] * (4 - count)) for count in range(1, 5)]
    assert shares == sorted(set(shares))


def test_a_right_and_slow_answer_has_more_than_a_wrong_and_quick_one_and_as_stands_beside():
    slow, wrong = outcome(right(0.11)), outcome(STAGES[4][0])
    assert slow.reward() < wrong.reward()
    assert slow.reward(shape="staged") > wrong.reward(shape="staged")
    assert pytest.approx(slow.reward()) == slow.reward(shape="staged").AS
    assert slow.reward(shape="as") == slow.reward()
    with pytest.raises(UserError, match=r"unknown shape 'log' .one of as, staged"):
        slow.reward(shape="log")


def test_the_speed_counts_in_steps_of_the_low_end():
    assert staged(right(2.0, width=0.001)) == pytest.approx(1 + math.log2(1.1) * 7 / 6)
    assert staged(right(1.0, width=0.001)) == pytest.approx(1 - math.log2(1.1) / 6)  # an uncertain step
    assert staged(right(1.58, width=0.03)) == staged(right(1.60, width=0.02)) == staged(right(1.62, width=0.03))
    assert staged(right(2.0, width=0.3)) < staged(right(2.0, width=0.01))
    assert staged(right(1e6)) == 1.5
    assert staged(right(1e-6)) == 0.5
    endless = right(2.0)
    endless.speed.low, endless.speed.high = 0.0, math.inf
    assert staged(endless) == 0.5
    reward = staged(right(2.0, width=0.1))
    assert (reward.low, reward.high) == pytest.approx((1 + math.log2(2 / 1.1) / 6, 1 + math.log2(2.2) / 6))
    assert reward.speed.ratio == pytest.approx(2.0)


def test_what_nobody_can_get_right_is_left_out_and_an_unmeasured_speed_is_eagers():
    fault, eager = ArmResult("harness_fail", "harness", "no memory"), ArmResult("eager_fail")
    assert staged(right(2.0), fault, eager) == staged(right(2.0))
    with pytest.raises(UserError, match="nothing could be judged"):
        staged(fault)
    assert staged(right(None)) == 1.0
    assert staged(right(2.0), selected={"mine": {"t": 2}}) < 0.5  # one of two was never judged


def test_a_staged_reward_survives_a_copy():
    reward = staged(right(2.0))
    for other in (pickle.loads(pickle.dumps(reward)), copy.deepcopy(reward)):
        assert (other, vars(other)) == (reward, vars(reward))
    assert repr(reward).startswith("StagedReward(1.1")


SLOW = GELU_ADD_KERNEL.replace("for (int64_t i", "for (volatile int r = 0; r < 99; r = r + 1) for (int64_t i")
QUICK_AND_WRONG = GELU_ADD_KERNEL.replace("+ y[i]", "- y[i]")


@pytest.mark.slow
@pytest.mark.sandbox
def test_judged_candidates_are_in_the_order_of_their_stages(tmp_path):
    bench = Workspace(tmp_path)
    task = bench.task(shapes=((64, 256), (64, 256)))
    cheat = make_cpp_pass().replace("return out", "return out + y")
    missed = make_cpp_pass().replace("functional.gelu(x) + y", "functional.gelu(x) * y")
    broken = make_cpp_pass(GELU_ADD_KERNEL.replace("float* x", "flat* x"))
    texts = [cheat, "def pattern(x:\n", missed, broken, make_cpp_pass(QUICK_AND_WRONG), make_cpp_pass(SLOW)]
    with pytest_passbench.Evaluator(task, pipeline="direct") as evaluator:
        runs = evaluator.evaluate_many([{"a.py": text} for text in texts])
    rewards = [run.reward(shape="staged") for run in runs]
    assert [reward.stage for reward in rewards] == [
        "integrity", "unreadable", "no match", "fails", "wrong", "right"
    ], [run.feedback() for run in runs]  # fmt: skip
    assert rewards == sorted(set(rewards))
    *_, wrong, slow = runs
    assert slow.reward() < wrong.reward()
