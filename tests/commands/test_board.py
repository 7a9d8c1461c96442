"""``passbench board`` from the command line: which runs stand together, and what each form of the board has."""

from __future__ import annotations

import csv
import io
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.run import results_file
from support.made_records import record_of, right, run_of

TASKS = [f"task-{index:02}" for index in range(10)]


def records(name, ratio, inductor=None, tasks=TASKS, correct_from=-11):
    for task in tasks:
        baselines = {"inductor": right(inductor)} if inductor else {}
        yield record_of(task, "a", right(ratio, correct_from), name, baselines=baselines)


@pytest.fixture
def store(tmp_path):
    """Return a function that writes a run of candidates with these speed-ups, and returns its folder."""

    def write(folder, started="2026-01-01T10:00:00+00:00", inductor=None, tasks=TASKS, missing=(), **ratios):
        settings = {"device": "cpu", "pipeline": "direct", "policy": "kernels"}
        run = run_of(
            *(item for name, ratio in ratios.items() for item in records(name, ratio, inductor, tasks)),
            settings={**settings, **write.settings},
            environment={"cpu": "Example CPU", "torch": "2.0"},
            tasks=[*tasks, *missing],
            started=started,
            noise={"delta": 0.02, "offset": 0.001},
            candidates=[{"name": name, "path": name, "content_hash": name * 16} for name in ratios],
        )
        results_file.write(tmp_path / folder, run)
        return str(tmp_path / folder)

    write.settings = {}
    return write


@pytest.fixture
def board(capsys, tmp_path):
    def make(*argv, form=".csv"):
        out = tmp_path / f"out{form}"
        assert main(["board", *argv, "-o", str(out)]) == 0
        capsys.readouterr()
        text = out.read_text()
        return list(csv.DictReader(io.StringIO(text))) if form == ".csv" else text

    return make


def message(capsys, *argv):
    assert main(["board", *argv]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("passbench: error: ")
    assert line.endswith(")")  # a remedy in brackets
    return line


def test_one_run_is_ranked_with_references_and_intervals(store, board):
    found = board(store("r", inductor=0.7, a=1.5, b=2.0, c=2.0))
    assert [(row["name"], row["kind"]) for row in found] == [
        ("b", "candidate"), ("c", "candidate"), ("a", "candidate"), ("eager", "eager"), ("inductor", "baseline"),
    ]  # fmt: skip
    assert [row["alike"] for row in found] == ["a", "a", "b", "c", "d"]
    assert [row["real"] for row in found] == ["", "no", "yes", "yes", "yes"]
    assert float(found[2]["above_over_this"]) == pytest.approx(2.0 / 1.5)
    half = math.log(float(found[0]["AS_high"]) / 2.0)
    assert half == pytest.approx(math.log(1.02) / math.sqrt(10) + 0.001, rel=1e-3)


def test_other_runs_may_be_of_another_hour(store, board):
    runs = store("r", a=1.5), store("s", b=1.6)
    assert board(*runs)[1]["real"] == "unresolved"
    assert board(*runs, "--between-runs=0")[1]["real"] == "yes"
    assert "may differ by 12 %" in board(*runs, form=".md")


def test_runs_under_other_conditions_stand_apart_and_say_why(store, board):
    first = store("r", a=1.5)
    store.settings = {"pipeline": "dynamo", "device": "cuda:0"}
    other = store("s", b=1.6)
    store.settings = {}
    fewer = store("t", tasks=TASKS[:4], c=1.6)
    replaced = store("u", tasks=[*TASKS[:9], "another"], d=1.6)
    text = board(first, other, fewer, replaced, form=".md")
    assert "Not compared with board 1: device cuda here, cpu there; machine unknown here, Example CPU there" in text
    assert "pipeline dynamo here, direct there" in text
    assert "Not compared with board 1: tasks 4 here, 10 there." in text
    assert "Not compared with board 1: other tasks (9 of 10 are the same)." in text
    assert [row["board"] for row in board(first, other, fewer, replaced) if row["kind"] == "candidate"] == [*"1234"]


@pytest.mark.parametrize("settings", [{"audit": "off"}, {"trusted": True}, {"timeout": 60.0}, {"score": {"b": 0.2}}])
def test_settings_that_decide_a_score_part_runs(store, board, settings):
    first = store("r", a=1.5)
    store.settings = settings
    assert {row["board"] for row in board(first, store("s", b=1.6))} == {"1", "2"}


@pytest.mark.parametrize("settings", [{"tolerance": -3}, {"criterion": "fp64"}, {"budget": 60.0}, {"seed": "ab"}])
def test_settings_that_decide_no_score_do_not_part_runs(store, board, settings):
    first = store("r", a=1.5)
    store.settings = settings
    assert {row["board"] for row in board(first, store("s", b=1.6))} == {"1"}


def test_one_content_judged_twice_is_one_row_with_its_spread(store, board):
    times = [f"2026-01-0{day}T10:00:07+00:00" for day in (1, 2)]
    runs = [store(name, time, a=ratio, b=1.6) for name, time, ratio in zip("rs", times, (1.5, 1.4), strict=True)]
    rows = {row["name"]: row for row in board(*runs)}
    assert list(rows) == ["b", "a", "eager"]
    row = rows["a"]
    assert float(row["AS"]) == pytest.approx(math.sqrt(1.4 * 1.5))
    assert float(row["gmean"]) == pytest.approx(math.sqrt(1.4 * 1.5))
    assert [row[name] for name in ("runs", "started", "subgraphs")] == ["2", times[1], "10"]
    assert (float(row["AS_least"]), float(row["AS_most"])) == pytest.approx((1.4, 1.5))
    half, of_one = (math.log(float(value["AS_high"]) / float(value["AS"])) for value in (row, board(runs[0])[1]))
    assert half - 0.001 == pytest.approx((of_one - 0.001) / math.sqrt(2), rel=0.01)
    assert row["real"] == "yes"  # b was judged in the same runs
    assert "2: 1.400 to 1.500" in board(*runs, form=".md")
    assert "2 runs: AS 1.400 to 1.500" in board(*runs, form=".html")
    newest = {row["name"]: row for row in board(*runs, "--latest")}["a"]
    assert (newest["runs"], float(newest["AS"])) == ("1", pytest.approx(1.4))


def test_rows_are_told_apart_by_content_and_time(store, board):
    first, second = store("r", "2026-01-01T10:00:07+00:00", a=1.5), store("s", "2026-01-01T10:00:09+00:00", a=1.4)
    run = results_file.read(Path(second) / "results.json")
    run.candidates[0]["content_hash"] = "b" * 16
    results_file.write_file(Path(second) / "results.json", run)
    assert [row["content"] for row in board(first, second) if row["name"] == "a"] == ["aaaaaaaa", "bbbbbbbb"]
    page = board(first, second, form=".html")
    assert "aaaaaaaa, 2026-01-01 10:00:07" in page
    assert "bbbbbbbb, 2026-01-01 10:00:09" in page
    assert 'href="r/results.json"' in page
    assert "report.html" not in page  # the run's folder has no report


def test_what_was_not_judged_counts_and_is_said(store, board):
    whole, part = store("r", a=1.5), store("s", tasks=TASKS[:9], missing=TASKS[9:], b=1.5)
    text = board(whole, part, form=".md")
    assert "b (2026-01-01 10:00:00): 1 subgraph was not judged, for each of which b = 0.1 counts." in text
    row = next(row for row in board(whole, part) if row["name"] == "b")
    assert float(row["above_over_this"]) == pytest.approx(1.0)
    assert row["subgraphs_in_common"] == "9"


def test_the_same_run_counts_once(store, board, capsys, tmp_path):
    folder = store("r", a=1.5)
    assert main(["board", folder, f"{folder}/results.json"]) == 0
    said = capsys.readouterr()
    assert "counted once" in said.err
    assert len(re.findall(r"^a ", said.out, re.M)) == 2  # its row, and its ES(t)


EVIL = r"""<script>alert(1)</script>&$x_1$%\input{x}"""


def test_names_are_inert_in_every_form(store, board, tmp_path, capsys):
    folder = store("r", **{EVIL: 1.5, "=1+1": 1.4, "\x1b[2J": 1.3})
    page = board(folder, form=".html")
    assert page.count("<script") == 1  # the page's own
    assert "&lt;script&gt;" in page
    tex = board(folder, form=".tex")
    assert r"\$x\_1\$\%\textbackslash{}input\{x\}" in tex
    assert [row["name"] for row in board(folder)][1] == "'=1+1"
    assert main(["board", folder]) == 0
    for text in (page, tex, board(folder, form=".md"), capsys.readouterr().out):
        assert "\x1b" not in text


def test_the_page_needs_no_network(store, board):
    page = board(store("r", inductor=0.7, a=1.5, b=2.0), form=".html")
    assert not re.search(r"<(link|iframe|img)\b|<script [^>]*src", page)
    addresses = set(re.findall(r"https?://[^\"'\s<)]+", page))
    assert not {address for address in addresses if "w3.org" not in address}
    assert page.count('<svg class="chart') == 2
    assert "var(--one)" in page
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names)), "names are unique"
    assert not re.findall(r'(?:fill|stroke)="#', page), "every colour is the page's own"


def test_latex_is_a_booktabs_table(store, board):
    text = board(store("r", a=1.5), form=".tex")
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}", r"{a} & {1.500 [1.4"):
        assert part in text
    body = re.search(r"\\midrule\n(.*?)\\bottomrule", text, re.S)[1]
    assert {line.count("&") for line in body.splitlines()} == {
        text.partition(r"\toprule")[2].split("\\\\")[0].count("&")
    }


def test_plots_are_files_for_a_paper(store, tmp_path, capsys):
    folder = tmp_path / "plots"
    assert main(["board", store("r", inductor=0.7, a=1.5, b=2.0), "--plots", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "es-curves.pdf", "es-curves.svg", "forest.pdf", "forest.svg",
    ]  # fmt: skip
    assert (folder / "forest.pdf").read_bytes().startswith(b"%PDF-1.4")
    assert b"(inductor) Tj" in (folder / "forest.pdf").read_bytes()
    assert ">inductor</text>" in (folder / "es-curves.svg").read_text()
    assert "Best AS first" in capsys.readouterr().out


def test_a_board_and_its_plots_take_neither_torch_nor_pytest_nor_matplotlib(store, tmp_path):
    program = (
        "import sys; from pytest_passbench.commands.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or len({'torch', 'pytest', 'matplotlib'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", program, "board", store("r", a=1.5), "-o", "b.html", "--plots", "p"]
    assert subprocess.run(words, capture_output=True, cwd=tmp_path).returncode == 0


def test_bad_input_is_one_line_with_the_remedy(store, capsys, tmp_path):
    folder = store("r", a=1.5)
    assert "unknown suffix '.xlsx'" in message(capsys, folder, "-o", "board.xlsx")
    assert "no such file" in message(capsys, folder, str(tmp_path / "none"))
    file = tmp_path / "r/results.json"
    file.write_text(file.read_text().replace('"ratio": 1.5', '"ratio": 1.7'))
    assert "was changed after it was written" in message(capsys, folder)
