"""The tables in a terminal and in Markdown, from hand-made records."""

from __future__ import annotations

import re

import pytest

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import ArmResult, Finding, FurtherSize, PassReport
from pytest_passbench.core.run import Run
from pytest_passbench.report import markdown, tables, terminal
from pytest_passbench.report.report import caveats, report_of
from pytest_passbench.score import board
from support.made_records import record_of, right, run_of, speed_of

HASH = "ab" * 32


def judged(task, subgraph, arm, **values):
    return record_of(task, subgraph, arm, operators=["gelu", "add"], baselines={"inductor": right(0.8, -6)}, **values)


@pytest.fixture
def run():
    miss = PassReport("fuse_silu", 0, [], "tmp_2 = mul: expected silu, found chunk")
    hit = PassReport("fuse_gelu", 1, ["gelu"])
    finding = Finding("source", "torch-call", "violation", "torch.matmul in a replacement", "p.py", 12)
    bad = ArmResult(correct_from=[-4], speed=speed_of(1.2), worst="output 0: 1.01 for 1.0", error64=[1e-6])
    return run_of(
        judged("good", "a", right(2.0), passes=[hit]),
        judged("good", "b", right(0.5), passes=[hit]),
        judged("poor", "a", bad, eager_error64=[1e-5]),
        judged("poor", "b", ArmResult(status="integrity"), findings=[finding]),
        judged("none", "a", ArmResult(status="pass_miss", message="no pass matched"), passes=[miss]),
        judged("none", "b", ArmResult(status="pass_miss", message="no pass matched"), passes=[miss]),
        tasks=["good", "poor", "none", "left"],
        noise={"width": 0.012, "offset": 0.0},
    )


def lines(text, start):
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.startswith(start)]


def test_the_board_has_eager_candidate_and_baseline(run):
    eager, mine, inductor = tables.board_table(run).rows
    assert eager[:9] == ("eager", "1.000", "0.0", *["1.000"] * 3, *["100.0"] * 3)
    assert (mine[0], mine[2], mine[6], mine[8], mine[9]) == ("mine", "-", "28.6", "14.3", "6/7")
    assert mine[5].startswith("1.000 [0.98")
    assert inductor[0] == "inductor"
    assert inductor[6] == "100.0"


def test_the_share_of_the_possible_is_beside_as_and_by_class(run):
    """A speed-up of 2 is half of a head-room of 4. A subgraph that is wrong, or was not judged, counts 0."""
    assert tables.possible_table(run).rows == ()  # no head-room is known
    for record in run.records:
        record.headroom = 4.0
    run.records[0].operators = run.records[1].operators = ["conv2d", "gelu"]
    run.records[4].headroom = 1.2  # too little for a share
    run.selected["mine"]["poor"] = 3
    table = tables.possible_table(run)
    assert table.headers == ("class", "mine", "inductor")
    assert table.rows == (
        ("all", "0.0 (6)", "-16.1 (5)"), ("convolution", "0.0 (2)", "-16.1 (2)"),
        ("elementwise", "0.0 (4)", "-16.1 (3)"),
    )  # fmt: skip
    run.records[1].arm = right(2.0)
    assert tables.possible_table(run).rows[1][1] == "50.0 (2)"
    assert tables.board_table(run).rows[1][2] == "0.0"
    text = terminal.summary(report_of(run), 100)
    assert lines(text, "convolution") == [["convolution", "50.0 (2)", "-16.1 (2)"]]
    assert "| convolution | 50.0 (2) | -16.1 (2) |" in markdown.render(report_of(run))


def with_accuracy(run):
    """Make poor/a, which rounds unlike eager, as accurate as eager, and good/b, which agrees, less accurate."""
    for record in run.records:
        if record.arm.status == "ran":
            record.arm.greatest_ratio64, record.arm.mean_ratio64 = [1.0], [0.4]
            if record.subgraph == "b":
                record.arm.correct_from, record.arm.mean_ratio64 = [-6], [2.0]
        record.baselines["inductor"].greatest_ratio64 = record.baselines["inductor"].mean_ratio64 = [1.0]
    return run


def test_the_board_has_accuracy_beside_agreement(run):
    board_table = tables.board_table(run)
    assert {row[board_table.headers.index("correct (fp64) %")] for row in board_table.rows[1:]} == {"-"}
    board_table = tables.board_table(with_accuracy(run))
    at = [board_table.headers.index(name) for name in ("correct %", "correct (fp64) %")]
    assert [[row[index] for index in at] for row in board_table.rows[1:]] == [["28.6", "28.6"], ["100.0", "100.0"]]
    names = [row[0] for row in tables.es_table(run).rows]
    assert names == ["eager", "mine", "mine (fp64)", "inductor", "inductor (fp64)"]
    assert "(correct: as accurate as eager)" in tables.task_table(with_criterion(run, "fp64"), "mine").title


def with_criterion(run, criterion):
    run.settings["criterion"] = criterion
    for record in run.records:
        record.criterion = criterion
    return run


@pytest.mark.parametrize(
    ("criterion", "good", "poor"), [("ladder", "2/2", "0/2"), ("fp64", "1/2", "1/2"), ("either", "2/2", "1/2")]
)
def test_cases_are_counted_by_the_runs_criterion(run, criterion, good, poor):
    rows = {row[0]: row for row in tables.task_table(with_criterion(with_accuracy(run), criterion), "mine").rows}
    assert (rows["good"][3], rows["poor"][3]) == (good, poor)


def test_80_columns_have_both_criteria_and_a_whole_speed_up(run):
    text = terminal.summary(report_of(with_accuracy(run)), 80)
    assert max(map(len, text.splitlines())) <= 80
    (header,) = (line for line in text.splitlines() if line.lstrip().startswith("AS "))
    assert re.split(r"\s{2,}", header.strip()) == ["AS", "AS (fp64)", "G-Mean", "correct %", "correct (fp64) %"]
    assert re.search(r"^mine .* 1\.\d+ \[0\.\d+, 1\.\d+\] ", text, re.MULTILINE)


def test_the_summary_has_every_part(run):
    text = terminal.summary(report_of(run), 100)
    rest = ["2/2", "1/2", "1.000", "1 faster, 1 slower"]
    assert lines(text, "good")[0][1:] == ["1.000 [0.986, 1.014]", "0.800 [0.789, 0.811]", *rest]
    assert lines(text, "left")[0][-1] == "1 not judged"
    assert "fuse_silu" in text
    assert "expected silu, found chunk" in text
    assert "1 of 7 subgraphs were not judged" in text
    assert "within 1.2 %" in text
    assert re.search(r"^t .* -5 .* 0 ", text, re.MULTILINE)


@pytest.mark.parametrize("width", [80, 100, 120, 140])
def test_the_summary_fits(run, width):
    run.records[0].task = run.tasks[0] = "a-very-long-operator-sequence-" * 5 + "3f2a"
    run.records[4].passes[0].miss = "word " * 100
    found = terminal.summary(report_of(run), width).splitlines()
    assert max(map(len, found)) <= width
    assert any("3f2a" in line for line in found)


def test_a_wide_terminal_shows_every_t(run):
    header = lines(terminal.summary(report_of(run), 140), "t ")[0]
    assert header == ["t", *(str(t) for t in range(-10, 5))]


def test_a_narrow_terminal_says_what_it_leaves_out(run):
    assert "(results.md also has: t = -10, -9, -8, -7, -6)" in terminal.summary(report_of(run), 80)


def test_passes_that_were_not_tuned_are_counted_once(run):
    said = "Nothing was tuned: 2 passes have @triton.autotune; the first valid configuration was taken."
    assert "Nothing was tuned" not in terminal.summary(report_of(run), 100)
    for record in run.records[:2]:
        record.passes = [PassReport(name, 1, untuned=True) for name in ("fuse_gelu", "fuse_norm")]
    assert said in terminal.summary(report_of(run), 100)
    assert said.replace("@", "&#64;") in markdown.render(report_of(run))


def test_a_speed_that_was_not_measured_is_said_and_no_number():
    run = run_of(judged("one", "a", right(None, speed_note="Triton's interpreter")), judged("one", "b", right(4.0)))
    _, mine, _ = tables.board_table(run).rows
    assert (mine[1], mine[4], mine[6], mine[8]) == ("not measured", "not measured", "100.0", "not measured")
    assert mine[5].startswith("4.000")
    text = terminal.summary(report_of(run), 100)
    assert "mine (not measured)" in text
    assert "Triton's interpreter" in text
    assert board.metric(run, "mine", "AS") is None
    assert board.metric(run, "mine", "fast1") is None
    assert board.metric(run, "mine", "correct") == 1.0


def test_where_nothing_was_measured_there_is_no_mean():
    run = run_of(judged("one", "a", right(None)))
    assert tables.board_table(run).rows[1][5] == "not measured"
    assert tables.task_table(run, "mine").rows[0][1] == "not measured"
    assert board.metric(run, "mine", "gmean") is None


def test_markdown_has_the_same_numbers_and_the_failures(run):
    text = markdown.render(report_of(run))
    assert "| eager | 1.000 | 0.0 | 1.000 | 1.000 | 1.000 | 100.0 | 100.0 | 100.0 | - |" in text
    assert "| good | 1.000 [0.986, 1.014] | 0.800 [0.789, 0.811] | 2/2 | 1/2 |" in text
    assert "torch.matmul in a replacement (p.py:12)" in text
    assert "nearer to float64 than eager is" in text
    assert "a and 1 more" in text
    assert HASH in text


def test_markdown_has_a_row_for_every_subgraph(run):
    _, _, part = markdown.render(report_of(run)).partition("## Subgraphs: mine")
    rows = [line for line in part.partition("##")[0].splitlines() if line.startswith("| ")]
    assert rows == [
        "| task | subgraph | eager us | candidate us | speed-up | verdict |",
        "| good | a | 20.00 | 10.00 | 2.000 [1.961, 2.040] | faster |",
        "| good | b | 5.000 | 10.00 | 0.500 [0.490, 0.510] | slower |",
        "| poor | a | 12.00 | 10.00 | 1.200 [1.176, 1.224] | accuracy |",
        "| poor | b | - | - | - | integrity |",
        "| none | a | - | - | - | pass_miss |",
        "| none | b | - | - | - | pass_miss |",
    ]


def test_what_a_candidate_writes_stays_inert():
    evil = "\x1b[2J\u202e| <img src=x onerror=1> [x](http://y) `code`\nAS 9.999"
    record = judged("one", "a", ArmResult(status="crash", message=evil))
    record.passes = [PassReport(evil, 0, [], evil)]
    missed = judged("one", "b", ArmResult(status="pass_miss", message=evil), passes=[PassReport(evil, 0, [], evil)])
    run = run_of(record, missed)
    for text in (terminal.summary(report_of(run), 100), markdown.render(report_of(run))):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert not any(line.startswith("AS 9.999") for line in text.splitlines())
    text = markdown.render(report_of(run))
    assert "<img" not in text
    assert "](" not in text
    columns = {line.count("|") for line in text.splitlines() if line.startswith("| one") and "crash" in line}
    assert columns == {6, 7, 8}


@pytest.mark.parametrize(("name", "value"), [("correct", 2 / 7), ("gmean", 1.0), ("fast1", 1 / 7), ("AS", 0.230)])
def test_metrics_for_gates(run, name, value):
    assert board.metric(run, "mine", name) == pytest.approx(value, abs=0.01)


def test_an_unknown_metric(run):
    with pytest.raises(UserError, match="one of: AS"):
        board.metric(run, "mine", "speed")


def test_two_candidates_have_a_row_and_a_table_each(run):
    other = record_of("good", "a", right(3.0), "other")
    run.records.append(other)
    run.candidates.append({"name": "other", "path": "o", "content_hash": "00"})
    assert [row[0] for row in tables.board_table(run).rows] == ["eager", "mine", "other", "inductor"]
    text = terminal.summary(report_of(run), 100)
    assert "Tasks: mine" in text
    assert "Tasks: other" in text


def test_an_empty_run_still_renders():
    text = terminal.summary(report_of(Run(tasks=["one"], interrupted=True, candidates=[{"name": "mine"}])), 100)
    assert "interrupted" in text
    assert lines(text, "one")[0][-1] == "1 not judged"
    assert "# PassBench results" in markdown.render(report_of(Run()))


def test_a_speed_of_launches_is_said_to_be_one():
    """If calls take far longer than the device's work on them, the speed is not that of a kernel."""
    timed = {"near": (8.0, 9.0), "eager waits": (2.0, 9.0), "candidate waits": (8.0, 4.0), "not told": (None, None)}
    records = []
    for name, (eager, other) in timed.items():
        arm = right(1.0)
        arm.speed.eager_device_us, arm.speed.other_device_us = eager, other
        records.append(judged("t", name, arm))
    run = run_of(*records)
    verdicts = {row[1]: row[-1] for row in tables.subgraph_table(run, "mine").rows}
    assert {name for name, said in verdicts.items() if said.endswith(", launch-bound")} == {
        "eager waits",
        "candidate waits",
    }
    assert any(note.startswith("2 subgraphs are launch-bound") for note in caveats(run))
    assert not any("launch-bound" in note for note in caveats(run_of(records[0])))


def test_further_sizes_count_where_the_subgraph_itself_is_right():
    unable = ArmResult("runtime_fail", "wrapper", message="no kernel for 48 rows")
    sizes = [FurtherSize(3, 7, right(None), ["float32"]), FurtherSize(5, 9, unable, ["float32"])]
    wrong = ArmResult(correct_from=[3], speed=speed_of(2.0))
    view = run_of(
        record_of("good", "a", held_out=sizes),
        record_of("good", "b", wrong, held_out=sizes),  # right at first, and not when it was measured again
        settings={"tolerance": -5, "held_out": 2},
    )
    table = tables.task_table(view, "mine")
    cells = dict(zip(table.headers, table.rows[0], strict=True))
    assert (cells["held out"], cells["speed kept"]) == ("1/2", "-")
    (row,) = tables.held_out_table(view, "mine").rows
    assert row == ("good", "a", "batch 5, size 9", "no kernel for this shape (runtime_fail)", "no kernel for 48 rows")
    text = markdown.render(report_of(view))
    assert "Held-out sizes: mine" in text
    assert "no kernel for 48 rows" in text
    assert "held out" not in tables.task_table(run_of(record_of("good", "a")), "mine").headers


def test_speed_kept_is_the_mean_ratio_of_speed_ups_where_both_answers_are_right():
    wrong = ArmResult(correct_from=[3], speed=speed_of(9.0))
    view = run_of(
        record_of("good", "a", right(2.0), held_out=[FurtherSize(3, 7, right(1.0), ["float32"])]),
        record_of("good", "b", right(2.0), held_out=[FurtherSize(3, 7, right(4.0), ["float32"])]),
        record_of("good", "c", right(2.0), held_out=[FurtherSize(3, 7, right(0.5), ["float32"])]),
        record_of("good", "d", right(2.0), held_out=[FurtherSize(3, 7, wrong, ["float32"])]),
        settings={"tolerance": -5, "held_out": 1},
    )
    table = tables.task_table(view, "mine")
    cells = dict(zip(table.headers, table.rows[0], strict=True))
    assert cells["speed kept"].startswith("0.630 [")  # the cube root of 1/2 * 2 * 1/4
    assert cells["held out"] == "3/4"


def test_further_sizes_at_which_a_null_answer_passes_do_not_count():
    sizes = [FurtherSize(3, 7, right(None), ["float32"], null_from=-6), FurtherSize(5, 9, right(None), ["float32"])]
    view = run_of(record_of("good", "a", held_out=sizes), settings={"tolerance": -5, "held_out": 2})
    table = tables.task_table(view, "mine")
    assert dict(zip(table.headers, table.rows[0], strict=True))["held out"] == "1/1"


def test_the_board_says_what_t_is():
    about = tables.board_table(run_of(judged("t", "a", right(2.0)))).about
    assert about.startswith("t is the tolerance of the comparison: smaller is stricter. ")
