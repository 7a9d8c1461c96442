"""Which tasks are collected, under which ids; what is refused; and what a run without ``--passbench`` costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.plugin_runs import OK, PytestFolder

PUBLISHED_MODEL = """
import torch

class GraphModule(torch.nn.Module):
    def forward(self, in_0):
        tmp_0 = torch.relu(in_0);  in_0 = None
        return (tmp_0,)
"""
PUBLISHED_WEIGHTS = """
class Input_in_0:
    name = "in_0"
    shape = [4]
    dtype = "torch.float32"
    device = "cpu"
    mean = 0.0
    std = 1.0
"""


@pytest.fixture
def bench(pytester, monkeypatch):
    return PytestFolder(pytester, monkeypatch)


def subgraph_folder(bench: PytestFolder, name: str) -> None:
    bench.file(f"{name}/model.py", PUBLISHED_MODEL)
    bench.file(f"{name}/weight_meta.py", PUBLISHED_WEIGHTS)
    bench.file(f"{name}/input_meta.py", "")
    bench.file(f"{name}/graph_net.json", '{"framework": "torch", "model_name": "made-up"}')


def ids(result: pytest.RunResult) -> list[str]:
    return sorted(line for line in result.outlines if "::" in line and " " not in line)


def collected(bench: PytestFolder, *args: str) -> list[str]:
    return ids(bench.run("--collect-only", "-q", "--candidate=passes", *args))


def test_without_paths_only_installed_tasks_of_the_lite_suite(bench):
    bench.task("a")
    bench.task("b", tags="other")
    bench.file("test_mine.py", "def test_mine(): raise SystemError")
    assert collected(bench) == ["tasks/family/a.task.yaml::a[passes]"]
    assert len(collected(bench, "--passbench-suite=full")) == 2
    bench.run("--candidate=passes").stdout.fnmatch_lines(
        ["suite: lite (1 of 2 tasks; --passbench-suite=full for all)"]
    )


def test_paths_run_everything_in_them(bench):
    bench.file("own/a.task.yaml", bench.text("a", tags=""))
    bench.file("own/deep/b.task.yaml", bench.text("b", tags="train"))
    everything = ["own/a.task.yaml::a[passes]", "own/deep/b.task.yaml::b[passes]"]
    assert collected(bench, "own") == everything
    assert collected(bench, "--passbench-tasks=own") == everything
    assert collected(bench, "--passbench-tasks=own", "--passbench-suite=train") == everything[1:]
    assert collected(bench, "own", "--passbench-suite=train") == everything[1:]
    assert collected(bench, "own/a.task.yaml::a[passes]") == everything[:1]
    assert collected(bench, "own/a.task.yaml", "-k", "nothing") == []


@pytest.mark.parametrize("args", [["a", "b"], ["--passbench-tasks=a", "--passbench-tasks=b"], ["a", "b", "-n2"]])
def test_two_tasks_of_one_id_are_refused(bench, args):
    """Results are stored by the id, so those of one task would replace those of the other."""
    for folder in ("a", "b"):
        bench.file(f"{folder}/x.task.yaml", bench.text("x"))
    result = bench.run("--candidate=passes", *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*b/x.task.yaml: task id 'x' is also that of a/x.task.yaml (rename one)"])
    assert not list(bench.path.glob("reports/*/results.json"))


def test_node_ids_of_installed_tasks_work_though_they_are_no_paths_here(bench):
    bench.task("a")
    bench.task("b")
    assert collected(bench, "tasks/family/b.task.yaml::b[passes]") == ["tasks/family/b.task.yaml::b[passes]"]
    assert len(collected(bench, "tasks/family")) == 2
    refused = bench.run("--candidate=passes", "tasks/family/c.task.yaml")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["ERROR: tasks/family/c.task.yaml: no such path, and no such installed task*"])
    for wrong, said in (
        ("tasks/family/bb.task.yaml", "no such path, *(did you mean tasks/family/b.task.yaml?*"),
        ("tasks/family/b.task.yaml::bb[passes]", "no such task in this file (its task is b)"),
    ):
        refused = bench.run("--candidate=passes", wrong)
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        refused.stderr.fnmatch_lines([f"ERROR: {wrong.replace('[', '[[]')}: {said}"])


def test_published_samples_and_bare_subgraphs(bench):
    subgraph_folder(bench, "sample/one")
    subgraph_folder(bench, "sample/two")
    bench.file("sample/graph_list.txt", "one\ntwo\n")
    subgraph_folder(bench, "bare/graph")
    assert collected(bench, "sample") == ["sample/graph_list.txt::sample[passes]"]
    assert collected(bench, "sample/graph_list.txt") == ["sample/graph_list.txt::sample[passes]"]
    assert collected(bench, "bare") == ["bare/graph/model.py::bare-graph[passes]"]
    result = bench.run("--candidate=passes", "sample", "bare")
    result.stdout.fnmatch_lines(["sample/graph_list.txt . 2/2 correct*"])
    result.assert_outcomes(passed=2)
    bench.run("--candidate=passes", "--passbench-tasks=sample").assert_outcomes(passed=1)


def test_the_line_of_a_task_ends_before_the_edge_and_shows_the_share_done_once(bench, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for length in range(1, 47):  # after a longer name there is no room for the letter
        bench.task("a" * length)
    lines = bench.run("--candidate=passes").outlines
    assert sum(line.startswith("tasks/family/") for line in lines) == 46
    assert [line.count("%]") for line in lines if "%]" in line] == [1] * 46
    assert max(len(line) for line in lines if "%]" in line or line.startswith("tasks/family/")) <= 80


def test_a_model_py_of_somebodys_is_no_task(bench):
    bench.file("app/model.py", "raise SystemError('imported')")
    bench.file("app/a.task.yaml", bench.text("a"))
    assert collected(bench, "app") == ["app/a.task.yaml::a[passes]"]


def test_last_failed_and_k(bench):
    bench.task("good")
    bench.task("bad", {"status": "crash"})
    bench.run("--candidate=passes").assert_outcomes(passed=1, failed=1)
    again = bench.run("--candidate=passes", "--lf")
    again.assert_outcomes(failed=1)
    bench.run("--candidate=passes", "-k", "good").assert_outcomes(passed=1, deselected=1)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--lf", "--ff"])
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "xdist"])
def test_a_task_outside_the_suite_that_failed_last_is_judged_again(bench, option, workers):
    bench.task("good")
    bench.task("bad", {"status": "crash"}, tags="other")
    bench.run("--candidate=passes", "--passbench-task=bad").assert_outcomes(failed=1)
    others = {} if option == "--lf" else {"passed": 1}
    again = bench.run("--candidate=passes", option, *workers)
    again.assert_outcomes(failed=1, **others, deselected=int(option == "--lf" and not workers))
    again.stdout.fnmatch_lines(["suite: lite (1 of 2 tasks; *), and 1 more that failed last"])
    bench.candidate("others")
    bench.run("--candidate=others", option).assert_outcomes(passed=1)
    bench.run("--candidate=passes", option, "--passbench-suite=lite").assert_outcomes(passed=1)


def test_a_run_that_selects_nothing_of_the_lite_suite_names_the_remedy(bench):
    bench.task("common", {"status": "pass_miss"})
    bench.task("rare", tags="other")
    remedy = "no task of the lite suite was selected (add --passbench-suite=full for all 2 tasks, or name one: *={})"
    for args, name in (
        (("-k", "rare"), "rare"),
        (("-k", "ra"), "ID"),
        (("-k", "rare", "-n2"), "rare"),
        (("-k", "rare", "--collect-only"), "rare"),
        (("--passbench-only-matching",), "ID"),
    ):
        result = bench.run("--candidate=passes", *args)
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
        result.stdout.fnmatch_lines([remedy.format(name)])
    for args in ("--passbench-suite=full", "--passbench-task=rare", "tasks/family"):
        result = bench.run("--candidate=passes", "-k", "none", args)
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
        result.stdout.no_fnmatch_line("*no task of the lite suite*")


def test_collecting_only_says_that_it_matches_nothing(bench):
    bench.task("missed", {"status": "pass_miss"})
    result = bench.run("--candidate=passes", "--passbench-only-matching", "--collect-only")
    result.stdout.fnmatch_lines(["only matching: not applied while collecting only; 'passbench explain DIR --all'*"])


def test_shards_split_the_tasks_and_are_together_all(bench):
    for index in range(5):
        bench.task(f"t{index}", *[OK] * (index + 1))
    parts = [collected(bench, f"--passbench-shard={i}/2") for i in (1, 2)]
    assert sorted(parts[0] + parts[1]) == collected(bench)
    assert not set(parts[0]) & set(parts[1])
    assert abs(len(parts[0]) - len(parts[1])) <= 1


def test_a_candidates_files_are_never_imported_or_collected(bench):
    evil = "raise SystemError('a file of the candidate ran')"
    bench.candidate("testing")
    for name in ("testing", "testing/test_deep"):
        bench.file(f"{name}/conftest.py", evil)
        bench.file(f"{name}/test_evil.py", evil)
    bench.file("own/b.task.yaml", bench.text("b"))
    bench.task("a")
    bench.run_apart("--candidate=testing").assert_outcomes(passed=1)
    bench.run_apart("--candidate=testing", ".").assert_outcomes(passed=2)


@pytest.mark.parametrize("name", ["passes", "passes/deep"])
def test_a_run_from_inside_the_candidate_is_refused(bench, name, monkeypatch):
    bench.file("passes/conftest.py", "raise SystemError('ran')")
    bench.file("passes/deep/x", "")
    monkeypatch.chdir(bench.path / name)
    result = bench.run_apart(f"--candidate={bench.path / 'passes'}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: the working folder, *passes*, is inside the candidate*"])


def test_a_candidate_on_sys_path_or_as_a_path_argument_is_refused(bench, monkeypatch):
    inside = bench.run("--candidate=passes", "passes")
    assert inside.ret == pytest.ExitCode.USAGE_ERROR
    inside.stderr.fnmatch_lines(["ERROR: passes: is inside the candidate, whose folder is never collected*"])
    monkeypatch.syspath_prepend(bench.path / "passes")
    result = bench.run("--candidate=passes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *passes is on sys.path*"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--passbench-tolerance=1", "*--passbench-tolerance: '1' is not an integer from -10 to 0"),
        ("--passbench-tolerance=x", "*'x' is not an integer from -10 to 0"),
        ("--passbench-device=tpu", "*'tpu' is not one of cpu, cuda, cuda:N"),
        ("--passbench-pipeline=jit", "*'jit' is not one of dynamo, direct, inductor"),
        ("-opassbench_policy=none", "*'none' is not one of kernels, open"),
        ("--passbench-audit=x", "*'x' is not one of off, standard, paranoid"),
        ("-opassbench_sandbox=none", "*'none' is not one of auto, required"),
        ("--passbench-baseline=x", "*'x' is not one of inductor, max-autotune"),
        ("--passbench-suite=x", "*'x' is not one of lite, full, train, all"),
        ("--passbench-held-out=21", "*'21' is not an integer from 0 to 20"),
        ("-opassbench_threads=0", "*'0' is not an integer from 1 to 4096"),
        ("-opassbench_timeout=-1", "*'-1' is not a positive number of seconds"),
        ("--passbench-budget=inf", "*'inf' is not a duration: write seconds, minutes or hours, as 90, 10m or 1h"),
        ("--passbench-budget=soon", "*'soon' is not a duration: write seconds, minutes or hours, *"),
        ("--passbench-budget=-2m", "*'-2m' is not a duration: *"),
        ("--passbench-shard=3/2", "*'3/2' is not i/N with 1 <= i <= N"),
        ("--passbench-fail-under=speed=2", "*'speed=2' is not NAME=VALUE with NAME one of AS, correct,*"),
        ("--passbench-fail-under=AS=x", "*'x' is not a number"),
        ("--passbench-tasks=nowhere", "ERROR: *nowhere: no such file or folder*"),
        ("--candidate=nowhere", "ERROR: *nowhere: the candidate directory does not exist*"),
        ("--passbench-report-dir=pytest.ini/x", "ERROR: *pytest.ini/x: cannot be written*"),
    ],
)
def test_what_is_out_of_range_or_not_there_is_a_usage_error(bench, argument, message):
    bench.task("a")
    result = bench.run("--candidate=passes", argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
    assert "Traceback" not in result.stderr.str()


def test_a_device_that_is_not_here_is_a_usage_error(bench):
    bench.task("a")
    result = bench.run("--candidate=passes", "--passbench-device=cuda:99")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --passbench-device=cuda:99: torch finds * CUDA devices here*"])


def test_no_candidate_and_no_gates_where_nothing_is_scored(bench):
    bench.task("a")
    bench.run().stderr.fnmatch_lines(["ERROR: --candidate: no candidate given*"])
    both = bench.run("--candidate=passes", "--passbench-trusted", "--passbench-fail-under=AS=1")
    assert both.ret == pytest.ExitCode.USAGE_ERROR
    both.stderr.fnmatch_lines(["ERROR: --passbench-fail-under needs scores*"])
    both = bench.run("--candidate=passes", "--passbench-trusted", "--passbench-held-out=2")
    assert both.ret == pytest.ExitCode.USAGE_ERROR
    both.stderr.fnmatch_lines(["ERROR: --passbench-held-out=2: a trusted run judges no further sizes (leave one *"])


def test_a_folder_for_a_task_that_is_not_there_is_named(bench):
    bench.task("a")
    bench.candidate("several/a/pass_dir")
    bench.candidate("several/zzz/pass_dir")
    result = bench.run("--candidate=several")
    result.stdout.fnmatch_lines(["not judged: *several/zzz: no task is called 'zzz'*"])
    result.assert_outcomes(passed=1)
    bench.candidate("stray/zzz/pass_dir")
    result = bench.run("--candidate=stray")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *stray/zzz: no task is called 'zzz'*"])
    bench.file("own/zzz.task.yaml", bench.text("zzz"))
    bench.run("--candidate=several", "own").assert_outcomes(passed=1)


def test_every_option_has_an_ini_twin(bench):
    bench.file(
        "pytest.ini",
        "[pytest]\npassbench = true\npassbench_candidate = passes\npassbench_tolerance = -3\n"
        "passbench_fail_under =\n  AS=0.1\n  correct=0.5\n",
    )
    bench.task("a")
    result = bench.pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["passbench: *t: -3*", "gate passed: AS*", "gate passed: correct*"])
    result.assert_outcomes(passed=1)
    bench.file("pytest.ini", "[pytest]\npassbench_tolerance = 7\n")
    wrong = bench.run("--candidate=passes")
    wrong.stderr.fnmatch_lines(["ERROR: *pytest.ini: passbench_tolerance: '7' is not an integer from -10 to 0"])


def test_without_the_switch_nothing_changes(bench):
    bench.file("a.task.yaml", "not: [yaml")
    bench.file("test_mine.py", "def test_mine(): pass")
    result = bench.pytester.runpytest_inprocess(".")
    result.assert_outcomes(passed=1)
    assert "passbench:" not in result.stdout.str()


HEAVY = """
import sys, pytest
class Look:
    def pytest_collection_finish(self, session):
        print("HEAVY", sorted({"torch", "numpy", "triton", "transformers"} & set(sys.modules)))
        print("YAML", "yaml" in sys.modules)
sys.exit(pytest.main(sys.argv[1:], plugins=[Look()]))
"""


@pytest.mark.parametrize(("args", "yaml"), [([], False), (["--passbench", "--candidate=passes"], True)])
def test_collecting_imports_nothing_heavy(bench, args, yaml):
    bench.task("a")
    bench.file("test_mine.py", "def test_mine(): pass")
    bench.file("conftest.py", "" if not args else (bench.path / "conftest.py").read_text())
    command = [sys.executable, "-c", HEAVY, "--collect-only", "-q", "-pno:cacheprovider", *args]
    text = subprocess.run(command, cwd=bench.path, capture_output=True, text=True, check=True).stdout
    assert "HEAVY []" in text
    assert f"YAML {yaml}" in text


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, pytest_passbench; print({'torch', 'numpy', 'yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_task_is_chosen_by_its_id_whatever_its_suite(bench):
    bench.task("one")
    bench.task("two", tags="train")
    result = bench.run("--candidate=passes", "--passbench-task=two")
    result.stdout.fnmatch_lines(["tasks: two", "tasks/family/two.task.yaml . 1/1*", "*1 passed*"])
    result = bench.run("--candidate=passes", "--passbench-task=tow")
    result.stderr.fnmatch_lines(["ERROR: no task is called 'tow' (did you mean two? 'passbench tasks list' shows*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_of_the_tasks_on_a_path_only_those_named_are_judged(bench):
    bench.file("own/one.task.yaml", bench.text("one"))
    bench.file("own/two.task.yaml", bench.text("two", tags="train"))
    result = bench.run("--candidate=passes", "--passbench-task=two", "own")
    result.stdout.fnmatch_lines(["own/two.task.yaml . 1/1*", "*1 passed*"])


@pytest.mark.parametrize("workers", [(), pytest.param(("-n2",), marks=pytest.mark.slow)], ids=["serial", "xdist"])
def test_only_tasks_that_a_pass_matches_are_judged_if_asked_for(bench, workers):
    bench.task("matched")
    for name in ("missed", "other"):
        bench.task(name, {"status": "pass_miss"})
    result = bench.run("--candidate=passes", "--passbench-only-matching", *workers)
    count = "the" if workers else "2"  # workers also leave tasks out for other reasons
    result.stdout.fnmatch_lines([f"left out: {count} tasks that no pass matches. No score has them*", "*1 passed*"])
    result.stdout.fnmatch_lines(["passes * 100.0 *"])


def test_only_what_is_selected_is_matched(bench):
    bench.conftest("""
        def touches(self, ref, candidate):
            with open("matched", "a") as file:
                print(ref.id, file=file)
            return True

        Judge.touches = touches
    """)
    bench.task("good")
    bench.task("bad", {"status": "crash"})
    bench.run("--candidate=passes").assert_outcomes(passed=1, failed=1)
    bench.run("--candidate=passes", "--passbench-only-matching", "--lf").assert_outcomes(failed=1)
    assert (bench.path / "matched").read_text().split() == ["bad"]
    bench.run("--candidate=passes", "--passbench-only-matching", "-k", "good").assert_outcomes(passed=1, deselected=1)
    assert (bench.path / "matched").read_text().split() == ["bad", "good"]


def test_a_misspelt_option_is_named_with_the_nearest(bench):
    result = bench.run("--candidate=passes", "--passbench-pipline=direct")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*-pipline: there is no such option (did you mean --passbench-pipeline? *"])
    result = bench.run("--candidate=passes", "--passbench-polcy=open")
    result.stderr.fnmatch_lines(["*-polcy: there is no such option (did you mean -o passbench_policy=VALUE? *"])


def test_a_setting_of_the_ini_file_that_is_given_as_an_option_is_told_apart(bench):
    result = bench.run("--candidate=passes", "--passbench-timeout=10")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = "*--passbench-timeout: is a setting of the ini file, not an option (write it there, or -o *_timeout=VALUE)"
    result.stderr.fnmatch_lines([told])


@pytest.mark.parametrize("seed", ["zz", "", "0x1", "f" * 65])
def test_a_seed_is_a_hexadecimal_number(bench, seed):
    result = bench.run("--candidate=passes", f"--passbench-seed={seed}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--passbench-seed: '*' is not a seed: 1 to 64 hexadecimal digits*"])


def test_a_value_of_dash_o_is_not_said_to_be_of_a_file(bench):
    result = bench.run("--candidate=passes", "-o", "passbench_timeout=x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *: passbench_timeout: 'x' is not a number"])
    assert "None" not in result.stderr.str()


def test_a_word_of_dash_k_that_fits_no_task_is_named(bench):
    bench.task("common")
    bench.task("rare", tags="other")
    result = bench.run("--candidate=passes", "-k", "none", "--passbench-suite=full")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["-k 'none' matches none of 2 tasks (leave it out, *"])
