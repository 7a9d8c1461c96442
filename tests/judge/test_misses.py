"""The misses of a broad candidate are grouped by cause, the nearest to a match first, wherever they are printed."""

from __future__ import annotations

import pytest

from pytest_passbench.core.misses import MAX_CAUSES, MAX_NAMES
from pytest_passbench.core.record import ArmResult, PassReport, Record
from pytest_passbench.core.run import Run
from pytest_passbench.plugin.failures import TaskFailedError
from pytest_passbench.report import markdown, tables, terminal
from pytest_passbench.report.report import report_of

FAR = [f"far_{index:02}" for index in range(MAX_NAMES + 4)]
PATTERNS = {
    **dict.fromkeys(FAR, "torch.nn.functional.softmax(x, -1) * y"),
    "half": "torch.nn.functional.relu(x) + y",
    "near": 'torch.nn.functional.gelu(x, approximate="tanh") + y',
    "farther": "torch.nn.functional.silu(x) * y",
}
SAID = [
    "near: nearest: gelu (",
    "half: nearest: add (",
    f"12 passes: the graph has no softmax: {', '.join(FAR[:MAX_NAMES])}, ...",
    "farther: the graph has no silu",
]


@pytest.fixture(params=["direct", "dynamo"])
def record(request, bench, wrapper):
    bench.task()
    sought = "torch.nn.functional.gelu(x) + y"
    plain = wrapper("return torch.empty_like(x)")
    bench.candidate({name: plain.replace(f"return {sought}", f"return {text}") for name, text in PATTERNS.items()})
    (found,) = bench.judge(pipeline=request.param).values()
    assert (found.arm.status, found.arm.phase) == ("pass_miss", "match")
    return found


def test_the_nearest_miss_leads_and_equal_causes_are_one_line(record):
    nearness = {item.name: item.nearness for item in record.passes}
    assert nearness == {**dict.fromkeys(FAR, 0.0), "farther": 0.0, "half": 0.5, "near": 1.0}
    said = record.arm.message.splitlines()
    assert len(said) == len(SAID)
    assert all(line.startswith(told) for told, line in zip(SAID, said, strict=True)), said
    assert said[2:] == [f"{SAID[2]};", SAID[3]]
    failure = TaskFailedError([record])
    text = failure.text()
    assert failure.line().startswith("pass_miss: gelu (")
    assert failure.line().endswith(" (1 of 1)")
    assert text.count("the graph has no softmax") == 1
    assert text.index("near: nearest: gelu") < text.index("half: nearest") < text.index("12 passes")


def test_the_table_of_misses_has_a_row_for_each_cause(record):
    run = Run(records=[record], tasks=[record.task])
    rows = tables.miss_table(run, record.candidate).rows
    assert [row[1].partition(" passes")[0] for row in rows] == ["near", "half", "12", "farther"]
    assert rows[2][3].startswith("the graph has no softmax; it has gelu, add")
    assert markdown.render(report_of(run)).count("the graph has no softmax; it has") == 1
    assert terminal.summary(report_of(run), 80).count("12 passes") == 1


def test_of_very_many_causes_the_nearest_are_told():
    passes = [PassReport(f"p{at:02}", miss=f"cause {at}; it has relu", nearness=at / 40) for at in range(40)]
    record = Record("t", "s", "c", arm=ArmResult("pass_miss", "match"), passes=passes)
    said = [line.split(maxsplit=1)[1] for line in TaskFailedError([record]).text().splitlines()[3:]]
    assert said[:2] == ["p39: cause 39; it has relu", "p38: cause 38"]
    assert said[MAX_CAUSES:] == ["28 more passes were further from a match"]


def test_a_record_without_nearness_keeps_the_order_of_its_passes():
    data = Record("t", "s", "c", arm=ArmResult("pass_miss", "match")).to_json()
    data["passes"] = [{"name": name, "matches": 0, "miss": f"no {name}"} for name in "ba"]
    assert tables.miss_table(Run(records=[Record.from_data(data)]), "c").rows == (
        ("t", "b", "1", "no b"),
        ("t", "a", "1", "no a"),
    )
