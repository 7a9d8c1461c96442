"""The figures of the project, as ``benchmarks/house.py`` prints and checks them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1] / "benchmarks" / "house.py"
CLEAR = '"""A module."""\n\n\ndef total(values: list[int]) -> int:\n    """Return the sum."""\n    return 0\n'


def house(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a package with limits of 1 % vague names and no class name for two things."""
    limits = package.parent / "limits.toml"
    limits.write_text('[limits]\n"vague names %" = 1\n"class names for two things" = 0\n')
    command = [sys.executable, str(HOUSE), f"--package={package}", f"--limits={limits}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "clear.py").write_text(CLEAR)
    return folder


def test_clear_names_pass(package: Path) -> None:
    done = house(package, "--check")
    assert done.returncode == 0, done.stderr
    assert "vague names %" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "found = 1",
        "_found = 1",
        "for one in (): pass",
        "def told() -> None: ...",
        "def text(given: str) -> None: ...",
        "import json as made",
        "total.kept = 1",
        "values = [x for shown, x in ()]",
        "print(wanted := 1)",
    ],
)
def test_vague_names_are_refused(package: Path, line: str) -> None:
    (package / "vague.py").write_text(f"{line}\n")
    done = house(package, "--check", "--list=.")
    assert done.returncode == 1
    assert "vague names %" in done.stderr
    assert "vague.py:1: binds" in done.stdout


def test_a_class_name_stands_for_one_thing(package: Path) -> None:
    for name in ("first", "second"):
        (package / f"{name}.py").write_text("class Row:\n    pass\n")
    done = house(package, "--check")
    assert done.returncode == 1
    assert "class names for two things: 1 is beyond the limit of 0" in done.stderr
