"""Reward and feedback of a run: pure functions of its records."""

from __future__ import annotations

import copy
import json
import math
import pickle
from functools import partial

import pytest

from pytest_passbench.api.outcome import Outcome, Reward
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import ArmResult, Finding, FurtherSize, PassReport
from pytest_passbench.core.run import Run
from pytest_passbench.score.board import metric
from support.made_records import record_of
from support.made_records import right as narrow

right = partial(narrow, width=0.1)
WRONG = ArmResult(correct_from=[99], worst="output 0[1]: expected 1, got 2", speed=None)


def outcome(*arms: ArmResult, tasks: int = 1, noise=None, **more) -> Outcome:
    """Return the outcome of the candidate ``mine``. Each task has a subgraph for each of these arms."""
    records = [
        record_of(f"t{task}", f"s{index}", copy.deepcopy(arm), dtype="float32", **more)
        for task in range(tasks)
        for index, arm in enumerate(arms)
    ]
    ids = [f"t{task}" for task in range(tasks)]
    return Outcome(
        tasks=ids,
        records=records,
        candidates=[{"name": "mine", "path": "/home/me/mine", "content_hash": "0"}],
        selected={"mine": dict.fromkeys(ids, len(arms))},
        noise=noise or {},
        seed={"revealed": "5eed" * 16, "commitment": "c0" * 32},
    )


def test_the_reward_is_as_with_its_interval():
    run = outcome(right(2.0), right(0.5), WRONG, tasks=2)
    reward = run.reward()
    assert reward == pytest.approx(run.score("AS")) == pytest.approx(metric(run, "mine", "AS"))
    assert reward.low < reward < reward.high
    assert (reward.criterion, reward.integrity, reward.unmeasured) == ("ladder", False, 0)
    assert isinstance(reward, float)
    assert json.loads(json.dumps({"reward": reward})) == {"reward": float(reward)}


def test_errors_of_independent_subgraphs_add_as_squares():
    one, four = outcome(right(2.0)).reward(), outcome(*[right(2.0)] * 4).reward()
    assert (one.low, one.high) == pytest.approx((2.0 / 1.1, 2.2))
    assert math.log(four.high / four) == pytest.approx(math.log(1.1) / 2)
    assert outcome(*[right(2.0)] * 2, tasks=2).reward().high == pytest.approx(four.high)
    shared = outcome(*[right(2.0)] * 4, noise={"offset": 0.05}).reward()
    assert math.log(shared.high / four.high) == pytest.approx(0.05)
    wrong = outcome(WRONG, noise={"offset": 0.05}).reward()
    assert wrong.low == wrong == wrong.high  # no speed counts
    endless = copy.deepcopy(right(2.0))
    endless.speed.low, endless.speed.high = 0.0, math.inf
    vague = outcome(endless).reward()
    assert vague.low < 1e-9
    assert vague.high > 1e9


def test_better_candidates_get_more():
    broken = outcome(right(3.0), ArmResult("integrity", "plan", "computes with torch"))
    ladder = [
        broken,
        outcome(ArmResult("pass_miss"), ArmResult("pass_miss")),
        outcome(ArmResult("compile_fail"), ArmResult("compile_fail")),
        outcome(WRONG, WRONG),
        outcome(right(0.6), WRONG),
        outcome(right(0.6), right(0.6)),
        outcome(right(0.9), right(0.9)),
        outcome(right(1.0), right(1.2)),
        outcome(right(1.5), right(1.2)),
    ]
    rewards = [run.reward() for run in ladder]
    assert rewards == sorted(set(rewards))
    assert rewards[0] == 0.0
    assert broken.reward().integrity
    assert rewards[1] == pytest.approx(0.1)


def test_a_right_answer_of_unknown_speed_counts_as_eager():
    run = outcome(ArmResult(correct_from=[-11], speed_note="not measured (Triton's interpreter)"), right(2.0))
    assert run.score("AS") is None
    assert run.reward() == pytest.approx(math.sqrt(2.0))
    assert run.reward().unmeasured == 1
    assert "No correct subgraph has a measured speed" in outcome(ArmResult(correct_from=[-11])).feedback()


def test_what_was_not_judged_is_a_failure_unless_the_machine_is_at_fault():
    missing = outcome(right(2.0))
    missing.selected["mine"]["t0"] = 2
    assert missing.reward() == pytest.approx(math.sqrt(2.0 * 0.1))
    faulty = outcome(right(2.0), ArmResult("harness_fail", "harness", "no memory"))
    assert faulty.reward() == pytest.approx(2.0)
    with pytest.raises(UserError, match="nothing could be judged: no memory"):
        outcome(ArmResult("harness_fail", "harness", "no memory")).reward()


def test_the_criterion_may_be_another_than_the_runs():
    less = right(2.0)
    less.correct_from, less.greatest_ratio64, less.mean_ratio64 = [-2], [0.5], [0.5]
    run = outcome(less)
    assert run.reward() < run.reward(criterion="either") == pytest.approx(2.0)
    assert run.reward(criterion="fp64").criterion == "fp64"
    with pytest.raises(UserError, match="unknown criterion 'best'"):
        run.reward(criterion="best")


def test_a_reward_survives_a_copy():
    reward = Reward(1.5, 1.4, 1.6, "fp64", unmeasured=2)
    for other in (pickle.loads(pickle.dumps(reward)), copy.deepcopy(reward)):
        assert (other, vars(other)) == (1.5, vars(reward))
    assert repr(reward) == "Reward(1.5, low=1.4, high=1.6, criterion='fp64')"


def test_several_candidates_are_told_apart_by_name():
    run = outcome(right(2.0))
    run.records.append(record_of("t0", "s0", right(1.5), "other"))
    with pytest.raises(UserError, match="the run has 2 candidates"):
        run.reward()
    assert run.reward("other") == pytest.approx(1.5)
    assert run.only("other").reward() == pytest.approx(1.5)
    with pytest.raises(UserError, match="no candidate is called 'third'"):
        run.score("AS", "third")


def test_feedback_says_what_matched_and_where_the_nearest_miss_is():
    passes = [
        PassReport("fuse", 1, ["gelu", "add"]),
        PassReport("far", miss="the graph has no tanh", nearness=0.0),
        PassReport("near", miss="nearest: div (tmp_1): argument other: expected 2, found 3", nearness=0.5),
    ]
    text = outcome(right(0.5), right(2.0), passes=passes).feedback()
    assert text.startswith("2 of 2 subgraphs are correct (agreement with eager at t = -5).")
    assert "Pass fuse matched 2 subgraphs: gelu, add." in text
    assert text.index("near: nearest: div") < text.index("far: the graph has no tanh")
    assert "slowest: 0.50 [0.45, 0.55] on s0 (10 us instead of 5 us); fastest: 2.00" in text


def test_feedback_says_the_worst_element_and_the_compilers_line():
    failed = ArmResult("compile_fail", "compile", "/home/me/mine/fuse.py:7:3: error: expected ';'\n  x = 1\n  ^")
    text = outcome(WRONG, WRONG, failed).feedback()
    assert "Wrong answer on t0/s0 and 1 more: not correct at any t." in text
    assert "worst element (float32): output 0[1]: expected 1, got 2" in text
    assert "compile_fail on t0/s2: a file cannot be read, or a kernel does not compile." in text
    assert "  fuse.py:7:3: error: expected ';'" in text


def test_feedback_names_the_further_size_that_fails_and_why():
    refused = ArmResult("runtime_fail", "wrapper", message="no kernel for 48 rows")
    sizes = [FurtherSize(3, 7, refused), FurtherSize(3, 9, WRONG), FurtherSize(4, 9, ArmResult(correct_from=[-11]))]
    text = outcome(right(2.0), held_out=sizes).feedback()
    assert "Of 3 further sizes, drawn at random, 2 are not right:" in text
    assert "t0/s0 at batch 3, size 7: no kernel for this shape: no kernel for 48 rows" in text
    assert "t0/s0 at batch 3, size 9: right at the public size alone: output 0[1]: expected 1, got 2" in text
    assert "Right at all 1 further size" in outcome(right(2.0), held_out=sizes[2:]).feedback()
    assert "further size" not in outcome(right(2.0)).feedback()


def test_feedback_names_the_criterion_that_is_missed():
    inaccurate = ArmResult(correct_from=[-3], greatest_ratio64=[5.0], mean_ratio64=[5.0])
    reasons = {
        "ladder": ": not correct at t = -5; correct from t = -3 on.",
        "fp64": ": less accurate than eager.",
        "either": ": not correct at t = -5, and less accurate than eager; correct from t = -3 on.",
    }
    for criterion, reason in reasons.items():
        assert reason in outcome(inaccurate, criterion=criterion, eager_error64=[1e-7]).feedback()


def test_a_broken_rule_comes_first_with_its_place():
    finding = Finding("plan", "torch-op", "violation", "computes with torch (aten.add)", "fuse.py", 12)
    run = outcome(WRONG, WRONG, ArmResult("integrity", "plan", ""))
    run.records[-1].findings = [finding]
    text = run.feedback()
    assert text.index("integrity on t0/s2") < text.index("Wrong answer")
    assert "fuse.py:12: computes with torch (aten.add) [rule torch-op]" in text
    run.records[-1].arm.message = "fuse.py:12: computes with torch (aten.add) [plan: torch-op]"
    assert run.feedback().count("computes with torch") == 1


def test_feedback_is_capped_inert_and_tells_no_secret():
    hostile = "\x1b]0;owned\x07\u202e" + "x" * 9000
    trace = 'File "/home/me/mine/fuse.py", line 3\n File "/root/venv/lib/python3/site-packages/torch/a.py", line 1'
    run = outcome(ArmResult("runtime_fail", "wrapper", trace, hostile + "\nthe end"), ArmResult("crash", "", hostile))
    text = run.feedback()
    assert len(text) <= 4000
    assert len(run.feedback(limit=100)) == len(run.feedback(100)) == 100
    assert [len(run.feedback(limit)) for limit in (0, 3, 7)] == [0, 3, 7]
    assert not set(text) & set("\x1b\x07\u202e")
    assert 'File "fuse.py", line 3' in text
    assert 'File "a.py", line 1' in text
    assert "/home" not in text
    assert "/root" not in text
    assert "the end" in text
    assert run.seed["revealed"] not in text


def test_an_outcome_is_a_run_that_can_be_written_and_read():
    run = outcome(right(2.0))
    again = Outcome.from_run(Run.from_data(run.to_json()))
    assert again.reward() == run.reward()
    assert "untouched" not in run.to_json()
