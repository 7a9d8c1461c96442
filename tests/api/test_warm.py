"""A judge that serves several runs: what stays warm, and what must not."""

from __future__ import annotations

import os
import signal

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge import equipment
from pytest_passbench.judge.arms import processes
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.session import Session
from pytest_passbench.suite.taskfile import read_task
from shared.workspace import Workspace, make_cpp_pass, make_wrapper

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def session():
    with Session(Settings(pipeline="direct"), b"") as found:
        found.repeats = False
        yield found


@pytest.fixture
def bench(tmp_path) -> Workspace:
    made = Workspace(tmp_path)
    made.task(scales=(1, 4))
    made.candidate({"p": make_cpp_pass()})
    return made


def run(session: Session, bench: Workspace, name: str = "cand"):
    session.begin(os.urandom(32))
    (path,) = bench.tasks.glob("*.yaml")
    return list(session.judge(read_task(path), Candidate.open(bench.folder / name)))


def templates(session: Session) -> set[int]:
    """Return the ids of the processes that stay in eager's sandbox between two runs."""
    return set(session.equipment.sandboxes.arms(["eager"])["eager"].lasting)


@pytest.mark.slow
def test_eagers_programs_serve_the_next_run_which_draws_other_inputs(session, bench, monkeypatch):
    keys = []
    begin = Inputs.__init__

    def noted(self, specs, key, *generator):
        keys.append(key)
        begin(self, specs, key, *generator)

    monkeypatch.setattr(Inputs, "__init__", noted)
    first = run(session, bench)
    kept = templates(session)
    assert len(kept) == 4  # eager and its float64 form, for two subgraphs
    bench.candidate({"p": make_cpp_pass("\n// other\n" + KERNEL)}, "other")
    others = run(session, bench, "other")
    again = run(session, bench)
    assert templates(session) == kept
    assert len(set(keys)) == len(keys)
    for records in (first, others, again):
        assert [(record.arm.status, record.correct) for record in records] == [("ran", True)] * 2
        assert all(len(record.arm.speed.pairs) == 6 for record in records)
        assert all(record.arm.greatest_ratio64 for record in records)
    assert all(one.arm.speed.pairs != two.arm.speed.pairs for one, two in zip(first, again, strict=True))


@pytest.mark.slow
def test_kept_programs_leave_no_ended_process_behind_from_run_to_run(session, bench):
    counts = []
    for _ in range(4):
        run(session, bench)
        counts.append(len(processes.descendants(session.equipment.sandboxes.arms(["eager"])["eager"].zygote)))
    assert counts[0] >= len(templates(session)), "those that live are among them"
    assert counts[3] - counts[0] < 10, "each run forks more than ten runners"


KERNEL = """
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f)) + y[i];
}
"""


def test_a_kept_program_that_was_killed_is_built_again(session, bench):
    run(session, bench)
    kept = templates(session)
    for pid in kept:
        os.kill(pid, signal.SIGKILL)
    records = run(session, bench)
    assert [(record.arm.status, record.correct) for record in records] == [("ran", True)] * 2
    assert not templates(session) & kept


@pytest.mark.slow
def test_a_kept_program_that_is_lost_in_use_costs_a_second_attempt_and_nothing_else(session, bench, monkeypatch):
    run(session, bench)
    kept, of, struck = templates(session), equipment.Programs.of, []

    def struck_once(self, case, arm):
        built = of(self, case, arm)
        if built is not None and not struck:
            struck.extend(kept)
            for pid in kept:
                os.kill(pid, signal.SIGKILL)
        return built

    monkeypatch.setattr(equipment.Programs, "of", struck_once)
    records = run(session, bench)
    assert struck
    assert [(record.arm.status, record.correct) for record in records] == [("ran", True)] * 2


def test_few_programs_are_kept(session, bench, monkeypatch):
    monkeypatch.setattr(equipment, "MAX_PROGRAMS", 1)
    bench.task("other", scales=(2,))
    (path,) = bench.tasks.glob("other*")
    session.begin(os.urandom(32))
    assert [r.correct for r in session.judge(read_task(path), Candidate.open(bench.folder / "cand"))] == [True]
    assert len(templates(session)) == 2
    path.unlink()
    assert [record.correct for record in run(session, bench)] == [True, True]
    assert len(templates(session)) == 2


def test_nothing_that_a_candidate_wrote_or_broke_reaches_the_next_run(session, bench):
    leaves = """
    import pathlib, tempfile
    for place in (pathlib.Path(__file__).parent, pathlib.Path(tempfile.gettempdir())):
        mark = place / "mark.txt"
        if mark.exists():
            raise RuntimeError(f"was here before: {mark}")
        mark.write_text("mark")
    """
    head = "\n".join(line[4:] for line in leaves.splitlines())
    bench.candidate({"p": head + make_cpp_pass()}, "leaves")
    for _ in range(2):
        assert [record.arm.status for record in run(session, bench, "leaves")] == ["ran"] * 2
    bench.candidate({"p": make_wrapper("return torch.add(x, y)")}, "cheats")
    statuses = [[record.arm.status for record in run(session, bench, "cheats")] for _ in range(2)]
    assert statuses == [["integrity"] * 2] * 2
    records = run(session, bench, "cheats")
    assert records[0].arm.phase == "plan"  # found out in this run, and not remembered
    assert [record.correct for record in run(session, bench)] == [True, True]
