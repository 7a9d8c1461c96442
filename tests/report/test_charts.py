"""The charts' specifications: which values they have, and that nothing rests on colour alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.report import charts, tables
from pytest_passbench.score.interval import Interval
from support import sample_runs


def test_es_has_every_program_under_both_criteria():
    run = sample_runs.full_run(3, 9)
    values = charts.es_curves(run)["data"]["values"]
    table = {row[0]: row[1:] for row in tables.es_table(run).rows}
    for name, criterion in (
        ("made-up", charts.AGREES),
        ("made-up (fp64)", charts.ACCURATE),
        ("eager", charts.AGREES),
    ):
        program = name.partition(" ")[0]
        mine = [item["es"] for item in values if (item["program"], item["criterion"]) == (program, criterion)]
        assert mine == pytest.approx([float(text) for text in table[name]], rel=1e-3)


def test_a_candidate_called_as_a_baseline_or_eager_has_a_curve_of_its_own():
    run = sample_runs.troubled_run("inductor")
    run.records = run.records[:5]
    values = charts.es_curves(run)["data"]["values"]
    assert {item["program"] for item in values} == {"eager", "inductor", "inductor (candidate)"}


def test_a_speed_that_was_not_measured_has_no_curve():
    values = charts.es_curves(sample_runs.troubled_run())["data"]["values"]
    assert {item["program"] for item in values} == {"eager", "inductor"}


ROWS = [charts.Row("slow", Interval(0.5, 0.4, 0.6), "t0"), charts.Row("fast", Interval(2.0, 1.5, 2.5), "t1"),
        charts.Row("open", Interval(1.2, 0.0, math.inf), "t2")]  # fmt: skip


def test_a_forest_has_the_fastest_first_and_cuts_intervals_without_an_end():
    spec = charts.forest(ROWS, [charts.Row("all", Interval(1.1, 1.05, 1.15))])
    values = spec["data"]["values"]
    assert [item["name"] for item in values] == ["all", "fast", "open", "slow"]
    assert [item["outcome"] for item in values] == [charts.FASTER, charts.FASTER, charts.LEVEL, charts.SLOWER]
    low, high = spec["layer"][1]["encoding"]["x"]["scale"]["domain"]
    assert all(low <= item["low"] <= item["ratio"] <= item["high"] <= high for item in values)
    assert values[2]["said"] == "1.200 [0.000, inf]"


def encodings(spec, channel):
    return [layer["encoding"][channel] for layer in spec["layer"] if channel in layer.get("encoding", {})]


@pytest.mark.parametrize(
    ("spec", "signs"),
    [
        (charts.es_curves(sample_runs.full_run(2, 4)), ("shape", "strokeDash")),
        (charts.forest(ROWS, []), ("shape",)),
        (charts.rounds(), ("shape",)),
    ],
    ids=["es", "forest", "rounds"],
)
def test_what_has_a_colour_has_another_sign_too(spec, signs):
    coloured = {item["field"] for item in encodings(spec, "color")}
    assert coloured
    assert coloured <= {item["field"] for sign in signs for item in encodings(spec, sign)}
    for item in encodings(spec, "shape"):
        assert len(set(item["scale"]["range"])) == len(item["scale"]["domain"]) > 1


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_an_axis_has_all_values_and_a_few_ticks(values):
    (low, high), ticks = charts.log_axis(values)
    assert low < min([*values, 1.0]) <= max([*values, 1.0]) < high
    assert 1 <= len(ticks) <= 12
    assert all(low <= tick <= high for tick in ticks)
    assert ticks == sorted(set(ticks))


def test_an_axis_leaves_out_what_has_no_logarithm():
    assert charts.log_axis([0.0, math.nan, math.inf, 2.0]) == charts.log_axis([2.0])
