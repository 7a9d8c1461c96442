"""Bad input of every kind gets one message that names it. Nothing hangs, raises, or fills memory.

The named cases of ``bad_inputs`` and a hundred mutated inputs run as ``benchmarks/fuzz.py`` runs them: each in a
forked child with limits. ``PASSBENCH_MUTATIONS`` says how many are mutated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pytest_passbench import evaluate
from pytest_passbench.core import record, run
from pytest_passbench.core.errors import UserError
from pytest_passbench.run import results_check
from pytest_passbench.score.subgraph import SPEEDUPS
from shared import bad_inputs, good_inputs, limited_commands
from shared.bad_case import Case

FUZZ = Path(__file__).resolve().parents[1] / "benchmarks" / "fuzz.py"
MUTATIONS = os.environ.get("PASSBENCH_MUTATIONS", "100")


def fuzz(out: Path, *words: str) -> list[dict[str, Any]]:
    """Run the benchmark and return the outcomes that it writes."""
    line = [sys.executable, str(FUZZ), "--json", str(out), *words]
    said = subprocess.run(line, capture_output=True, text=True, check=False)
    assert out.exists(), said.stdout + said.stderr
    found: list[dict[str, Any]] = json.loads(out.read_text())
    return found


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """Run the named cases whose tests run here."""
    called = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    names = [params["case"].name for params in called if isinstance(params.get("case"), Case)]
    found = fuzz(tmp_path_factory.mktemp("cases") / "cases.json", "--cases", *names)
    return {outcome["name"]: outcome for outcome in found}


@pytest.mark.slow
@pytest.mark.parametrize("case", bad_inputs.CASES, ids=lambda case: case.name)
def test_a_named_case(outcomes, case):
    outcome = outcomes[case.name]
    said = outcome["out"] + outcome["err"]
    assert (outcome["verdict"], outcome["code"]) == ("message" if case.code else "fine", case.code), said
    assert case.code == 0 or case.says in said


@pytest.mark.slow
def test_mutated_inputs(tmp_path):
    found = fuzz(tmp_path / "mutated.json", "--inputs", MUTATIONS, "--seed", "11")
    assert len(found) == int(MUTATIONS)
    bad = [outcome for outcome in found if outcome["verdict"] not in limited_commands.GOOD]
    assert not [(o["verdict"], o["seconds"], o["name"], o["argv"], o["err"][-500:]) for o in bad]


def test_inputs_larger_than_the_machine_are_refused_before_they_are_made(tmp_path):
    subgraph = good_inputs.SUBGRAPH.replace("[16, 32]", "[1000000, 300000]")  # 2 times 1.2 TB
    task = good_inputs.write_task(tmp_path, good_inputs.task_text(subgraphs=subgraph))
    with pytest.raises(UserError, match=r"gelu-add.task.yaml: the inputs of subgraph float32-x1 take 2,235 GiB"):
        evaluate(good_inputs.write_candidate(tmp_path), task)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("record", record.Record),
        ("arm", record.ArmResult),
        ("speed", record.Speed),
        ("pass", record.PassReport),
        ("finding", record.Finding),
        ("against", record.Against),
        ("stored", record.Stored),
    ],
)
def test_the_published_schema_has_every_field(name, kind):
    published = json.loads(results_check.SCHEMA_FILE.read_text())
    derived = {"accurate"} if name == "arm" else set()  # written for people; it follows from the ratios
    assert set(published["$defs"][name]["properties"]) == {field.name for field in fields(kind)} | derived
    assert published["properties"]["schema"]["const"] == run.SCHEMA
    assert set(published["$defs"]["arm"]["properties"]["status"]["enum"]) == set(record.STATUSES)
    ratio = published["$defs"]["speed"]["properties"]["ratio"]
    assert (ratio["minimum"], ratio["maximum"]) == SPEEDUPS
