"""What a measured process has inherited: its channel and where its printing goes, and no descriptor of the inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_passbench.judge.verify.checker import Checker


@pytest.mark.parametrize("pipeline", ["direct", "dynamo"])
def test_it_has_a_channel_and_its_output_alone(bench, gelu_add_pass, monkeypatch, pipeline):
    targets, check = [], Checker.check

    def noted(self, runners, batch, call, certain=False):
        for runner in runners.values():
            targets.append(sorted(str(path.readlink()) for path in Path(f"/proc/{runner.pid}/fd").iterdir()))
        check(self, runners, batch, call, certain)

    monkeypatch.setattr(Checker, "check", noted)
    bench.task()
    bench.candidate({"p": gelu_add_pass})
    (record,) = bench.judge(pipeline=pipeline).values()
    assert record.correct, record.arm.message
    assert targets
    for target in targets:
        assert len(target) == 3
        assert len([name for name in target if name.startswith("socket:")]) == 1
        assert not [name for name in target if name.startswith("/memfd:")]
