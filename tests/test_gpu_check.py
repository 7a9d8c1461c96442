"""benchmarks/gpu_check.py: no step stops another, rows are written at once, later steps run without a guilty wall."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import gpu_check

HEAD = "import json, os, sys, time\nrows = sys.argv[2]\n"


def steps(folder: Path, monkeypatch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Write a checkout whose steps are these."""
    (folder / "benchmarks").mkdir()
    text = HEAD + "".join(f"if sys.argv[1] == {name!r}:\n    {body}\n" for name, body in bodies.items())
    (folder / "benchmarks" / "gpu_steps.py").write_text(text)
    monkeypatch.setattr(gpu_check, "ROOT", folder)
    monkeypatch.setattr(
        gpu_check,
        "STEPS",
        tuple(gpu_check.Step(name, 4 if name == "hangs" else 20, f"finds {name}") for name in bodies),
    )


def row(**found: Any) -> str:
    return f"open(rows, 'a').write(json.dumps({found!r}) + chr(10))"


SHORT = ("facts", "costs", "imports")


def test_a_failing_and_a_hanging_step_stop_nobody(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    steps(
        tmp_path,
        monkeypatch,
        raises="1 / 0",
        hangs=row(step="hangs", row="before", value=1.23456) + "; time.sleep(60)",
        ladder=row(step="ladder", row="with landlock", works=False, guilty="landlock"),
        asks=row(step="asks", row="arguments", given="|") + "; print(sys.argv); sys.exit(sys.argv != 0)",
    )
    assert gpu_check.main(["--out", str(out), "--device", "cuda:1"]) == 1
    rows = [json.loads(line) for line in (out / "gpu-check.jsonl").read_text().splitlines()]
    ends = {one["step"]: one["outcome"] for one in rows if one["row"] == "outcome"}
    assert ends == {"raises": "failed", "hangs": "late", "ladder": "done", "asks": "failed"}
    said = {one["step"]: one.get("said", "") for one in rows if one["row"] == "outcome"}
    assert "ZeroDivisionError" in said["raises"]
    assert "--down=landlock" in said["asks"]
    assert "cuda:1" in said["asks"]
    table = (out / "gpu-check.md").read_text()
    assert capsys.readouterr().out.endswith(table + "\n")
    assert "| hangs | late |" in table
    assert "| before | value 1.235 |" in table
    assert "given \\|" in table


def test_the_time_of_all_is_kept(tmp_path, monkeypatch):
    out = tmp_path / "out"
    steps(tmp_path, monkeypatch, first="time.sleep(60)", second="pass")
    monkeypatch.setattr(gpu_check, "END_SECONDS", 0.0)
    assert gpu_check.main(["--out", str(out), "--minutes", "0.04"]) == 1
    rows = [json.loads(line) for line in (out / "gpu-check.jsonl").read_text().splitlines()]
    assert [one["outcome"] for one in rows] == ["late", "no time"]


def test_steps_are_chosen_by_name():
    args = gpu_check.parsed(["--after", "strong", "--only", "facts", "aa", "lite"])
    assert [step.name for step in gpu_check.chosen(args)] == ["aa", "lite"]
    assert sum(step.seconds for step in gpu_check.STEPS) > 60 * gpu_check.MINUTES  # some end before their limits


@pytest.mark.slow
@pytest.mark.parametrize("guilty", ["names"])
def test_the_ladder_names_the_guilty_wall(tmp_path, guilty):
    program = [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), "--rehearse", "--only", "facts", "ladder"]
    program += ["--out", str(tmp_path), "--patience", "6", "--minutes", "20", f"--refuse={guilty}"]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [json.loads(line) for line in (tmp_path / "gpu-check.jsonl").read_text().splitlines()]
    assert [one["guilty"] for one in rows if "guilty" in one] == [guilty] * bool(guilty)
    assert "rehearsed on the CPU" in (tmp_path / "gpu-check.md").read_text()


@pytest.mark.slow
def test_steps_run_without_a_device(tmp_path):
    """Run the short ones. All of them take ten minutes: ``gpu_check.py --rehearse``."""
    program = [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), "--rehearse", "--out", str(tmp_path)]
    program += ["--patience", "8", "--minutes", "60", "--only", *SHORT]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr
    rows = [json.loads(line) for line in (tmp_path / "gpu-check.jsonl").read_text().splitlines()]
    assert [one["step"] for one in rows if one["row"] == "outcome"] == list(SHORT)
