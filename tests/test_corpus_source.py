"""The source layer over the corpus: exploits it is to catch are caught, honest candidates never accused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_passbench.candidate.audit import audit

HERE = Path(__file__).parent
LAYERS = {"source", "dispatch", "load", "outputs", "clock", "device", "plausibility", "isolation", "kernel"}
SHIPPED = HERE.parent / "candidates"


def folders(kind: str) -> list[Path]:
    return sorted(path.parent for path in (HERE / kind).glob("*/expect.json"))


def expected(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "expect.json").read_text())
    return data


def violations(folder: Path) -> list[str]:
    return [f"{f.file}:{f.line} {f.rule} {f.message}" for f in audit(folder) if f.severity == "violation"]


@pytest.mark.parametrize("folder", folders("exploits"), ids=lambda folder: folder.name)
def test_exploit(folder: Path) -> None:
    found = violations(folder)
    if expected(folder)["layer"] == "source":
        assert found
        assert all(line.split(":")[1].split()[0].isdigit() for line in found)
    elif expected(folder)["layer"] != "kernel":  # refused where kernels are built, seen here or not
        assert not found, "the source layer sees it: say so in expect.json"


@pytest.mark.parametrize("folder", folders("honest"), ids=lambda folder: folder.name)
def test_honest(folder: Path) -> None:
    assert violations(folder) == []


@pytest.mark.parametrize("folder", sorted(p for p in SHIPPED.iterdir() if p.is_dir()), ids=lambda p: p.name)
def test_shipped_candidates_are_honest(folder: Path) -> None:
    assert violations(folder) == []


def test_every_line_of_the_threats_has_an_exploit() -> None:
    lines = {expected(folder)["line"] for folder in folders("exploits")}
    assert lines >= {*range(1, 29), 38}


def test_corpus_is_described() -> None:
    honest = {folder.name for folder in folders("honest")}
    for folder in folders("exploits"):
        data = expected(folder)
        assert data["layer"] in LAYERS
        assert data["expect"] in ("rejected", "neutralised")
        assert data.get("twin", "cpp-plain") in honest
        assert data["what"].endswith(".")


def test_sizes() -> None:
    on_cpu = [folder for folder in folders("exploits") if not expected(folder).get("gpu")]
    assert len(on_cpu) >= 60
    assert len(folders("honest")) >= 40
