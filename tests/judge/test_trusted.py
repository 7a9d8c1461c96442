"""A trusted run: a candidate that cannot be run is refused as it is behind walls."""

from __future__ import annotations

import pytest

from pytest_passbench import evaluate


@pytest.mark.parametrize("trusted", [False, True])
def test_a_broken_manifest_of_a_task_is_the_result(bench, gelu_add_pass, trusted):
    task = bench.task()
    candidate = bench.candidate({"p": gelu_add_pass}, task="gelu-add")
    (candidate / "gelu-add" / "pass_dir" / "sorted_output_pass_rule_names.json").write_text("[")
    (record,) = evaluate(candidate, task, pipeline="direct", trusted=trusted).records
    assert (record.arm.status, record.arm.phase) == ("compile_fail", "load")
    assert "sorted_output_pass_rule_names.json" in record.arm.message
