"""``passbench plan`` on a results file."""

from __future__ import annotations

import json

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.record import ArmResult, Record
from pytest_passbench.core.run import Run
from pytest_passbench.run import results_file


@pytest.fixture
def stored(tmp_path):
    def record(task: str, subgraph: str, **durations: float) -> Record:
        return Record(
            task=task, subgraph=subgraph, candidate="c", arm=ArmResult(correct_from=[-5]), durations=durations
        )

    run = Run(
        tasks=["short", "long", "cut"],
        records=[
            record("short", "a", load=0.5, measure=0.5),
            record("long", "a", measure=70.0),
            record("long", "b", measure=5.0, verify=1.0),
        ],
    )
    results_file.write(tmp_path, run)
    return tmp_path


def test_the_longest_comes_first(stored, capsys):
    assert main(["plan", str(stored)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[1:4]] == ["long", "cut", "short"]
    assert lines[2].endswith("cut  (guessed)")
    assert lines[-2] == "by phase: measure 75.5 s, verify 1.0 s, load 0.5 s"
    assert lines[-1] == "estimated: 1 min 29 s on 1 worker (1 min 29 s of work)"


def test_json_with_workers(stored, capsys):
    assert main(["plan", str(stored / "results.json"), "--workers", "2", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["seconds"], made["elapsed"], made["workers"]) == (89.0, 76.0, 2)
    assert made["tasks"][0] == {"task": "long", "seconds": 76.0, "subgraphs": 2, "guessed": False}


def test_mistakes_are_one_line(stored, capsys):
    with pytest.raises(SystemExit) as usage:
        main(["plan", str(stored), "--workers", "0"])
    assert usage.value.code == 2
    assert "--workers" in capsys.readouterr().err
    assert main(["plan", str(stored / "nothing.json")]) == 1
    assert "no such file" in capsys.readouterr().err
    data = json.loads((stored / "results.json").read_text())
    data["records"][0]["durations"] = {"measure": -1}
    (stored / "results.json").write_text(json.dumps(data))
    assert main(["plan", str(stored)]) == 1
    assert "durations.measure: -1" in capsys.readouterr().err
