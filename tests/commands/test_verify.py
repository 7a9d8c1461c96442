"""``passbench verify`` finds what was changed after a run."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from pytest_passbench.api import evaluate
from pytest_passbench.commands.main import main
from pytest_passbench.core.record import DISQUALIFIED, ArmResult, FurtherSize, PassReport, Record, Speed
from pytest_passbench.core.seed import Secret
from pytest_passbench.judge.case import Case
from pytest_passbench.report.markdown import render
from pytest_passbench.report.report import report_of
from pytest_passbench.run import results_file
from pytest_passbench.run.agreement import difference
from pytest_passbench.run.ledger import disqualify
from pytest_passbench.suite.sizes import MAX_REFUSED, draws, size_map
from pytest_passbench.suite.taskfile import read_task
from support.made_records import record_of, right

PASS = """
import torch
def pattern(x): return torch.relu(x)
def replacement_args(x): return (x,)
def kernel(x): return x
def replacement_func(): return kernel
"""
TASK = """passbench: task/1
id: {name}
ops: [relu]
sources: [tests]
modality: text
tags: [lite]
headroom: 3.0
subgraphs: 2
---
graphs:
  g0: |
    def forward(in_0):
        return (torch.relu(in_0),)
subgraphs:
- id: a
  graph: g0
  dtype: float32
  source: tests
  inputs:
  - {{name: in_0, shape: [4], dtype: float32, mean: 0.0, std: 1.0}}
- id: b
  graph: g0
  dtype: float32
  source: tests
  inputs:
  - {{name: in_0, shape: [8], dtype: float32, mean: 0.0, std: 1.0}}
"""


class Judge:
    """A judge that finds every subgraph correct and ``ratio`` times as fast."""

    ratio = 1.5

    def __init__(self, settings, seed, worker=0):
        pass

    def environment(self):
        return {}

    def noise(self):
        return {}

    def close(self):
        pass

    def judge(self, task, candidate):
        from pytest_passbench.suite.find import edition_of
        from pytest_passbench.suite.taskfile import task_hash

        for subgraph in task.subgraphs:
            pairs = [[math.log(self.ratio)] * 2] * 6
            speed = Speed(self.ratio, self.ratio / 1.1, self.ratio * 1.1, "FASTER", 10.0, 10.0 / self.ratio, pairs)
            arm = ArmResult(correct_from=[-11], speed=speed)
            yield Record(task.id, subgraph.id, candidate.name, arm=arm, task_hash=task_hash(task),
                         headroom=task.header.headroom, edition=edition_of(task.path))  # fmt: skip


@pytest.fixture
def made(tmp_path: Path):
    """Write a candidate, tasks, and a run of them in ``run/results.json``. Return their folder."""
    (tmp_path / "cand").mkdir()
    (tmp_path / "cand" / "fuse.py").write_text(PASS)
    (tmp_path / "cand" / "sorted_output_pass_rule_names.json").write_text('["fuse"]')
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "EDITION").write_text("7\n")
    for name in ("one", "two"):
        (tmp_path / "tasks" / f"{name}.task.yaml").write_text(TASK.format(name=name))
    run = evaluate(tmp_path / "cand", tmp_path / "tasks", judge=Judge)
    results_file.write(tmp_path / "run", run)
    return tmp_path


def verify(folder: Path, *more: str) -> int:
    return main(["verify", str(folder / "run"), "--candidate", str(folder / "cand"), *more])


def edit(folder: Path, change, digest: bool = True) -> None:
    """Change the run, and with ``digest`` also its digest, as somebody can who knows how it is made."""
    path = folder / "run" / "results.json"
    if digest:
        run = results_file.read(path)
        change(run)
        results_file.write_file(path, run)
        return
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_an_untouched_run_is_fine(made, capsys):
    assert verify(made) == 0
    assert "4 records of 2 tasks complete" in capsys.readouterr().out


def test_a_run_of_a_task_by_its_id_is_fine(made, capsys, monkeypatch):
    monkeypatch.chdir(made)
    results_file.write(made / "run", evaluate(made / "cand", "silu-mul-e747", judge=Judge))
    assert verify(made) == 0, capsys.readouterr().out
    page = render(report_of(results_file.read(made / "run" / "results.json")))
    assert "--passbench-tasks=" not in page


def test_a_changed_speed_up_is_found_with_the_digest_or_without(made, capsys):
    edit(made, lambda run: setattr(run.records[0].arm.speed, "ratio", 1.55))
    assert verify(made) == 1
    assert "one/a: the speed-up of the candidate is not what its pairs say" in capsys.readouterr().out
    edit(made, lambda data: data["records"][0]["arm"]["speed"].update(ratio=1.5, high=3.0), digest=False)
    assert verify(made) == 1
    assert "the digest is not that of the contents" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, True),
        ({"verdict": "UNRESOLVED"}, True),  # the file does not have the delta at that moment
        ({"verdict": "SLOWER"}, False),
        ({"low": 1.45}, False),
        ({"high": 2.0}, False),
        ({"pairs": [[math.log(1.5) + part] * 2 for part in (-0.2, 0.2) * 3]}, False),
        ({"low": 1.0, "high": 1.5**2}, False),  # this interval cannot be FASTER
        ({"low": 0.0, "high": math.inf, "verdict": "UNRESOLVED"}, True),
        ({"low": 0.0, "verdict": "UNRESOLVED"}, False),
        ({"pairs": [[math.log(1.5)] * 2] * 3}, False),
    ],
)  # fmt: skip
def test_an_interval_and_a_verdict_fit_the_pairs(made, capsys, changed, fits):
    edit(made, lambda run: [setattr(run.records[0].arm.speed, name, value) for name, value in changed.items()])
    assert verify(made) == (not fits)
    assert ("one/a: the speed-up of the candidate is not what its pairs say" in capsys.readouterr().out) is not fits


def test_a_dropped_subgraph_is_found(made, capsys):
    edit(made, lambda run: run.records.pop())
    assert verify(made) == 1
    assert "cand: 1 record of task two, which has 2 subgraphs" in capsys.readouterr().out


def test_results_of_another_edition_are_told_as_such(made, capsys, tmp_path_factory):
    other = tmp_path_factory.mktemp("next") / "tasks"
    shutil.copytree(made / "tasks", other)
    (other / "EDITION").write_text("8\n")
    assert verify(made, "--tasks", str(other)) == 1
    out = capsys.readouterr().out
    assert "it judged edition 7 of the suite, and these tasks are of edition 8" in out
    assert "contents" not in out
    assert "edition 7 of the suite" in render(report_of(results_file.read(made / "run" / "results.json")))


def test_an_edition_that_may_not_be_read_is_one_message(made, capsys, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(made / "tasks", other)
    (other / "EDITION").unlink()
    (other / "EDITION").symlink_to("/proc/self/mem")  # a regular file that cannot be read from its beginning
    assert verify(made, "--tasks", str(other)) == 1
    assert capsys.readouterr().err.startswith(f"passbench: error: {other / 'EDITION'}: cannot be read: ")


def test_results_without_an_edition_are_of_the_first(made, capsys):
    edit(made, lambda run: run.hashes.pop("editions"))
    assert verify(made) == 1
    assert "it judged edition 1 of the suite, and these tasks are of edition 7" in capsys.readouterr().out


def test_a_swapped_task_is_found(made, capsys):
    task = made / "tasks" / "two.task.yaml"
    task.write_text(task.read_text().replace("torch.relu(in_0)", "torch.relu(in_0) + 1"))
    assert verify(made) == 1
    assert "task two: its contents are not those that were judged" in capsys.readouterr().out


def test_an_edited_candidate_is_found(made, capsys):
    (made / "cand" / "fuse.py").write_text(PASS + "\n# faster now\n")
    assert verify(made) == 1
    assert "not the candidate that was judged" in capsys.readouterr().out


def test_a_truncated_file_is_one_message(made, capsys):
    path = made / "run" / "results.json"
    path.write_text(path.read_text()[:-200])
    assert verify(made) == 1
    assert "cut short" in capsys.readouterr().err


def test_another_seed_is_found(made, capsys):
    edit(made, lambda run: run.seed.update(revealed="00" * 32))
    assert verify(made) == 1
    assert "not the one that the run committed to" in capsys.readouterr().out


def test_a_merged_file_has_the_seed_of_each_part(made, capsys):
    edit(made, lambda run: (run.parts.append({"seed": dict(run.seed)}), run.seed.clear()))
    assert verify(made) == 0
    assert "digest, seeds of all parts and speed-ups fit" in capsys.readouterr().out
    edit(made, lambda run: run.parts.append({}))
    assert verify(made) == 1
    assert "the seed or its commitment is missing" in capsys.readouterr().out
    edit(made, lambda run: run.parts[1].update(seed={"commitment": "00", "revealed": "11"}))
    assert verify(made) == 1
    assert "not the one that the run committed to" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run.seed.clear(), "the seed or its commitment is missing"),
        (lambda run: run.hashes.update(harness="00" * 32), "the run was made with other code of passbench than this"),
        (lambda run: run.hashes.update(harness=""), "no hash of the harness"),
        (lambda run: run.hashes.update(editions=["1", "2"]), "it has tasks of several editions of the suite: 1, 2"),
    ],
)
def test_a_file_that_does_not_say_what_judged_it_is_a_problem(made, capsys, change, message):
    edit(made, change)
    assert verify(made) == 1
    assert message in capsys.readouterr().out


def test_tasks_that_are_not_there_are_named(made, capsys):
    (made / "tasks" / "two.task.yaml").unlink()
    assert verify(made) == 1
    assert "tasks not found, so not checked: two (name their folder with --tasks)" in capsys.readouterr().out


def test_rerun_agrees_or_says_what_differs(made, capsys, monkeypatch):
    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Judge)
    assert verify(made, "--rerun=2") == 0
    assert "2 subgraphs judged anew agree" in capsys.readouterr().out
    monkeypatch.setattr(Judge, "ratio", 1.1)
    assert verify(made, "--rerun=1") == 1
    assert "1.500 times as fast in the file, 1.100 now" in capsys.readouterr().out


def test_rerun_accuses_no_answer_of_a_pass_that_was_caught_elsewhere(made, capsys, monkeypatch):
    def caught(run) -> None:
        run.records[0].arm = ArmResult("integrity", "clock", "cheated")
        for record in run.records[1:]:
            record.arm = ArmResult("integrity", DISQUALIFIED, "its passes broke a rule")

    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Judge)
    edit(made, caught)
    assert verify(made, "--rerun=4") == 1
    assert capsys.readouterr().out.count(" in the file, ") == 1


class HangingJudge(Judge):
    """A judge whose pass takes too long on the first subgraph of a task, and is left out for the rest of the task."""

    def __init__(self, settings, seed, worker=0):
        self.out = set()

    def judge(self, task, candidate):
        for record in super().judge(task, candidate):
            if record.subgraph == "a" or task.id in self.out:
                phase = "out" if task.id in self.out else "call"
                self.out.add(task.id)
                record.arm = ArmResult(status="timeout", phase=phase, message="took too long")
            yield record


def test_a_run_with_a_pass_that_took_too_long_verifies(made, capsys, monkeypatch):
    run = evaluate(made / "cand", made / "tasks", judge=HangingJudge)
    assert [record.arm.phase for record in run.records] == ["call", "out"] * 2
    results_file.write(made / "run", run)
    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", HangingJudge)
    assert verify(made, "--rerun=4") == 0
    assert "2 subgraphs judged anew agree" in capsys.readouterr().out


def test_subgraphs_that_were_not_tried_without_a_reason_are_found(made, capsys):
    def change(run):
        run.records[0].arm = ArmResult(status="timeout", phase="out", message="not tried")

    edit(made, change)
    assert verify(made) == 1
    assert "not tried: a, and no pass took too long in this task" in capsys.readouterr().out


class FurtherJudge(Judge):
    """A judge that finds every subgraph correct. ``level`` is that of the answer at a further size of each."""

    level = -11

    def __init__(self, settings, seed, worker=0):
        self.seed, self.count = seed, settings.held_out

    def judge(self, task, candidate):
        for record, subgraph in zip(super().judge(task, candidate), task.subgraphs, strict=True):
            stream = Case(task, subgraph, candidate, "direct", self.seed).secret("held out").stream("sizes")
            points = [point for point, *_ in islice(draws(size_map(task, subgraph), stream), self.count)]
            arm = ArmResult(correct_from=[self.level])
            record.held_out = [FurtherSize(*point, arm, ["float32"]) for point in points]
            yield record


@pytest.fixture
def with_further_sizes(made):
    """Return the folder of ``made``, with a run that judged a further size of each subgraph."""
    for name in ("one", "two"):
        text = TASK.format(name=name)
        for size in (4, 8):
            source = f"tests (1 layer, batch 1, size {size})"
            text = text.replace(f"  source: tests\n  inputs:\n  - {{name: in_0, shape: [{size}]",
                                f"  source: {source}\n  inputs:\n  - {{name: in_0, shape: [{size}]")  # fmt: skip
        (made / "tasks" / f"{name}.task.yaml").write_text(text)
    run = evaluate(made / "cand", made / "tasks", judge=FurtherJudge, held_out=1)
    assert all(len(record.held_out) == 1 for record in run.records)
    results_file.write(made / "run", run)
    return made


def another_size(run):
    run.records[0].held_out[0].size += 1


def no_size(run):
    run.records[0].held_out.clear()


def refused_by_eager(run):
    """Change the run so that eager fails at all sizes of a subgraph that may be drawn."""
    seed = bytes.fromhex(run.seed["revealed"])
    tasks = {task.id: task for task in map(read_task, Path(run.settings["tasks"][0]).glob("*.task.yaml"))}
    for record in run.records:
        task = tasks[record.task]
        subgraph = next(item for item in task.subgraphs if item.id == record.subgraph)
        stream = Secret(seed, task.id, subgraph.id, record.candidate, "held out").stream("sizes")
        points = [point for point, *_ in islice(draws(size_map(task, subgraph), stream), MAX_REFUSED)]
        record.held_out = [FurtherSize(*point, ArmResult("eager_fail", "build")) for point in points]


def two_sizes(run):
    run.records[0].held_out *= 2


def another_speed(run):
    run.records[0].held_out[0].arm.speed = Speed(2.0, 1.9, 2.1, "FASTER", 10.0, 5.0, [[0.1, 0.1]] * 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (another_size, "one/a: its further sizes are not those that the seed gives"),
        (no_size, "one/a: the file has 0 further sizes; 1 was to be drawn"),
        (two_sizes, "one/a: the file has 2 further sizes; 1 was to be drawn"),
        (another_speed, "one/a: the speed-up of the candidate at batch 1, size "),
    ],
)
def test_further_sizes_that_were_changed_are_found(with_further_sizes, capsys, change, message):
    assert verify(with_further_sizes) == 0
    edit(with_further_sizes, change)
    assert verify(with_further_sizes) == 1
    assert message in capsys.readouterr().out


def test_rerun_judges_further_sizes_too(with_further_sizes, capsys, monkeypatch):
    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", FurtherJudge)
    assert verify(with_further_sizes, "--rerun=2") == 0
    monkeypatch.setattr(FurtherJudge, "level", 1)
    assert verify(with_further_sizes, "--rerun=1") == 1
    assert "right at every further size in the file, at none now" in capsys.readouterr().out
    monkeypatch.setattr(FurtherJudge, "level", -11)
    edit(with_further_sizes, refused_by_eager)
    assert verify(with_further_sizes, "--rerun=1") == 1
    assert "0 further sizes in the file, 1 now" in capsys.readouterr().out


def test_a_run_that_is_marked_as_interrupted_is_not_complete(made, capsys):
    edit(made, lambda run: (run.records.pop(), setattr(run, "interrupted", True)))
    assert verify(made) == 1
    assert "the run was interrupted" in capsys.readouterr().out


def test_rerun_finds_a_level_that_was_raised_in_the_file(made, capsys, monkeypatch):
    class Wider(Judge):
        def judge(self, task, candidate):
            for item in super().judge(task, candidate):
                item.arm.correct_from = [-6]
                yield item

    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Wider)
    assert verify(made, "--rerun=1") == 1
    assert "correct from t = [-11] in the file, [-6] now" in capsys.readouterr().out


def without(run, task: str) -> None:
    """Remove a task from a run, in all places that name it."""
    run.tasks.remove(task)
    run.records[:] = [item for item in run.records if item.task != task]
    run.hashes["tasks"].pop(task)
    run.selected["cand"].pop(task)


def test_a_task_taken_out_of_the_selection_is_found(made, capsys):
    edit(made, lambda run: without(run, "two"))
    assert verify(made) == 1
    assert "its settings select 1 task that it does not have: two" in capsys.readouterr().out
    assert verify(made, "--tasks", str(made / "tasks" / "one.task.yaml")) == 0  # a run of that task alone


def test_a_task_that_the_settings_do_not_select_is_found(made, capsys):
    edit(made, lambda run: run.settings.update(task_ids=["one"]))
    assert verify(made) == 1
    assert "it has 1 task that its settings do not select: two" in capsys.readouterr().out


def test_a_task_whose_hash_was_taken_out_is_found(made, capsys):
    edit(made, lambda run: run.hashes["tasks"].pop("two"))
    assert verify(made) == 1
    assert "task two: its contents are not those that were judged" in capsys.readouterr().out


def test_records_of_a_candidate_that_is_not_described_are_found(made, capsys):
    edit(made, lambda run: run.candidates.clear())
    assert verify(made) == 1
    assert "it has records of cand, which is not among its candidates" in capsys.readouterr().out
    edit(made, lambda run: run.candidates.append({"name": "other"}))
    assert verify(made) == 1
    assert "records[0].candidate: 'cand' is not among the candidates" in capsys.readouterr().err


def test_the_summary_says_what_was_not_checked(made, capsys, monkeypatch):
    def with_more(run) -> None:
        for record in run.of("cand"):
            run.records.append(replace(record, candidate="magic"))
            record.baselines = {"inductor": record.arm}
        run.candidates.append({"name": "magic", "content_hash": "0" * 64})
        run.settings.update(shard=[1, 1])

    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Judge)
    edit(made, with_more)
    assert verify(made, "--rerun=1") == 0
    assert capsys.readouterr().out == (
        "digest, seed and speed-ups fit; 8 records of 2 tasks complete (suite all, shard 1/1); the candidate is the "
        "one judged as cand; candidates not checked: magic; 1 subgraph judged anew agrees; "
        "baselines not judged anew: inductor\n"
    )


@pytest.mark.parametrize("matches", [False, True])
def test_of_a_run_of_matching_tasks_what_was_left_out_is_matched_again(made, capsys, monkeypatch, matches):
    monkeypatch.setattr(Judge, "touches", lambda *_: matches, raising=False)
    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Judge)
    edit(made, lambda run: (without(run, "two"), run.settings.update(only_matching=True)))
    assert verify(made) == 0
    assert "1 task left out that no pass matches, by the file's word" in capsys.readouterr().out
    assert verify(made, "--rerun=1") == int(matches)
    assert ("task two: left out, though a pass matches it" in capsys.readouterr().out) == matches


@pytest.mark.parametrize(("factor", "refused"), [(1.14, True), (1.05, False), (1 / 1.14, True)])
def test_rerun_finds_that_all_speeds_were_raised_together(made, capsys, monkeypatch, factor, refused):
    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Judge)

    def raised(run) -> None:
        run.records[0].arm.speed = None
        for item in run.records[1:]:
            speed = item.arm.speed
            speed.ratio, speed.low, speed.high = (factor * value for value in (speed.ratio, speed.low, speed.high))
            speed.pairs = [[value + math.log(factor) for value in pair] for pair in speed.pairs]

    edit(made, raised)
    assert verify(made) == 0
    assert verify(made, "--rerun=4") == int(refused)
    assert ("over 3 subgraphs, speed-ups are" in capsys.readouterr().out) == refused


def drop(run, *subgraphs: str, measured: bool) -> None:
    """Remove subgraphs from a run, as if an interpreter ran the others."""
    run.records[:] = [item for item in run.records if item.subgraph not in subgraphs]
    for item in run.records:
        item.left_out = list(subgraphs)
        if not measured:
            item.arm.speed, item.arm.speed_note = None, "not measured (Triton's interpreter)"


@pytest.mark.parametrize("headroom", [0.0, 1000.0])
def test_another_head_room_than_the_tasks_is_found(made, capsys, headroom):
    edit(made, lambda run: setattr(run.records[0], "headroom", headroom))
    assert verify(made) == 1
    assert "and records have another" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "value"), [("tolerance", -3), ("criterion", "either")])
def test_a_record_of_another_t_or_criterion_than_the_settings_is_found(made, capsys, name, value):
    edit(made, lambda run: setattr(run.records[0], name, value))
    assert verify(made) == 1
    assert "the settings have t = -5 (ladder), and records have others: one/a" in capsys.readouterr().out


@pytest.mark.parametrize(("subgraph", "measured"), [("b", True), ("a", False), ("a", True)])
def test_subgraphs_left_out_without_a_reason_are_found(made, capsys, subgraph, measured):
    edit(made, lambda run: drop(run, subgraph, measured=measured))
    assert verify(made) == 1
    assert "leaves out subgraphs that had to be judged" in capsys.readouterr().out


def test_rerun_finds_that_no_interpreter_runs_what_the_file_leaves_out_for_it(made, capsys, monkeypatch):
    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Judge)
    edit(made, lambda run: drop(run, "b", measured=False))
    assert verify(made) == 0
    assert verify(made, "--rerun=1") == 1
    assert "for Triton's interpreter, which does not run this pass now" in capsys.readouterr().out


class Exact(Judge):
    """A judge whose answers are exact in the file's run, and off by a rounding now. Their errors are like eager's."""

    levels, errors = -6, 1.1

    def judge(self, task, candidate):
        for item in super().judge(task, candidate):
            item.dtypes, item.arm.correct_from = ["float32"], [self.levels]
            item.arm.greatest_ratio64 = item.arm.mean_ratio64 = [self.errors]
            yield item


def exact(made: Path, monkeypatch, levels: int = -11, errors: float = 1.1) -> None:
    from pytest_passbench.api import evaluate

    with monkeypatch.context() as context:
        context.setattr(Exact, "levels", levels)
        context.setattr(Exact, "errors", errors)
        results_file.write(made / "run", evaluate(made / "cand", made / "tasks", judge=Exact))
    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Exact)


def test_exact_on_some_inputs_alone_is_no_forgery_and_everywhere_better_is(made, capsys, monkeypatch):
    exact(made, monkeypatch)
    assert verify(made, "--rerun=1") == 0
    assert verify(made, "--rerun=4") == 1
    assert "over 4 outputs, levels are 5.0 better in the file than now" in capsys.readouterr().out


@pytest.mark.parametrize(("errors", "refused"), [(0.2, True), (0.8, False)])
def test_rerun_compares_errors_against_float64(made, capsys, monkeypatch, errors, refused):
    exact(made, monkeypatch, levels=-6, errors=errors)
    assert verify(made, "--rerun=2") == int(refused)
    assert ("its greatest error is 0.2 times eager's in the file, 1.1 now" in capsys.readouterr().out) == refused


class Clocked(Judge):
    """A judge that finds that the clock was cheated, unless the audit is off."""

    def __init__(self, settings, seed, worker=0):
        self.audit = settings.audit

    def judge(self, task, candidate):
        for found in super().judge(task, candidate):
            if self.audit != "off":
                found.arm = ArmResult("integrity", "clock", "cheated")
            yield found


@pytest.mark.parametrize("audit", ["standard", "off"])
def test_rerun_audits_as_the_run_did(made, capsys, monkeypatch, audit):
    from pytest_passbench.api import evaluate

    run = evaluate(made / "cand", made / "tasks", judge=Clocked, audit=audit)
    results_file.write(made / "run", run)
    monkeypatch.setattr("pytest_passbench.run.judging.make_judge", Clocked)
    assert verify(made, "--rerun=4") == 0
    assert "4 subgraphs judged anew agree" in capsys.readouterr().out


def by_pass(task: str, name: str, status: str = "ran", folder: str = "") -> Record:
    arm = right(status=status, message="caught" if status != "ran" else "")
    return record_of(task, "s", arm, "cand", passes=[PassReport(name, matches=1)], folder=folder)


def test_one_caught_of_ten_does_not_pay():
    records = [by_pass("a", "p"), by_pass("b", "p", "integrity"), by_pass("c", "q"), by_pass("d", "p", folder="own")]
    marked = disqualify(records)
    assert [item.arm.status for item in marked] == ["integrity", "integrity", "ran", "ran"]
    assert "pass p broke a rule on b/s: caught" in marked[0].arm.message
    assert marked[0].arm.speed is None
    assert records[0].correct


@pytest.mark.parametrize("spread", [0.01, 1.0])
def test_an_interval_that_the_file_states_wider_than_its_pairs_hides_no_other_speed(spread):
    def record(ratio, low, high):
        pairs = [[math.log(ratio) + spread * sign] * 2 for sign in (-1, 1, -1, 1)]
        return record_of("t", "a", replace(right(), speed=Speed(ratio, low, high, "FASTER", 10.0, 10 / ratio, pairs)))

    now = record(2.0, 1.9, 2.1)
    assert "20.000 times as fast in the file, 2.000 now" in difference(record(20.0, 0.05, 21.0), now)
    assert difference(record(2.1, 2.0, 2.2), now) == ""
