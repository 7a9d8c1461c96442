"""The charts: their values and forms, and that no information is in colour alone."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.report import charts, drawing, tables
from pytest_passbench.report.drawing import Label, Line, Linked, Mark
from pytest_passbench.report.pdf import as_pdf, text_width
from pytest_passbench.score.interval import Interval
from support import sample_runs


def curves_of(run):
    return {(curve.name, curve.dashed): list(curve.values.values()) for curve in tables.curves(run)}


def test_es_has_every_program_under_both_criteria():
    run = sample_runs.full_run(3, 9)
    curves = curves_of(run)
    table = {row[0]: row[1:] for row in tables.es_table(run).rows}
    for name, dashed in (("made-up", False), ("made-up (fp64)", True), ("eager", False)):
        expected = [float(text) for text in table[name]]
        assert curves[name.partition(" ")[0], dashed] == pytest.approx(expected, abs=1e-3)


def test_a_candidate_called_as_a_baseline_or_eager_has_a_curve_of_its_own():
    run = sample_runs.troubled_run("inductor")
    run.records = run.records[:5]
    assert {name for name, _ in curves_of(run)} == {"eager", "inductor", "inductor (candidate)"}


def test_a_speed_that_was_not_measured_has_no_curve():
    assert {name for name, _ in curves_of(sample_runs.troubled_run())} == {"eager", "inductor"}


ROWS = [
    charts.IntervalRow("slow", Interval(0.5, 0.4, 0.6), "t0"),
    charts.IntervalRow("fast", Interval(2.0, 1.5, 2.5), "t1"),
    charts.IntervalRow("open", Interval(1.2, 0.0, math.inf), "t2"),
]
WHOLE = charts.IntervalRow("all", Interval(1.1, 1.05, 1.15), whole=True)


def groups(chart):
    return [shape for shape in chart.shapes if isinstance(shape, Linked)]


def test_a_forest_has_the_fastest_first_and_cuts_intervals_without_an_end():
    rows = groups(charts.forest([*ROWS, WHOLE], "speed-up"))
    assert [row.title.splitlines()[0] for row in rows] == ["all", "fast", "open", "slow"]
    assert [row.title.splitlines()[2] for row in rows] == [
        charts.FASTER, charts.FASTER, charts.LEVEL, charts.SLOWER,
    ]  # fmt: skip
    assert [row.target for row in rows] == ["", "t1", "t2", "t0"]
    assert rows[2].title.splitlines()[1] == "1.200 [no interval] (95 % interval)"
    for row in rows:
        line, mark, _ = row.shapes
        (low, _), (high, _) = line.places
        assert 0.0 <= low <= mark.x <= high <= 1.0


def test_intervals_lie_on_a_logarithmic_axis():
    scale = charts.log_scale([0.25, 4.0])
    assert scale.share(2.0) - scale.share(1.0) == pytest.approx(scale.share(1.0) - scale.share(0.5))


def marks_of(shapes):
    """Return (colour, shape) of all marks, and (colour, dash) of all lines of two pixels, within groups too."""
    flat = drawing.resolved(drawing.Drawing(tuple(shapes), 1.0, "plain", ""), 100.0)
    marks = {(shape.colour, shape.shape) for shape in flat if isinstance(shape, Mark)}
    return marks, {(shape.colour, shape.dash) for shape in flat if isinstance(shape, Line) and shape.width == 2.0}


def test_what_has_a_colour_has_another_sign_too():
    many = [charts.Curve(f"p{index}", {0: 1.0, 1: 2.0}) for index in range(12)]
    marks, _ = marks_of(groups(charts.es_curves(many, [0, 1])))
    assert len(marks) == 12, "no two of twelve programs look alike"
    marks, _ = marks_of(groups(charts.forest(ROWS, "speed-up")))
    assert len({shape for _, shape in marks}) == len({colour for colour, _ in marks}) == 3
    both = [charts.Curve("p", {0: 1.0, 1: 2.0}, "agrees"), charts.Curve("p", {0: 1.0, 1: 2.0}, "accurate", True)]
    _, lines = marks_of(charts.es_curves(both, [0, 1]).shapes)
    assert {dash for colour, dash in lines if colour == drawing.PALETTE[0]} == {(), charts.DASHES}


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_an_axis_has_all_values_and_a_few_ticks(values):
    scale = charts.log_scale(values)
    assert scale.low < min([*values, 1.0]) <= max([*values, 1.0]) < scale.high
    assert 1 <= len(scale.ticks) <= charts.MAX_TICKS
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)
    assert list(scale.ticks) == sorted(set(scale.ticks))


def test_an_axis_leaves_out_what_has_no_logarithm():
    assert charts.log_scale([0.0, math.nan, math.inf, 2.0]) == charts.log_scale([2.0])


def test_in_a_page_charts_have_its_colours_titles_and_links():
    chart = charts.forest([charts.IntervalRow("<b>\x1b", Interval(2.0, 1.5, 2.5), "t7")], "speed-up")
    text = drawing.in_page(chart)
    assert '<a href="#t7" tabindex="-1"><title>&lt;b&gt;\\x1b' in text
    assert not re.search(r'="#[0-9a-f]{6}"', text), "every colour is the page's own"
    assert "var(--good)" in text


def test_a_file_has_its_colours_and_is_the_same_each_time():
    chart = charts.es_curves(tables.curves(sample_runs.full_run(2, 4)), range(-10, 5))
    text = drawing.as_file(chart, 382.0, 3.4)
    assert text == drawing.as_file(chart, 382.0, 3.4)
    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg" width="3.4in"')
    assert "var(" not in text
    assert "%" not in text, "places are numbers"
    assert text.count("<polyline") == 3


def test_a_pdf_has_its_objects_where_its_table_says():
    chart = charts.forest([*ROWS, charts.IntervalRow("a (b) \\ \u03bb", Interval(1.0, 0.9, 1.1))], "speed-up")
    data = as_pdf(chart, 382.0, 3.4)
    assert data == as_pdf(chart, 382.0, 3.4)
    start = int(re.search(rb"startxref\n(\d+)", data)[1])
    assert data[start:].startswith(b"xref\n0 6\n")
    for number, place in enumerate(re.findall(rb"(\d{10}) 00000 n", data), 1):
        assert data[int(place) :].startswith(f"{number} 0 obj".encode())
    length, content = re.search(rb"/Length (\d+) >>\nstream\n(.*)\nendstream", data, re.S).groups()
    assert int(length) == len(content)
    assert rb"(a \(b\) \\ ?) Tj" in content
    assert b"/MediaBox [0 0 244.8 " in data


def test_the_width_of_a_text_is_helveticas():
    assert text_width(Label(0, 0, "ES(t), 1.5", size=10.0)) == pytest.approx(
        (667 + 667 + 333 + 278 + 333 + 278 + 278 + 556 + 278 + 556) / 100
    )
