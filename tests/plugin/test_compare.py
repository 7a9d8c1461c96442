"""A run that is compared with an earlier one: which cases fail by it, and which must not fail by noise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_passbench.commands.main import main
from support.plugin_runs import OK, PytestFolder

# The second judging of a subgraph in a run has the values of "again". The file "asked" lists all judgings.
AGAIN = """
class Again(Judge):
    def judge(self, task, candidate):
        asked = self.__dict__.setdefault("asked", [])
        for subgraph in task.subgraphs:
            told, key = dict(subgraph.meta), f"{task.id}/{subgraph.id}"
            if key in asked:
                told.update(told.get("again", {}))
            asked.append(key)
            with open("asked", "a") as file:
                file.write(key + " ")
            yield record(task, subgraph, candidate, told)


@pytest.hookimpl(tryfirst=True)
def pytest_passbench_make_session(config, settings, seed):
    return Again(settings, seed)
"""
ELSEWHERE = """
Again.environment = lambda self: {"torch": "2.0"}
"""
CANDIDATE = "--candidate=passes"


@pytest.fixture
def bench(pytester, monkeypatch):
    bench = PytestFolder(pytester, monkeypatch)
    bench.conftest(AGAIN)
    return bench


def stored(bench: PytestFolder, *told: dict) -> str:
    """Judge a task once, and return the option that compares another run with that one."""
    bench.task("a", *told)
    bench.run(CANDIDATE)
    (folder,) = bench.path.glob("reports/*")
    shutil.move(folder, bench.path / "old")
    (bench.path / "asked").unlink()
    return "--passbench-compare=old"


def last(bench: PytestFolder) -> dict:
    return json.loads(max(bench.path.glob("reports/*/results.json")).read_text())


def asked(bench: PytestFolder) -> list[str]:
    return (bench.path / "asked").read_text().split()


def test_a_slower_case_fails_once_a_further_measurement_agrees(bench):
    compare = stored(bench, OK, OK)
    bench.task("a", {"ratio": 1.0, "again": {"ratio": 1.01}}, OK)
    result = bench.run(CANDIDATE, compare)
    assert result.ret == 1
    assert asked(bench) == ["a/s0", "a/s1", "a/s0"]
    result.stdout.fnmatch_lines([
        "compared with */old/results.json, at most 3 % slower",
        "*1 of 2 subgraphs lost more speed-up than is allowed",
        "*s0: 1x, was 1.5x: 0.667 [[]*[]] of it; measured again, 0.673 [[]*[]]",
        "Changes: passes, since old/results.json",
        "a *0.816 [[]*[]]   2 of 2  1 slower, 1 unresolved",
        "compare failed: passes since old/results.json: of 2 subgraphs 0 lost correctness, 1 more than 3 % of *",
        "FAILED *1 of 2 slower than before: s0*",
    ])  # fmt: skip
    first = last(bench)["records"][0]
    assert (first["arm"]["speed"]["ratio"], first["stored"]["speed"]["ratio"]) == (1.0, 1.5)
    assert first["stored"]["again"]["ratio"] == 1.01


def test_a_slower_case_passes_if_a_further_measurement_disagrees(bench):
    compare = stored(bench, OK)
    bench.task("a", {"ratio": 1.0, "again": {"ratio": 1.5}})
    result = bench.run(CANDIDATE, compare)
    assert result.ret == 0
    assert asked(bench) == ["a/s0", "a/s0"]
    result.stdout.fnmatch_lines(["compare passed: passes since old/results.json: of 1 subgraph 0 lost *, 0 more *"])
    assert last(bench)["records"][0]["arm"]["speed"]["ratio"] == 1.0  # the first measurement stands


def test_an_open_answer_fails_only_if_that_is_asked_for(bench):
    compare = stored(bench, OK)
    bench.task("a", {"ratio": 1.48})
    result = bench.run(CANDIDATE, compare)
    assert result.ret == 0
    assert asked(bench) == ["a/s0"]
    result.stdout.fnmatch_lines(["compare passed: *, 1 open"])
    assert bench.run(CANDIDATE, compare, "--passbench-max-regression=3%,strict").ret == 1
    bench.task("a", {"ratio": 1.48, "again": {"ratio": 1.9}})  # the second measurement is certain
    assert bench.run(CANDIDATE, compare, "--passbench-max-regression=3%,strict").ret == 0


def test_the_limit_is_a_share_of_the_speed_up(bench):
    compare = stored(bench, OK)
    bench.task("a", {"ratio": 1.0})
    assert bench.run(CANDIDATE, compare, "--passbench-max-regression=25%").ret == 1
    assert bench.run(CANDIDATE, compare, "--passbench-max-regression=0.5").ret == 0


def test_lost_correctness_fails_without_a_further_measurement(bench):
    compare = stored(bench, OK, {"correct_from": [99]})
    bench.task("a", {"correct_from": [99]}, OK)
    result = bench.run(CANDIDATE, compare)
    assert result.ret == 1
    assert asked(bench) == ["a/s0", "a/s1"]
    result.stdout.fnmatch_lines([
        "*before *correct in the run that this one is compared with",
        "a *1 of 2  1 lost (accuracy), 1 gained",
        "compare failed: *of 2 subgraphs 1 lost correctness, 0 more *",
    ])  # fmt: skip


def test_a_wrong_answer_in_the_further_measurement_is_wrong(bench):
    compare = stored(bench, OK)
    bench.task("a", {"ratio": 1.0, "again": {"correct_from": [99]}})
    assert bench.run(CANDIDATE, compare).ret == 1
    assert last(bench)["records"][0]["arm"]["correct_from"] == [99]


def test_only_candidates_are_compared_by_name_unless_there_is_one_each(bench):
    compare = stored(bench, OK)
    bench.candidate("other")
    result = bench.run("--candidate=other", compare)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Changes: passes to other, since old/results.json"])
    bench.candidate("third")
    result = bench.run("--candidate=other", "--candidate=third", compare)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*no candidate of the same name: passes, not other, third*"])


def test_a_run_with_nothing_to_compare_does_not_pass(bench):
    compare = stored(bench, OK)
    bench.file("installed/tasks/family/a.task.yaml", bench.text("b", OK))
    result = bench.run(CANDIDATE, compare)
    assert result.ret == 1
    result.stdout.fnmatch_lines([
        "Not judged now: 1 subgraph of old/results.json.",
        "compare failed: no subgraph of passes since old/results.json can be compared (compare runs of the same *)",
    ])  # fmt: skip


def test_two_files_with_no_task_in_common_fail_if_a_limit_was_asked_for(bench, capsys):
    stored(bench, OK)
    bench.file("installed/tasks/family/a.task.yaml", bench.text("b", OK))
    bench.run(CANDIDATE)
    (now,) = bench.path.glob("reports/*")
    files = [str(bench.path / "old"), str(now)]
    capsys.readouterr()
    assert main(["compare", *files]) == 0
    assert "no subgraph of passes since " in capsys.readouterr().out
    for form in ("text", "markdown", "json"):
        assert main(["compare", *files, "--max-regression=3%", f"--format={form}"]) == 1
        said = capsys.readouterr()
        assert said.out
        assert said.err == (
            f"passbench: error: {now}/results.json: no subgraph of passes since old/results.json can be compared, "
            "so --max-regression was not checked (compare runs of the same tasks)\n"
        )


def edit(bench: PytestFolder, change) -> None:
    """Change the stored run and its digest."""
    from pytest_passbench.core.run import digest

    path = bench.path / "old/results.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps({**data, "digest": digest(data)}))


def test_a_run_that_is_not_comparable_is_refused(bench):
    compare = stored(bench, OK)
    for name, then in (("device", "cuda"), ("threads", 2), ("pipeline", "direct")):
        edit(bench, lambda data, name=name, then=then: data["settings"].update({name: then}))
        result = bench.run(CANDIDATE, compare)
        assert result.ret == 4
        result.stderr.fnmatch_lines([f"*old/results.json: is not comparable: * was {then} and is *"])
        edit(bench, lambda data, name=name: data["settings"].pop(name))


def test_another_edition_is_refused_and_another_machine_is_said(bench):
    bench.file("installed/tasks/EDITION", "9")
    compare = stored(bench, OK)
    edit(bench, lambda data: data["environment"].update(torch="1.0"))
    bench.conftest(AGAIN + ELSEWHERE)
    result = bench.run(CANDIDATE, compare)
    assert result.ret == 0
    said = "The earlier run is of another machine (torch was 1.0 and is 2.0): only ratios to eager are compared."
    assert result.stdout.str().count(said) == 2
    edit(bench, lambda data: data["hashes"].update(editions=["8"]))
    result = bench.run(CANDIDATE, compare)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*is not comparable: edition 8 of the suite, and these tasks are of edition 9*"])


@pytest.mark.parametrize(
    ("ratios", "options", "code", "said"),
    [
        ([0.9, 0.8, 1.1], [], 1, "against failed: passes against old: 2 of 3 subgraphs more than 3 % slower"),
        ([0.9, 0.8, 1.1], ["--passbench-max-regression=25%"], 0, "against passed: *: 0 of 3 * more than 25 % slower"),
        ([0.975, 1.1], [], 0, "against passed: *: 0 of 2 *"),
        ([0.975, 1.1], ["--passbench-max-regression=3%,strict"], 1, "against failed: *: 1 of 2 *"),
        ([None], [], 1, "against failed: passes against old: no subgraph has a ratio"),
    ],
)
def test_a_candidate_that_is_slower_than_the_reference_fails_the_run(bench, ratios, options, code, said):
    bench.task("a", *[OK if ratio is None else {"against": ratio} for ratio in ratios])
    bench.candidate("old")
    result = bench.run(CANDIDATE, "--passbench-against=old", *options)
    assert result.ret == code
    result.stdout.fnmatch_lines([said, "*1 passed*"])


def test_mistakes_are_said_in_a_line(bench):
    compare = stored(bench, OK)
    (bench.path / "old/results.json").write_text((bench.path / "old/results.json").read_text().replace("1.5", "1.4"))
    for words, said in (
        ((CANDIDATE, compare), "was changed after it was written"),
        ((CANDIDATE, "--passbench-compare=none"), "no such file"),
        ((CANDIDATE, "--passbench-max-regression=3%"), "add --passbench-compare=FILE, or --passbench-against=DIR"),
        ((CANDIDATE, compare, "--passbench-max-regression=3%,lax"), "'lax' is not strict"),
        ((CANDIDATE, compare, "--passbench-max-regression=3"), "write it as 3% or 0.03"),
        ((CANDIDATE, "--passbench-against=none"), "none"),
        ((CANDIDATE, "--passbench-against=passes", "--passbench-trusted"), "a trusted run measures nothing"),
    ):
        result = bench.run(*words)
        assert result.ret == 4, words
        result.stderr.fnmatch_lines([f"*{said}*"])


@pytest.mark.slow
def test_workers_compare_too(bench):
    compare = stored(bench, OK, OK)
    bench.task("a", {"ratio": 1.0}, OK)
    result = bench.run_apart(CANDIDATE, compare, "-n1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["compare failed: *of 2 subgraphs 0 lost correctness, 1 more *"])
    assert last(bench)["records"][0]["stored"]["again"]["ratio"] == 1.0


@pytest.mark.slow
def test_a_run_is_resumed_with_the_same_comparison_only(bench):
    compare = stored(bench, OK, OK)
    bench.task("a", {"ratio": 1.0}, {"interrupt": True})
    bench.run(CANDIDATE, compare)
    bench.task("a", {"ratio": 1.0}, OK)
    refused = bench.run(CANDIDATE, compare, "--passbench-resume", "--passbench-max-regression=5%")
    assert refused.ret == 4
    refused.stderr.fnmatch_lines(["*the run to compare with (--passbench-compare), or how, is another one*"])
    (bench.path / "asked").unlink()
    assert bench.run(CANDIDATE, compare, "--passbench-resume").ret == 1
    assert asked(bench) == ["a/s1", "a/s0"]  # a/s1 was left, and a/s0 is judged again to confirm it


def test_two_files_are_compared(bench, capsys):
    stored(bench, OK, OK, {"ratio": 3.0})
    bench.task("a", {"status": "crash"}, OK, {"ratio": 2.0})
    bench.run(CANDIDATE)
    (now,) = bench.path.glob("reports/*")
    files = [str(bench.path / "old"), str(now / "results.json")]
    capsys.readouterr()
    assert main(["compare", *files]) == 0
    said = capsys.readouterr().out
    assert "Changes: passes, since old/results.json" in said
    assert "3 to 2 of 3" in said
    assert main(["compare", *files, "--format=json", "--max-regression=3%"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["candidates"][0]["tasks"][0]["outcomes"] == {"lost (crash)": 1, "unresolved": 1, "slower": 1}
    assert len(found["regressions"]) == 2
    assert main(["compare", *files, "--format=markdown"]) == 0
    assert "| a | 2.121 [" in capsys.readouterr().out


def test_the_reference_is_named_and_kept_from_pytest(bench):
    bench.task("a", {"against": 1.1})
    bench.candidate("old")
    Path(bench.path / "old/conftest.py").write_text("raise SystemExit('imported')")
    result = bench.run(CANDIDATE, "--passbench-against=old")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["against: old, content *"])
    assert last(bench)["against"]["name"] == "old"
