"""A baseline is measured once for a subgraph, and every candidate's record has the result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.record import ArmResult, Record, Speed
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.results import Baselines
from pytest_passbench.judge.session import Session
from pytest_passbench.suite.taskfile import read_task
from pytest_passbench.timing.looks import FIRST_LOOK
from shared.workspace import AS_EAGER

SECRET = b"a secret of the tests"


@pytest.mark.slow
def test_later_candidates_have_the_result_of_the_first(bench, wrapper):
    bench.task()
    first, other = (bench.candidate({"p": wrapper(AS_EAGER)}, name=name) for name in ("first", "other"))
    missing = bench.candidate(
        {"p": wrapper(AS_EAGER).replace("gelu(x) + y\n\ndef repl", "relu(x) - y\n\ndef repl")}, "none"
    )
    settings = Settings(pipeline="direct", audit="off", policy="open", baselines=("inductor",))
    with Session(settings, SECRET) as session:
        measured, copied, missed = (bench.judged_by(session, path)[-1] for path in (first, other, missing))
    inductor = measured.baselines["inductor"]
    assert inductor.status == "ran"
    assert len(inductor.speed.pairs) >= FIRST_LOOK
    assert inductor.generated.kernels == 1
    assert inductor.generated.call_us > 0
    assert copied.correct
    assert copied.arm.speed.pairs != measured.arm.speed.pairs
    assert copied.baselines == measured.baselines
    assert copied.durations["build"] < measured.durations["build"] / 2  # Inductor compiles for seconds
    assert missed.arm.status == "pass_miss"
    assert missed.baselines == measured.baselines
    assert (missed.dtypes, missed.null_from) == (measured.dtypes, measured.null_from)


@pytest.fixture
def cases(bench, wrapper):
    """The same subgraph for two candidates."""
    task = read_task(bench.task())
    folders = [bench.candidate({"p": wrapper(AS_EAGER)}, name=name) for name in ("first", "other")]
    return [Case(task, task.subgraphs[0], Candidate.open(folder), "direct", SECRET) for folder in folders]


def measured(case: Case, **values: object) -> Record:
    pairs = [[0.5, 0.5]] * FIRST_LOOK
    speed = Speed(1.6, 1.5, 1.7, "FASTER", 16.0, 10.0, pairs)
    record = case.record()
    record.dtypes, record.null_from = ["float32"], -1
    record.baselines["inductor"] = replace(ArmResult(correct_from=[-6], speed=speed), **values)
    return record


def test_a_result_is_for_other_candidates_on_the_same_subgraph(cases, bench):
    first, other = cases
    known = Baselines()
    known.keep(first, measured(first))
    assert known.beside_others(other).arms == measured(first).baselines
    assert known.beside_others(first).arms == {}  # the candidate's own result does not replace a measurement
    longer = bench.task(scales=(1, 2))
    subgraphs = {
        item.id: replace(other, task=read_task(longer), subgraph=item) for item in read_task(longer).subgraphs
    }
    assert known.beside_others(subgraphs["float32-x2"]).arms == {}


def test_in_a_later_run_the_same_name_is_another_candidate(cases):
    first, _ = cases
    known = Baselines()
    known.keep(first, measured(first))
    known.of_others()
    assert known.beside_others(first).arms == measured(first).baselines


def test_a_task_of_which_some_subgraphs_are_left_out_is_the_same(cases, bench):
    path = bench.task(scales=(1, 2))
    task = read_task(path)
    first, other = (replace(case, task=task, subgraph=task.subgraphs[1]) for case in cases)
    known = Baselines()
    known.keep(first, measured(first))
    left = replace(other, task=replace(task, subgraphs=task.subgraphs[1:]))
    assert known.beside_others(left).arms == measured(first).baselines


def test_what_is_measured_again_counts_and_another_candidate_changes_nothing(cases):
    first, other = cases
    known = Baselines()
    known.keep(first, measured(first))
    known.keep(first, measured(first, correct_from=[-5]))
    known.keep(other, measured(other, correct_from=[-4]))
    assert known.beside_others(other).arms["inductor"].correct_from == [-5]
    known.beside_others(other).arms["inductor"].correct_from.append(99)
    assert known.beside_others(other).arms["inductor"].correct_from == [-5]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({"status": "crash", "speed": None}, False),
        ({"status": "timeout", "speed": None}, False),
        ({"status": "compile_fail", "speed": None}, True),
        ({"speed": None, "correct_from": []}, False),
        ({"speed": None, "correct_from": [99]}, True),
        ({"speed": Speed(1.6, 0.1, 9.0, "UNRESOLVED", 16.0, 10.0, [[0.5, 0.5]] * 2)}, False),
    ],
    ids=["crash", "timeout", "compile_fail", "not-run", "wrong", "cut-short"],
)
def test_what_may_be_the_machines_doing_is_not_kept(cases, values, kept):
    first, other = cases
    known = Baselines()
    known.keep(first, measured(first, **values))
    assert bool(known.beside_others(other).arms) is kept
