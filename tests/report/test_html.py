"""The report as a page: it needs no other file, is small, and is inert whatever a candidate wrote."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.record import ArmResult, Finding, FurtherSize, PassReport, Record
from pytest_passbench.core.run import Run
from pytest_passbench.report import html, run_text
from pytest_passbench.report.html import subgraphs
from pytest_passbench.report.report import report_of
from shared import good_inputs
from support import sample_runs
from support.made_records import record_of, right, run_of

LOADING = {"src", "href", "action", "data", "poster", "background", "srcset", "ping", "formaction"}
WHOLE_SUITE_BYTES = 3_000_000
LITE_SUITE_BYTES = 300_000


class Parsed(HTMLParser):
    """A page's elements, texts and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._open = tag

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        (self.scripts if self._open == "script" else self.texts).append(data)

    @property
    def data(self):
        """The data of the page's own script."""
        return json.loads(self.scripts[0])


def parsed(run: Run) -> Parsed:
    return Parsed(html.page(report_of(run)))


def words(page: Parsed) -> str:
    return " ".join(" ".join(page.texts).split())


def rows_of(page: Parsed) -> list[dict]:
    return [dict(zip(page.data["columns"], row, strict=True)) for row in page.data["rows"]]


def test_the_page_has_every_part():
    page = parsed(sample_runs.troubled_run())
    said = words(page)
    assert "troubled is right on 6 of 15 subgraphs, and on those 1." in said
    assert "2 violations of the rules" in said
    assert "Noise floor ±2.1 %" in said
    assert (
        "source/torch-op the kernel wrapper computes with torch (aten.mul) fuse.py:12 silu-mul-3333/model-1" in said
    )
    assert "never-judged-6666" in said
    assert len(page.data["rows"]) == 13
    headers = {cell.get("aria-sort") for tag, cell in page.elements if tag == "th"}
    assert headers == {None, "none"}


@pytest.mark.parametrize(
    ("ratios", "lead"),
    [
        ((2.0, 2.0), "made-up is 2.000 times as fast as eager (95 % interval 1.9"),
        ((0.5, 0.5), "made-up is slower than eager, at 0.500 times its speed (95 % interval 0.4"),
        ((2.0, 0.5), "made-up is about as fast as eager, at 1.000 times its speed (95 % interval 0.9"),
    ],
)
def test_the_verdict_is_a_sentence(ratios, lead):
    run = sample_runs.full_run(1, 2)
    for record, ratio in zip(run.records, ratios, strict=True):
        record.arm.speed.ratio, record.arm.speed.low, record.arm.speed.high = ratio, ratio * 0.97, ratio * 1.03
    assert lead in words(parsed(run))


def test_the_speed_of_the_verdict_is_that_of_right_answers_alone():
    """An answer that is no better than zeros may agree at t, but is not right."""
    records = [record_of("t", "a", right(2.0)), record_of("t", "b", right(50.0, -5), null_from=-6)]
    assert "mine is right on 1 of 2 subgraphs, and on those 2.000 times as fast" in words(parsed(run_of(*records)))


def test_a_candidate_that_nothing_judged_is_not_called_correct():
    run = run_of(record_of("t", "a"), record_of("t", "a", candidate="other"))
    run = replace(run, records=run.records[:1], selected={"mine": {"t": 1}, "other": {"t": 0}})
    text = words(parsed(run))
    assert "other was not judged" in text
    assert "All 0 subgraphs" not in text


def test_held_out_sizes_have_columns_and_a_section_if_they_were_judged():
    unable = ArmResult("runtime_fail", "wrapper", message="no kernel for 48 rows")
    sizes = [FurtherSize(3, 7, right(1.0), ["float32"]), FurtherSize(5, 9, unable, ["float32"])]
    with_sizes = run_of(record_of("one", "a", right(2.0), held_out=sizes), settings={"tolerance": -5, "held_out": 2})
    text = words(parsed(with_sizes))
    assert "1 right at both, 1 no kernel for this shape" in text
    assert "batch 5, size 9" in text
    assert "no kernel for 48 rows" in text
    assert "0.500" in text  # of the speed
    assert "speed kept" not in words(parsed(run_of(record_of("one", "a"))))


def test_comparisons_are_those_of_the_other_reports():
    said = words(parsed(Run.from_data(good_inputs.results())))
    assert "Head to head: cand against old" in said
    assert "Changes: cand, since old.json" in said
    assert "Comparison" not in words(parsed(sample_runs.troubled_run()))


def test_an_opened_subgraph_has_its_pass_plan_errors_and_messages():
    page = parsed(sample_runs.troubled_run())
    text = page.data["texts"]
    records = rows_of(page)
    good, wrong = records[8], records[7]  # those with a failure come first
    ((name, matches, operators, _, plan, _),) = good["passes"]
    assert (text[name], matches, text[operators]) == ("gelu_add", 1, "gelu, add")
    assert [text[step] for step in plan][1].startswith("launch fused_gelu(a0, a1, b0, ")
    assert good["levels"] == "from t = -6"
    assert wrong["errors"][0][3:] == [
        "812",
        wrong["errors"][0][4],
        "2",
        "1.5" if "32" in wrong["errors"][0][0] else "1.25",
    ]
    said = {text[label]: text[what] for row in rows_of(page) for label, what in row["texts"]}
    assert said["why no pass matched"].startswith("fuse_softmax: nearest: tmp_2 = mul: expected silu")
    assert said["printed"] == "segmentation\nfault"
    assert said["greatest error"].startswith("output 0 [3, 4]")


def test_the_command_repeats_the_run_with_its_settings(tmp_path):
    run = sample_runs.full_run(1, 1)
    run.candidates[0]["path"] = "/a folder/it's mine"
    run.settings.update(criterion="fp64", tasks=["own/x.task.yaml"], score={"b": 0.2}, suite="full", report_dir="r")
    assert shlex.split(run_text.command(run, "made-up", "the-task")) == [
        "pytest", "--passbench", "--candidate=/a folder/it's mine", "--passbench-task=the-task",
        "--passbench-tasks=own/x.task.yaml", "--passbench-criterion=fp64", "--passbench-pipeline=direct",
        f"--passbench-seed={'ef' * 32}",
    ]  # fmt: skip


def test_the_command_is_as_strict_with_an_earlier_run_as_the_run_was():
    run = sample_runs.full_run(1, 1)
    run.settings.update(compare="old.json", compare_strict=True)
    words = shlex.split(run_text.command(run, "made-up", "the-task"))
    assert {"--passbench-compare=old.json", "--passbench-max-regression=0.03,strict"} <= set(words)


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!--{{ 1234*5678 }}\u202e\x00\x1b[2J&lt;"


def hostile() -> Run:
    """Return a run in which every text that a candidate could have written is markup."""
    finding = Finding(EVIL, EVIL, EVIL, EVIL, EVIL, 3)
    hit, miss = PassReport(EVIL, 1, [EVIL], computed=[EVIL], plan=[EVIL]), PassReport(EVIL, miss=EVIL)
    records = []
    for status in ("ran", "crash", "pass_miss", "integrity"):
        record = sample_runs.full_run(1, 1).records[0]
        speed = record.arm.speed
        record.task, record.subgraph, record.candidate, record.source, record.dtype = (
            EVIL,
            EVIL + status,
            EVIL,
            EVIL,
            EVIL,
        )
        record.arm = ArmResult(status, EVIL, EVIL, EVIL, [-11], EVIL, [1.0], [1.0], [1.0], speed, EVIL)
        record.dtypes, record.operators, record.folder = [EVIL], [EVIL], EVIL
        record.passes, record.findings = [hit, miss], [finding]
        record.baselines = {EVIL: ArmResult(speed=speed, correct_from=[-11])}
        records.append(record)
    run = sample_runs.finished_run(records, [EVIL], environment={EVIL: EVIL}, started=EVIL, finished=EVIL)
    run.candidates[0]["path"] = EVIL
    run.parts = [{EVIL: EVIL}]
    return run


def test_what_a_candidate_wrote_stays_text():
    page = parsed(hostile())
    plain = parsed(sample_runs.troubled_run())
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {"h3", "label"}
    assert len(page.scripts) == len(plain.scripts)
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert not any("\u202e" in part or "\x00" in part or "\x1b" in part for part in [*page.texts, *page.scripts[:1]])
    assert EVIL.split("\u202e")[0] in words(page)
    assert "7006652" not in words(page)


def test_the_page_may_load_nothing_and_runs_its_own_scripts_alone():
    text = html.page(report_of(sample_runs.troubled_run()))
    page = Parsed(text)
    for _, attributes in page.elements:
        for name in LOADING & attributes.keys():
            assert attributes[name].startswith("#"), (name, attributes[name])
        assert "style" not in attributes
    (policy,) = (
        found["content"] for tag, found in page.elements if found.get("http-equiv") == "Content-Security-Policy"
    )
    rules = {
        name: rest.split()
        for name, *rest in (part.strip().split(" ", 1) for part in policy.split(";"))
        for rest in rest
    }
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert set(rules) == {"default-src", "base-uri", "form-action", "script-src", "style-src"}
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts]
    assert rules["script-src"] == hashes
    assert len(hashes) == 1
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1])


def test_a_run_of_the_lite_suite_makes_a_page_of_300_kb():
    assert len(html.page(report_of(sample_runs.full_run(34, 100))).encode()) < LITE_SUITE_BYTES


@pytest.mark.slow
def test_the_whole_suite_makes_a_small_page():
    run = sample_runs.full_run()
    text = html.page(report_of(run))
    assert len(text.encode()) < WHOLE_SUITE_BYTES
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    assert len(data["rows"]) == 2060
    assert all(row[data["columns"].index("rounds")] for row in data["rows"])


@pytest.mark.slow
def test_long_texts_are_cut_until_the_page_is_small():
    run = sample_runs.full_run(20, 1500)
    for number, record in enumerate(run.records):
        record.arm = ArmResult("runtime_fail", "build", f"{number}: " + "a long message " * 600)
    assert len(html.page(report_of(run))) < WHOLE_SUITE_BYTES


@given(
    st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=20), min_size=1, max_size=40),
    st.integers(20, 200),
)
def test_packed_rounds_are_the_rounds(pairs, limit):
    least, greatest, lengths, every, text = subgraphs.packed(pairs, limit)
    kept = pairs[::every]
    assert lengths == [len(pair) for pair in kept]
    assert every == 1 or sum(map(len, pairs)) > limit
    place = subgraphs.ALPHABET.index
    found = [64 * place(text[i]) + place(text[i + 1]) for i in range(0, len(text), 2)]
    expected = [value for pair in kept for value in pair]
    step = (greatest - least) / (subgraphs.LEVELS - 1)
    assert len(found) == len(expected)
    for number, value in zip(found, expected, strict=True):
        assert least + number * step == pytest.approx(value, abs=step + 1e-3)


def odd_runs() -> dict[str, Run]:
    nothing = sample_runs.finished_run([], [])
    odd = sample_runs.full_run(1, 2)
    first, second = odd.records
    first.arm.speed.low, first.arm.speed.high = 0.0, math.inf
    first.arm.speed.pairs = []
    first.arm.error64 = second.eager_error64 = [math.nan, math.inf]
    first.arm.greatest_ratio64 = [math.inf]
    second.arm.speed.pairs = [[0.1, 0.1], []]
    bare = sample_runs.finished_run([Record("t", "s", "c")], ["t"], noise={}, environment={}, settings={}, seed={})
    unknown = sample_runs.full_run(1, 1)
    unknown.noise = {"width": math.inf, "sessions": 0}
    unknown.interrupted = True
    return {"nothing": Run(), "no-records": nothing, "odd-numbers": odd, "bare": bare, "no-noise": unknown}


@pytest.mark.parametrize("name", odd_runs())
def test_any_run_has_a_page(name):
    page = parsed(odd_runs()[name])
    assert "Tasks" in words(page)
    assert page.data["columns"]


def test_the_templates_are_in_the_package():
    folder = Path(html.__file__).parent / "templates"
    assert {path.name for path in folder.iterdir()} == {"page.html.j2", "style.css", "script.js"}
