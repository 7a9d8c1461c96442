"""The workflow files in docs/ci.md, whose steps are run here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.docs_pages import ROOT, blocks

PAGE = ROOT / "docs/ci.md"
FILES = {block.path: yaml.safe_load(block.text) for block in blocks(PAGE) if block.kind == "yaml"}
INSTALLING = ("sudo apt-get", "apt-get", "pip install")
ELSEWHERE = ("gh ",)  # commands that need a pull request


def steps(service: str) -> list[str]:
    """Return the commands of a workflow file that judge and copy, in order."""
    if service == "github":
        jobs = FILES[".github/workflows/passes.yml"]["jobs"].values()
        found = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    else:
        job = FILES[".gitlab-ci.yml"]["judge"]
        found = [*job["script"], *job["after_script"]]
    return [one for one in found if not one.startswith((*INSTALLING, *ELSEWHERE))]


def test_the_files_have_the_steps_that_are_run_here():
    assert [one.split()[0] for one in steps("github")] == ["pytest"]
    assert [one.split()[0] for one in steps("gitlab")] == ["pytest", "cp"]


@pytest.mark.slow
@pytest.mark.parametrize(("service", "environment"), [("github", "GITHUB_ACTIONS"), ("gitlab", "GITLAB_CI")])
def test_the_steps_run(service: str, environment: str, tmp_path: Path):
    made = ["passbench", "new", "add-softplus-acba", "my_passes"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    summary = tmp_path / "summary.md"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ = {**inherited, "PATH": path, "PYTHONPATH": str(ROOT), environment: "true",
               "GITHUB_STEP_SUMMARY": str(summary), "PYTEST_ADDOPTS": "-k add-softplus-acba"}  # fmt: skip
    for command in [" ".join(made), *steps(service)]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "junit.xml").exists()
    assert list(tmp_path.glob("reports/*/comment.md"))
    wanted = summary if service == "github" else tmp_path / "gl-code-quality.json"
    assert wanted.exists()
