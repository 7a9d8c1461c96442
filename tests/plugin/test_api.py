"""The engine called from Python, and the small parts of the interface that need no pytest run."""

from __future__ import annotations

import pytest

import pytest_passbench
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import DISQUALIFIED, ArmResult, Finding, PassReport, Record, Speed
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.planning.planner import TOO_SLOW_BEFORE
from pytest_passbench.plugin.benchmark import other_times
from pytest_passbench.plugin.failures import OF_WRAPPERS, TaskFailedError
from pytest_passbench.plugin.live import RunProgress, outcome, spell
from pytest_passbench.report.failure_text import describe
from pytest_passbench.run.ledger import Ledger, fresh_folder, run_seed
from support.docs_pages import anchors
from support.made_records import record_of, right
from support.paths import ROOT
from support.plugin_runs import OK, PASS, task_text


class Judge:
    """A judge that returns for each subgraph what its ``meta`` states."""

    def __init__(self, settings, seed):
        self.settings, self.closed = settings, False

    def environment(self):
        return {"sandbox": "fake"}

    def noise(self):
        return {}

    def judge(self, task, candidate):
        for subgraph in task.subgraphs:
            if subgraph.meta.get("interrupt"):
                raise KeyboardInterrupt
            yield record_of(task.id, subgraph.id, candidate=candidate.name)

    def close(self):
        self.closed = True


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "passes").mkdir()
    (tmp_path / "passes" / "fuse.py").write_text(PASS)
    (tmp_path / "passes" / "sorted_output_pass_rule_names.json").write_text('["fuse"]')
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.task.yaml").write_text(task_text("a", OK, OK))
    (tmp_path / "own" / "b.task.yaml").write_text(task_text("b", OK, {"interrupt": True}, tags="train"))
    return tmp_path


def test_evaluate_returns_the_run(folder):
    judges, seen = [], []

    def make(settings, seed):
        judges.append(Judge(settings, seed))
        return judges[-1]

    run = pytest_passbench.evaluate(
        folder / "passes",
        folder / "own" / "a.task.yaml",
        judge=make,
        on_record=seen.append,
        tolerance=-4,
        criterion="either",
    )
    assert run.tasks == ["a"]
    assert run.records == seen
    assert [record.subgraph for record in seen] == ["s0", "s1"]
    assert run.settings["tolerance"] == -4
    assert {run.criterion, *(record.criterion for record in seen)} == {"either"}
    assert [(record.tolerance, record.correct) for record in run.records] == [(-4, True)] * 2
    assert run.environment == {"sandbox": "fake"}
    assert not run.interrupted
    assert judges[0].closed


def test_evaluate_interrupted_returns_what_there_is(folder):
    run = pytest_passbench.evaluate(folder / "passes", [folder / "own"], judge=Judge)
    assert run.interrupted
    assert run.tasks == ["a", "b"]
    assert len(run.records) == 3
    chosen = pytest_passbench.evaluate(folder / "passes", [folder / "own"], suite="lite", judge=Judge)
    assert chosen.tasks == ["a"]


@pytest.mark.parametrize("word", [
    "silu-mul-e747",
    "tasks/text/silu-mul-e747.task.yaml",
    "tasks/text/silu-mul-e747.task.yaml::silu-mul-e747[passes]",
])  # fmt: skip
def test_evaluate_takes_an_installed_task_by_its_id_or_as_pytest_prints_it(folder, word, monkeypatch):
    monkeypatch.chdir(folder)
    assert pytest_passbench.evaluate("passes", word, judge=Judge).tasks == ["silu-mul-e747"]
    assert pytest_passbench.evaluate("passes", [word, "own/a.task.yaml"], judge=Judge).tasks == ["silu-mul-e747", "a"]


def test_evaluate_says_what_is_no_task(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=r"no task is called 'silu-mul-e774' .did you mean silu-mul-e747\?"):
        pytest_passbench.evaluate("passes", "silu-mul-e774", judge=Judge)
    for word in ("tasks/text/none.task.yaml", "none.task.yaml", "own/none"):
        with pytest.raises(UserError, match=f"^{word}: no such file or folder"):
            pytest_passbench.evaluate("passes", word, judge=Judge)


def test_evaluate_refuses_no_task_and_two_of_one_id(folder):
    with pytest.raises(UserError, match="tasks: no task is named"):
        pytest_passbench.evaluate(folder / "passes", [], judge=Judge)
    (folder / "other").mkdir()
    (folder / "other" / "a.task.yaml").write_text(task_text("a", OK))
    with pytest.raises(UserError, match=r"other/a.task.yaml: task id 'a' is also that of .*own/a.task.yaml"):
        pytest_passbench.evaluate(folder / "passes", [folder / "own", folder / "other"], judge=Judge)


def test_settings_that_are_given_as_text_are_read_as_the_command_line_does(folder):
    task = folder / "own" / "a.task.yaml"
    run = pytest_passbench.evaluate(folder / "passes", task, judge=Judge, tolerance="-4", budget="10m")
    assert (run.settings["tolerance"], run.settings["budget"]) == (-4, 600.0)


def test_evaluate_refuses_what_it_does_not_know(folder):
    with pytest.raises(UserError, match="unknown setting 'only_matching'"):
        pytest_passbench.evaluate(folder / "passes", judge=Judge, only_matching=True)
    with pytest.raises(UserError, match="unknown setting 'speed'"):
        pytest_passbench.evaluate(folder / "passes", judge=Judge, speed=1)
    with pytest.raises(UserError, match="evaluate, criterion: 'best' is not one of ladder, fp64, either"):
        pytest_passbench.evaluate(folder / "passes", judge=Judge, criterion="best")
    with pytest.raises(UserError, match="evaluate, tolerance: '3' is not an integer from -10 to 0"):
        pytest_passbench.evaluate(folder / "passes", judge=Judge, tolerance=3)
    with pytest.raises(UserError, match="candidate directory does not exist"):
        pytest_passbench.evaluate(folder / "nowhere", judge=Judge)


def test_a_seed_is_drawn_or_the_number_that_is_given():
    seed = run_seed(None)
    assert run_seed(seed.hex()) == seed
    assert run_seed("AB") == run_seed("00ab") == bytes(31) + b"\xab"
    assert run_seed(None) != seed
    for text in ("a word", "", "None", "f" * 65):
        with pytest.raises(UserError, match="is not a seed: 1 to 64 hexadecimal digits"):
            run_seed(text)


def test_records_are_ordered_by_candidate_and_task_however_they_came(folder):
    from pytest_passbench.candidate.layout import Candidate

    ledger = Ledger(Settings(), [Candidate.open(folder / "passes")], b"", tasks=["a", "b"])
    for task, subgraph in (("b", "y"), ("a", "z"), ("b", "x")):
        ledger.add(Record(task, subgraph, "passes"))
    assert [(r.task, r.subgraph) for r in ledger.records] == [("a", "z"), ("b", "y"), ("b", "x")]
    ledger.add(Record("b", "y", "passes", source="again"))
    assert [r.source for r in ledger.records] == ["", "again", ""]
    assert ledger.missing() == []
    ledger.tasks.append("c")
    assert ledger.missing() == [("c", "passes", 0, 1)]
    ledger.expect("b", "passes", 4)
    assert ledger.missing() == [("b", "passes", 2, 4), ("c", "passes", 0, 1)]


def test_two_runs_of_one_second_never_share_a_folder(folder):
    folders = [fresh_folder(folder / "reports", "2026-01-02T03:04:05+00:00", ["a", "b"]) for _ in range(2)]
    assert [path.name for path in folders] == ["20260102-030405-a-b", "20260102-030405-a-b-2"]


def test_a_long_name_in_any_script_has_a_folder(folder):
    path = fresh_folder(folder / "reports", "2026-01-02T03:04:05+00:00", ["\u7b97" * 85])
    assert path.is_dir()
    assert path.name.startswith("20260102-030405-\u7b97")


def test_what_a_candidate_wrote_cannot_steer_the_terminal():
    hostile = "\x1b]0;owned\x07\u202egnp.exe\r\n\tok"
    assert printable(hostile, LINES) == "\\x1b]0;owned\\x07\\u202egnp.exe\\r\n\tok"
    assert printable(hostile) == "\\x1b]0;owned\\x07\\u202egnp.exe\\r\\n\\tok"
    record = Record("t", "s", "c", arm=ArmResult("runtime_fail", "call", "x" * 5000, hostile))
    text = describe([record])
    assert "\x1b" not in text
    assert len(text) < 2000


def test_many_failures_are_shown_in_full_only_at_first():
    slow = [ArmResult("timeout", "call", f"slow {index}") for index in range(30)]
    records = [Record("t", f"s{index}", "c", arm=arm) for index, arm in enumerate(slow)]
    text = TaskFailedError(records).text()
    assert text.count("  message") == 6
    assert "s29: timeout in call: slow 29" in text


def test_what_failed_alike_is_shown_once():
    miss = [PassReport("fuse", miss="the graph has no tanh")]
    records = [
        Record("t", f"s{index}", "c", arm=ArmResult("pass_miss", "match", "fuse: the graph has no tanh"), passes=miss)
        for index in range(3)
    ]
    assert TaskFailedError(records).text().splitlines()[2:] == [
        "s0: pass_miss in match",
        "  message   fuse: the graph has no tanh",
        "  also      s1, s2",
    ]


def test_a_wrong_shape_is_one_cause_and_its_pass_is_named():
    passes = [PassReport("fuse_sum", 1, ["sum"]), PassReport("other", miss="the graph has no tanh")]
    said = {n: f"output 0: has shape [{n}], eager's has [{n}, 1]" for n in (4, 8)}
    arms = {n: ArmResult("shape_mismatch", "verify", said[n], correct_from=[99]) for n in said}
    records = [Record("t", f"s{n}", "c", passes=passes, arm=arm) for n, arm in arms.items()]
    failure = TaskFailedError(records)
    assert failure.line() == "shape_mismatch: output 0: has shape [4], eager's has [4, 1] (2 of 2)"
    assert failure.text().splitlines() == [
        "2 of 2 subgraphs failed",
        "",
        "s4: shape_mismatch in verify",
        "  pass      fuse_sum",
        "  message   output 0: has shape [4], eager's has [4, 1]",
        "  also      s8 (their values: results.md)",
    ]


def in_dtypes(**answers):
    return [Record("t", f"s-{name}", "c", dtype=name, arm=ArmResult(**arm)) for name, arm in answers.items()]


def test_answers_wrong_in_16_bits_alone_are_counted_by_dtype():
    wrong = {"correct_from": [-3], "worst": "output 0[1]: expected 1, got 2 (greatest error 1)"}
    failure = TaskFailedError(in_dtypes(bfloat16=wrong, float16=wrong, float32={"correct_from": [-11]}))
    assert failure.line() == "not correct at t = -5 in bfloat16, float16 (2 of 3)"
    counts, hint, *rest = failure.text().splitlines()
    assert counts == "2 of 3 subgraphs failed (correct: bfloat16 0/1, float16 0/1, float32 1/1)"
    assert hint == "Half precision: see docs/kernels.md#agreeing-with-eager-in-half-precision"
    assert rest[-1] == "  also      s-float16"
    path, anchor = hint.rpartition(" ")[2].split("#")
    assert anchor in anchors(ROOT / path)


@pytest.mark.parametrize("answers", [{"float16": [-11], "float32": [-3]}, {"float16": [-3], "float32": [-3]}])
def test_half_precision_is_named_only_if_nothing_else_fails(answers):
    records = in_dtypes(**{name: {"correct_from": levels} for name, levels in answers.items()})
    assert "precision" not in TaskFailedError(records).text()


def test_an_output_that_is_correct_at_no_t_is_said_once():
    text = TaskFailedError(in_dtypes(float32={"correct_from": [99]})).text()
    assert "outputs" not in text
    assert "not correct at any t" in text


def test_a_failures_text_fits_80_columns():
    arm = ArmResult("pass_miss", "match", "fuse: nearest: div (tmp_1): argument other: " + "expected 1.4, " * 12)
    records = [Record("t", f"a-model-float32-b{index}", "c", arm=arm) for index in range(9)]
    assert max(map(len, TaskFailedError(records).text().splitlines())) <= 80


def test_time_left_is_by_subgraphs():
    now = [0.0]
    progress = RunProgress(clock=lambda: now[0])
    assert progress.remaining() == ""
    progress.expect({"a": 10, "b": 30})
    now[0] = 20.0
    progress.finish("a")
    assert progress.remaining() == "60 s left"
    assert progress.remaining(0.5, "b") == "12 s left"
    progress.finish("b")
    assert progress.remaining() == ""
    assert [spell(5), spell(600), spell(7200)] == ["5 s", "10 min", "2.0 h"]


def test_a_task_in_a_few_words():
    records = [record_of("t", "a", right(2.0)), record_of("t", "b", ArmResult("crash"))]
    assert outcome(records) == "1/2 correct, 2.00x"
    assert outcome([]) == "0/0 correct"


def test_rounds_are_rebuilt_from_their_ratios():
    speed = Speed(2.0, 1.9, 2.1, "FASTER", 10.0, 5.0, pairs=[[0.0], [0.6931471805599453]])
    assert other_times(speed) == pytest.approx([10e-6, 5e-6])
    speed.pairs = []
    assert other_times(speed) == pytest.approx([5e-6])


def test_a_broken_rule_comes_before_what_it_did_to_other_subgraphs():
    finding = Finding("plan", "torch-op", "violation", "computes with torch (aten.gelu.default)", "p.py", 3)
    message = "p.py:3: computes with torch (aten.gelu.default) [plan: torch-op]"
    after = ArmResult("integrity", DISQUALIFIED, "its passes broke a rule on another subgraph of the run")
    records = [
        Record("t", "s0", "c", arm=ArmResult("integrity", "plan", message), findings=[finding]),
        *(Record("t", f"s{number}", "c", arm=after) for number in (1, 2)),
    ]
    failure = TaskFailedError(records)
    assert failure.line() == f"integrity: {message} (1 of 3; 2 disqualified)"
    assert failure.text().splitlines() == [
        "3 of 3 subgraphs failed",
        OF_WRAPPERS,
        "",
        "s0: integrity in plan",
        f"  message   {message}",
        "",
        "s1: integrity",
        "  message   its passes broke a rule on another subgraph of the run",
        "  also      s2",
    ]
    path, anchor = OF_WRAPPERS.rpartition(" ")[2].split("#")
    assert anchor in anchors(ROOT / path)


def test_a_time_out_comes_before_what_was_not_tried_after_it():
    late = Record("t", "s0", "c", arm=ArmResult("timeout", "run", "a block of 1 call did not end"))
    arm = ArmResult("timeout", TOO_SLOW_BEFORE, "not tried: p took too long")
    out = [Record("t", f"s{n}", "c", arm=arm) for n in (1, 2)]
    failure = TaskFailedError([late, *out])
    assert failure.line() == "timeout: a block of 1 call did not end (1 of 3; 2 not tried)"
    assert "s1: timeout\n" in failure.text()
